"""Inception-V3 (Szegedy et al. 2016) as torchvision builds it for inference with ``transform_input=True``. No capture belongs here."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class Convolution(nn.Module):
    """Convolution without bias, batch normalisation, ReLU."""

    def __init__(self, inputs: int, outputs: int, size: int | tuple[int, int], stride: int = 1, padding: int | tuple[int, int] = 0) -> None:
        super().__init__()
        self.convolve = nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)
        self.normalise = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.normalise(self.convolve(x)))


class AveragePooled(nn.Module):
    """3x3 average pooling of stride 1, then a 1x1 convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.project = Convolution(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(functional.avg_pool2d(x, 3, 1, 1))


class Branches(nn.Module):
    """Several branches over one input (after an optional shared stem), concatenated over channels."""

    def __init__(self, *branches: nn.Module, stem: nn.Module | None = None) -> None:
        super().__init__()
        self.stem = nn.Identity() if stem is None else stem
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return torch.cat([branch(x) for branch in self.branches], 1)


def _across(inputs: int, outputs: int, size: int) -> Convolution:
    return Convolution(inputs, outputs, (1, size), 1, (0, size // 2))


def _down(inputs: int, outputs: int, size: int) -> Convolution:
    return Convolution(inputs, outputs, (size, 1), 1, (size // 2, 0))


def _double_3x3(inputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(Convolution(inputs, 64, 1), Convolution(64, 96, 3, 1, 1), Convolution(96, 96, 3, stride, int(stride == 1)))


def _block_a(inputs: int, pooled: int) -> Branches:
    five = nn.Sequential(Convolution(inputs, 48, 1), Convolution(48, 64, 5, 1, 2))
    return Branches(Convolution(inputs, 64, 1), five, _double_3x3(inputs, 1), AveragePooled(inputs, pooled))


def _block_c(width: int) -> Branches:
    single = nn.Sequential(Convolution(768, width, 1), _across(width, width, 7), _down(width, 192, 7))
    double = nn.Sequential(
        Convolution(768, width, 1), _down(width, width, 7), _across(width, width, 7), _down(width, width, 7), _across(width, 192, 7)
    )
    return Branches(Convolution(768, 192, 1), single, double, AveragePooled(768, 192))


def _block_d() -> Branches:
    three = nn.Sequential(Convolution(768, 192, 1), Convolution(192, 320, 3, 2))
    seven = nn.Sequential(Convolution(768, 192, 1), _across(192, 192, 7), _down(192, 192, 7), Convolution(192, 192, 3, 2))
    return Branches(three, seven, nn.MaxPool2d(3, 2))


def _block_e(inputs: int) -> Branches:
    three = Branches(_across(384, 384, 3), _down(384, 384, 3), stem=Convolution(inputs, 384, 1))
    stem = nn.Sequential(Convolution(inputs, 448, 1), Convolution(448, 384, 3, 1, 1))
    double = Branches(_across(384, 384, 3), _down(384, 384, 3), stem=stem)
    return Branches(Convolution(inputs, 320, 1), three, double, AveragePooled(inputs, 192))


class InceptionV3(nn.Module):
    """Images float32[N, 3, 299, 299] to logits float32[N, classes]; the auxiliary head is for training only and left out."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: Sequence[nn.Module] = (
            Convolution(3, 32, 3, 2), Convolution(32, 32, 3), Convolution(32, 64, 3, 1, 1), nn.MaxPool2d(3, 2),
            Convolution(64, 80, 1), Convolution(80, 192, 3), nn.MaxPool2d(3, 2),
            _block_a(192, 32), _block_a(256, 64), _block_a(288, 64),
            Branches(Convolution(288, 384, 3, 2), _double_3x3(288, 2), nn.MaxPool2d(3, 2)),
            _block_c(128), _block_c(160), _block_c(160), _block_c(192),
            _block_d(), _block_e(1280), _block_e(2048),
        )  # fmt: skip
        self.layers = nn.Sequential(*layers)
        self.classifier = nn.Linear(2048, classes)

    def forward(self, x: Tensor) -> Tensor:
        # From the normalisation of ImageNet's channels to the range [-1, 1] of the original weights.
        deviation, mean = (0.229, 0.224, 0.225), (0.485, 0.456, 0.406)
        x = torch.cat([torch.unsqueeze(x[:, i], 1) * (deviation[i] / 0.5) + (mean[i] - 0.5) / 0.5 for i in range(3)], 1)
        y = functional.adaptive_avg_pool2d(self.layers(x), 1)
        return self.classifier(torch.flatten(y, 1))
