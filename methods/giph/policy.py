"""The networks of GiPH and its variants: features of a batch of gpNets in, a score for every option out (GiPH section 4.2, B.6).

No episodes, rewards or masks' reasons belong here.
"""

from __future__ import annotations

import itertools
from typing import Literal

import numba
import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from methods.nets.gpnet import EDGE_FEATURES, GpNets
from methods.nets.gpnet_features import out_edge_means
from methods.nets.gpnet_messages import MessagePassing

Variant = Literal["giph", "giph-k", "giph-ne", "graphsage-ne", "giph-ne-pol", "giph-task-eft"]
"""Section 5 and Appendix B.6."""

SAGE_HIDDEN = 16
SAGE_LAYERS = 3


class TwoWay(nn.Module):
    """Node transform and message passing in both directions, each with its own parameters; [N, 2 * embedding]."""

    def __init__(self, features: int, embedding: int, message: int, rounds: int, edge_features: bool) -> None:
        super().__init__()
        self.transform = nn.ModuleList(
            nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, embedding)) for _ in range(2)
        )
        self.passes = nn.ModuleList(
            MessagePassing(embedding, message, edge_features=edge_features, rounds=rounds, reverse=bool(r)) for r in range(2)
        )

    def forward(self, x: Tensor, nets: GpNets) -> Tensor:
        return torch.cat([p(t(x), nets) for t, p in zip(self.transform, self.passes, strict=True)], dim=1)


class Sage(nn.Module):
    """Three uni-directional GraphSAGE layers over the gpNet's edges (GraphSAGE-NE); [N, 2 * embedding]."""

    def __init__(self, features: int, output: int) -> None:
        super().__init__()

        sizes = [features, *[SAGE_HIDDEN] * (SAGE_LAYERS - 1), output]
        self.layers = nn.ModuleList(SAGEConv(a, b) for a, b in itertools.pairwise(sizes))

    def forward(self, x: Tensor, nets: GpNets) -> Tensor:
        source, target, _ = nets.edges()
        index = torch.from_numpy(np.stack([source, target]))
        for layer in self.layers:
            x = torch.relu(layer(x, index))
        return x


class Scorer(nn.Module):
    """The embedding network of a variant followed by the score function g (section 4.2.3), sizes of Tables 4 and 5.

    Args:
        variant: which network.
        features: length of the node features before the variant adds its own.
        embedding: length of the embedding in each direction.
        hidden: hidden units of the score function.
        rounds: k of GiPH-k.
    """

    def __init__(self, variant: Variant, features: int, embedding: int = 5, hidden: int = 16, rounds: int = 3) -> None:
        super().__init__()
        self.appends_edges = variant in ("giph-ne", "graphsage-ne", "giph-ne-pol")
        features += EDGE_FEATURES if self.appends_edges else 0
        summary = 2 * embedding
        self.network: nn.Module | None
        if variant == "giph-ne-pol":
            self.network, summary = None, features
        elif variant == "graphsage-ne":
            self.network = Sage(features, summary)
        elif variant == "giph-ne":
            self.network = TwoWay(features, embedding, features, 0, False)
        else:
            self.network = TwoWay(features, embedding, embedding + EDGE_FEATURES, rounds if variant == "giph-k" else 0, True)
        self.score = nn.Sequential(nn.Linear(summary, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, nets: GpNets, features: np.ndarray) -> Tensor:
        """Scores [N] of all options, before masks, from their node features [N, F]."""
        if self.appends_edges:
            features = np.concatenate([features, out_edge_means(nets)], axis=1)
        x = torch.from_numpy(features)
        if self.network is not None:
            x = self.network(x, nets)
        scores: Tensor = self.score(x).squeeze(1)
        return scores


def log_softmax(scores: Tensor, allowed: np.ndarray, begins: np.ndarray) -> Tensor:
    """Log-probabilities [N] of a softmax over each segment's ``allowed`` options, -inf for the others.

    Args:
        scores: float[N].
        allowed: bool[N], at least one option in every segment.
        begins: where the segments begin, and N, int64[S + 1].
    """
    masked = scores.masked_fill(torch.from_numpy(~allowed), -torch.inf)
    n, lengths = len(begins) - 1, torch.from_numpy(np.diff(begins))
    segment = torch.repeat_interleave(torch.arange(n), lengths, output_size=len(scores))
    highest = torch.full((n,), -torch.inf).scatter_reduce(0, segment, masked.detach(), "amax")
    shifted = masked - highest[segment]
    total = torch.zeros(n).index_add(0, segment, shifted.exp())
    return shifted - total.log()[segment]


@numba.njit(cache=True, nogil=True)
def allowed_options(layout, states, pivot, last, keep_pivots, movable, out):
    """Mark the actions of section 4.2.3: no move that changes nothing, and none of the task that was moved last.

    Where only the task moved last could move at all, it may move again.

    Args:
        layout: the layout.
        states: the states.
        pivot: the option of every task.
        last: leader of the group that each state moved last, counted through the union of problems; -1 at first.
        keep_pivots: options that stand for their task (there is one a task), so that choosing a pivot is a move.
        movable: whether each task of the layout has another device to go to, bool[V].
        out: bool[N], overwritten.
    """
    for s in range(len(states.problem)):
        g = states.problem[s]
        first = layout.task_ptr[g]
        to_option = states.option_at[s] - layout.option_ptr[first]
        any_left = False
        for again in range(2):
            for task in range(first, layout.task_ptr[g + 1]):
                free = movable[task] and (again == 1 or layout.leader[task] != last[s])
                for option in range(to_option + layout.option_ptr[task], to_option + layout.option_ptr[task + 1]):
                    out[option] = free and (keep_pivots or option != pivot[states.task_at[s] + task - first])
                    any_left = any_left or out[option]
            if any_left:
                break


@numba.njit(cache=True, nogil=True)
def pick(scores, begins):
    """Index of the largest score of each segment, the first among equals, int64[S]."""
    best = begins[:-1].copy()
    for s in range(len(best)):
        for u in range(begins[s], begins[s + 1]):
            if scores[u] > scores[best[s]]:
                best[s] = u
    return best
