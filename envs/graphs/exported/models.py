"""Small networks with branches, known by name: what several cores can share although each operation is small."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class StackedLstm(nn.Module):
    """An LSTM of several layers: layers can work on different steps of the sequence at a time."""

    def __init__(self, depth: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(hidden, hidden, depth)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` float32[T, N, hidden] to the same shape."""
        return self.lstm(x)[0]  # type: ignore[no-any-return]


class DenseExperts(nn.Module):
    """Experts of which each sees every sample (Jacobs et al., 1991), mixed by a gate."""

    def __init__(self, experts: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden)) for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        """``x`` float32[N, hidden] to the same shape."""
        weight = self.gate(x).softmax(-1)
        return torch.stack([expert(x) for expert in self.experts], -1) @ weight.unsqueeze(-1)  # type: ignore[no-any-return]
