"""Small torch modules of many kinds, each with example inputs."""

import torch
from torch import nn
from torch.nn import functional as f

from envs.graphs.exported.models import DenseExperts, StackedLstm
from envs.graphs.models.seeded import seeded


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.paths = nn.ModuleList([nn.Conv2d(8, 4, k, padding=k // 2) for k in (1, 3, 5)])
        self.head = nn.Linear(20, 5)

    def forward(self, x):
        x = self.stem(x)
        parts = [path(x) for path in self.paths] + [f.avg_pool2d(x, 3, 1, 1)]
        return self.head(f.relu_(torch.cat(parts, 1)).mean((2, 3)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.qkv, self.out = nn.LayerNorm(16), nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.feed = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, 4)).transpose(1, 2) for t in self.qkv(self.first(x)).split(16, -1))
        x = x + self.out(f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.feed(self.second(x))


class Odd(nn.Module):
    """In-place changes through views, several outputs of one operation, ranges, constants, outputs in a dict, weights read twice."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 6))
        self.register_buffer("scale", torch.tensor(0.5))
        self.unused = nn.Linear(2, 2)

    def forward(self, x, flags):
        y = (x @ self.w).clone()
        y.add_(1.0).mul_(self.scale)
        y[0] = y[1] * 2
        y.select(1, 2).sub_(3)
        a, b, c = y.split(2, dim=1)
        b = b.t().contiguous().view(-1)
        values, where = (a * c).topk(1, dim=1)
        steps = torch.arange(6, dtype=x.dtype).unsqueeze(0).expand(4, 6)
        z = torch.where(flags, y + steps, y @ self.w)
        low, high = torch.aminmax(z, dim=1)
        return {
            "z": z,
            "pair": [values, (where, b)],
            "ends": low.neg_() + high,
            "same": x,
            "view": x[1:].t(),
            "one": 1,
            "w": self.w.t(),
            "i": steps,
        }


MODULES = {
    "branches": lambda: (seeded(Branches), (torch.randn(2, 3, 12, 12),)),
    "lstm": lambda: (seeded(lambda: StackedLstm(3, 8)), (torch.randn(9, 2, 8),)),
    "gru": lambda: (seeded(lambda: nn.GRU(6, 5, 2, bidirectional=True, batch_first=True)), (torch.randn(2, 4, 6),)),
    "block": lambda: (seeded(Block), (torch.randn(2, 5, 16),)),
    "experts": lambda: (seeded(lambda: DenseExperts(5, 8)), (torch.randn(3, 8),)),
    "odd": lambda: (seeded(Odd), (torch.randn(4, 6), torch.tensor([[True] * 3 + [False] * 3] * 4))),
}


def build():
    """For ``--on``: a module of a user's own."""
    return MODULES["odd"]()


def branches():
    """Another."""
    return MODULES["branches"]()
