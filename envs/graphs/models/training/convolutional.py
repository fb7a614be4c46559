"""Convolutional networks: VGG16, WaveNet and AmoebaNet-D. No capturing here.

``layers()`` as in `envs.graphs.models.training.recurrent`; images and classes (or samples and next samples) to a mean cross entropy.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from envs.graphs.models.training.rows import with_ends

VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
"""Widths of configuration D; 0 is a pooling."""


class Vgg16(nn.Module):
    """Simonyan and Zisserman (2015), configuration D: images float32[N, 3, 224, 224] and classes int64[N] to a loss."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        width = 3
        for wanted in VGG16:
            blocks.append(nn.Sequential(nn.Conv2d(width, wanted, 3, padding=1), nn.ReLU()) if wanted else nn.MaxPool2d(2))
            width = wanted or width
        self.features = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(7)
        self.dense = nn.Sequential(nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, classes))

    def layers(self) -> list[list[nn.Module]]:
        return [*([block] for block in self.features), [self.pool, self.dense]]

    def forward(self, x: Tensor, classes: Tensor) -> Tensor:
        return functional.cross_entropy(self.dense(self.pool(self.features(x)).flatten(1)), classes)


class GatedBlock(nn.Module):
    """A dilated causal convolution with a gate; the next input and what is skipped to the end, both float32[N, C, T]."""

    def __init__(self, residual: int, skipped: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.filter, self.gate = (nn.Conv1d(residual, residual, 2, dilation=dilation) for _ in range(2))
        self.next, self.skip = nn.Conv1d(residual, residual, 1), nn.Conv1d(residual, skipped, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        past = functional.pad(x, (self.dilation, 0))
        y = torch.tanh(self.filter(past)) * torch.sigmoid(self.gate(past))
        return x + self.next(y), self.skip(y)


class WaveNet(nn.Module):
    """van den Oord et al. (2016): samples and next samples int64[N, T] of 256 values to a loss.

    ``depth`` layers in ``stacks``; in each stack dilations double from 1.
    """

    def __init__(self, stacks: int, depth: int, residual: int, skipped: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, residual)
        self.blocks = nn.ModuleList(GatedBlock(residual, skipped, 2 ** (i % (depth // stacks))) for i in range(depth))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(skipped, skipped, 1), nn.ReLU(), nn.Conv1d(skipped, 256, 1))

    def layers(self) -> list[list[nn.Module]]:
        return with_ends([[block] for block in self.blocks], self.embedding, self.head)

    def forward(self, samples: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(samples).transpose(1, 2)
        x, total = self.blocks[0](x)
        for block in self.blocks[1:]:  # type: ignore[union-attr]
            x, skip = block(x)
            total = total + skip
        return functional.cross_entropy(self.head(total), targets)


def _unit(inputs: int, outputs: int, kernel: int | tuple[int, int], stride: int = 1) -> nn.Sequential:
    """ReLU, convolution, normalisation."""
    padding = kernel // 2 if isinstance(kernel, int) else (kernel[0] // 2, kernel[1] // 2)
    return nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False), nn.BatchNorm2d(outputs))


class _Skip(nn.Module):
    """The input, or two shifted halves of it where the resolution is halved."""

    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        if stride > 1:
            self.first, self.second = (nn.Conv2d(width, width // 2, 1, 2, bias=False) for _ in range(2))
            self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == 1:
            return x
        x = torch.relu(x)
        shifted = functional.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        out: Tensor = self.norm(torch.cat((self.first(x), self.second(shifted)), dim=1))
        return out


def _seven(width: int, stride: int) -> nn.Sequential:
    quarter = width // 4
    return nn.Sequential(
        _unit(width, quarter, 1), _unit(quarter, quarter, (1, 7)), _unit(quarter, quarter, (7, 1), stride), _unit(quarter, width, 1)
    )


def _three(width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(_unit(width, width // 4, 1), _unit(width // 4, width // 4, 3, stride), _unit(width // 4, width, 1))


OPERATIONS: dict[str, Callable[[int, int], nn.Module]] = {
    "skip": _Skip,
    "average": lambda _, stride: nn.AvgPool2d(3, stride, 1, count_include_pad=False),
    "max3": lambda _, stride: nn.MaxPool2d(3, stride, 1),
    "max2": lambda _, stride: nn.MaxPool2d(2, stride, ceil_mode=True),
    "one": lambda width, stride: _unit(width, width, 1, stride),
    "three": _three,
    "seven": _seven,
}
"""By (width, stride)."""
NORMAL = (
    (1, "one"),
    (1, "max3"),
    (1, "skip"),
    (0, "seven"),
    (0, "one"),
    (0, "seven"),
    (2, "max3"),
    (2, "skip"),
    (1, "average"),
    (5, "one"),
)
NORMAL_OUTPUT = (0, 3, 4, 6)
REDUCTION = (
    (0, "max2"),
    (0, "max3"),
    (2, "skip"),
    (1, "three"),
    (2, "seven"),
    (2, "max3"),
    (3, "skip"),
    (1, "max2"),
    (2, "average"),
    (3, "one"),
)
REDUCTION_OUTPUT = (4, 5, 6)
"""The genotype of AmoebaNet-D as in its public implementation: the input and the operation of each of ten halves of five sums."""


class AmoebaCell(nn.Module):
    """A cell of five pairwise sums over the outputs of the two cells before, float32[N, C, H, W] each."""

    def __init__(self, before: int, last: int, width: int, reduces: bool, reduced_before: bool) -> None:
        super().__init__()
        plan = REDUCTION if reduces else NORMAL
        self.output: tuple[int, ...] = REDUCTION_OUTPUT if reduces else NORMAL_OUTPUT
        self.enter_last = _unit(last, width, 1)
        fit = [] if before == width and not reduced_before else [_unit(before, width, 1, 2 if reduced_before else 1)]
        self.enter_before = nn.Sequential(*fit)
        self.sources = [source for source, _ in plan]
        self.operations = nn.ModuleList(OPERATIONS[kind](width, 2 if reduces and source < 2 else 1) for source, kind in plan)
        self.width = width * len(self.output)

    def forward(self, before: Tensor, last: Tensor) -> Tensor:
        states = [self.enter_last(last), self.enter_before(before)]
        for i in range(0, len(self.sources), 2):
            a, b = (self.operations[j](states[self.sources[j]]) for j in (i, i + 1))
            states.append(a + b)
        return torch.cat([states[i] for i in self.output], dim=1)


class AmoebaNet(nn.Module):
    """AmoebaNet-D (Real et al. 2018): images float32[N, 3, S, S] and classes int64[N] to a loss.

    ``cells`` normal cells in three groups, a reduction cell between groups; two more follow the first convolution.
    """

    def __init__(self, cells: int, filters: int, classes: int = 1000) -> None:
        super().__init__()
        width = max(4, filters // 4 // 4 * 4)
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width))
        rows: list[nn.Module] = []
        before = last = width
        reduced = False
        for reduces in [True, True, *([False] * (cells // 3)), True, *([False] * (cells // 3)), True, *([False] * (cells // 3))]:
            width *= 2 if reduces else 1
            cell = AmoebaCell(before, last, width, reduces, reduced)
            rows.append(cell)
            before, last, reduced = last, cell.width, reduces
        self.cells = nn.ModuleList(rows)
        self.classifier = nn.Linear(last, classes)

    def layers(self) -> list[list[nn.Module]]:
        return with_ends([[cell] for cell in self.cells], self.stem, self.classifier)

    def forward(self, x: Tensor, classes: Tensor) -> Tensor:
        before = last = self.stem(x)
        for cell in self.cells:
            before, last = last, cell(before, last)
        return functional.cross_entropy(self.classifier(functional.adaptive_avg_pool2d(last, 1).flatten(1)), classes)
