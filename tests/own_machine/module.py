"""A module such as users have: four towers of operations that are rare in benchmarks, with views, changes in place and several outputs."""

import torch
from torch import Tensor, nn

from envs.graphs.models.seeded import seeded


class Towers(nn.Module):
    """Spectra, sequences, tables and attention to the strongest, of the same input."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.window = nn.Parameter(torch.hann_window(512))
        self.spectrum = nn.Sequential(nn.Linear(257, width), nn.SiLU(), nn.Linear(width, width))
        self.convolutions = nn.Sequential(*(nn.Conv1d(1 if k == 0 else 32, 32, 9, padding=4) for k in range(4)))
        self.table = nn.Embedding(1000, width)
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.query, self.key, self.value = (nn.Linear(512, width) for _ in range(3))
        self.mix = nn.Linear(4 * width, width)
        self.narrow = nn.Linear(32, width)

    def forward(self, x: Tensor, ids: Tensor) -> dict[str, Tensor]:
        """``x`` float32[N, 512] and ``ids`` int64[N, T] to the mean of all towers and what each gave."""
        frames = (x * self.window).clone()
        frames[:, ::2].mul_(0.5)
        spectrum = self.spectrum(torch.fft.rfft(frames).abs().clamp_(max=10.0))
        local = self.narrow(self.convolutions(x.unsqueeze(1)).amax(-1))
        steps = self.recurrent(self.table(ids))[0].cumsum(1)[:, -1]
        weights = self.query(x) @ self.key(x).t()
        low = weights.topk(8, dim=-1).values[:, -1:]
        attended = torch.where(weights < low, -torch.inf, weights).softmax(-1) @ self.value(x)
        order = steps.argsort(-1)
        mixed = self.mix(torch.cat((spectrum, local, steps.gather(-1, order), attended), -1))
        return {"mixed": mixed, "order": order, "local": local.roll(1, 0)}


def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """For ``placewright place tests.own_machine.module:build --on …``."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(256, 512, generator=generator), torch.randint(0, 1000, (256, 12), generator=generator)
    return seeded(Towers), inputs
