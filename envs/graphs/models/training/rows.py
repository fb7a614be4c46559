"""What the networks here share about their layers. Networks do not belong here."""

from __future__ import annotations

from torch import nn


def with_ends(rows: list[list[nn.Module]], first: nn.Module, last: nn.Module) -> list[list[nn.Module]]:
    """Layers with what comes before them (an embedding) on the first, and what comes after (a projection) on the last."""
    rows[0].insert(0, first)
    rows[-1].append(last)
    return rows
