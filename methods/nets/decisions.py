"""One device (or group) for every position of a sequence, drawn from logits. What makes the logits does not belong here."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BLOCKED = -1e9
"""Logit of a device that may not be used: its probability is 0, and unlike -inf it leaves gradients finite."""


class Decisions(NamedTuple):
    """Decisions of B samples over L positions."""

    actions: Tensor
    """What was chosen, int64[B, L]."""
    log_probs: Tensor
    """log π of it, [B, L]."""
    entropy: Tensor
    """Of the policy at each position, [B, L]."""


def decide(logits: Tensor, allowed: Tensor | None, actions: Tensor | None, noise: Tensor | None) -> Decisions:
    """Choose by ``logits`` or score given choices.

    Args:
        logits: [B or 1, L, D].
        allowed: which choices there are, bool, broadcast to the logits; None allows all.
        actions: choices to score, int64[B, L]; None chooses the greatest of log π + noise. With noise, those below 0 are chosen.
        noise: Gumbel noise [B, L, D], which makes the choice a draw from π; zeros take the most probable.
    """
    if allowed is not None:
        logits = logits.masked_fill(~allowed, BLOCKED)
    log_p = torch.log_softmax(logits, dim=-1)
    if actions is None or noise is not None:
        chosen = (log_p if noise is None else log_p + noise).argmax(dim=-1)
        actions = chosen if actions is None else torch.where(actions < 0, chosen, actions)
    spread = log_p.expand(len(actions), -1, -1)
    log_probs = spread.gather(2, actions.unsqueeze(2)).squeeze(2)
    entropy = -(log_p.exp() * log_p).sum(dim=-1).expand(len(actions), -1)
    return Decisions(actions, log_probs, entropy)
