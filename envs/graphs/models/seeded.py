"""Seeded random weights for model definitions, such that no converter can fold an operation away. No architectures belong here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def seeded(build: Callable[[], Model], seed: int = 0) -> Model:
    """Build a model under ``seed`` and make every affine term, bias and running statistic random.

    Zero biases, unit scales and unit variances would be folded away by a converter and the graph would shrink. The global
    random state of torch is left as it was. Returns the model in evaluation mode.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = build().eval()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0.0, 0.1)  # type: ignore[union-attr, operator]
                module.running_var.uniform_(0.8, 1.2)  # type: ignore[union-attr, operator]
            if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
                module.weight.uniform_(0.8, 1.2)
            bias = getattr(module, "bias", None)
            if isinstance(bias, nn.Parameter):
                bias.normal_(0.0, 0.05)
    return model
