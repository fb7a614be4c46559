"""Language models of recurrent cells as ENAS designs them (GiPH Appendix B.3; Pham et al. 2018, section 2.1), unrolled in time.

The paper gives: 10 cell designs, 20 to 30 unrolled steps and batches of 80 to 150 (both uniform), 200 to 300 operators. Left open, and
chosen here:

- A design is drawn at random (the paper samples ENAS' controller): every node but the first picks an earlier node and an activation.
- Ten operators a step give the paper's number: the step's slice of the embedded batch, eight nodes of the cell, and the mean of the
  nodes that no other uses, which is the hidden state. A node is one operator: gate and candidate are one product of matrices.
- The hidden size is 1000 and the vocabulary 10,000 words, as in ENAS' experiment; all words of a batch are looked up by one operator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from envs.graphs.grouping import group_operators
from envs.problem.graph import ComputationGraph
from envs.problem.randomness import check_ranges, seed_label, stream
from envs.problem.ranges import MOST_TASKS

NODES = 8
"""Operators of a cell, the first of which reads the input and the last hidden state."""
ACTIVATIONS = ("tanh", "relu", "identity", "sigmoid")
MOST_STEPS, MOST_SIZE = MOST_TASKS // (NODES + 2), 1_000_000_000
FLOAT = 4
"""Bytes of a float32, of which weights and results are."""


@dataclass(frozen=True)
class EnasParameters:
    """What `generate_enas` needs.

    Raises:
        InputError: for a value out of range.
    """

    cell: int = 0
    """Which design; equal numbers are equal designs."""
    min_steps: int = 20
    """Fewest unrolled steps."""
    max_steps: int = 30
    """Most; they are uniform between the two."""
    min_batch: int = 80
    """Fewest sentences of a batch."""
    max_batch: int = 150
    """Most; they are uniform between the two."""
    hidden: int = 1000
    """Size of the hidden state."""
    vocabulary: int = 10_000
    """Words that the embedding has a vector for."""
    groups: int = 40
    """Groups left after merging operators (`envs.graphs.grouping`); 0 leaves the graph as it is."""

    def __post_init__(self) -> None:
        check_ranges(
            self, cell=(0, math.inf), min_steps=(1, MOST_STEPS), max_steps=(self.min_steps, MOST_STEPS), min_batch=(1, MOST_SIZE),
            max_batch=(self.min_batch, MOST_SIZE), hidden=(1, MOST_SIZE), vocabulary=(1, MOST_SIZE), groups=(0, MOST_TASKS),
        )  # fmt: skip


def cell_design(cell: int) -> list[tuple[int, str]]:
    """Node read and activation of every node of a design; the first node reads none (-1)."""
    rng = stream(np.random.SeedSequence(cell, spawn_key=(2018,)), 0)
    return [(int(rng.integers(0, k)) if k else -1, ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))]) for k in range(NODES)]


def generate_enas(parameters: EnasParameters, seed: int | np.random.SeedSequence) -> ComputationGraph:
    """The unrolled graph of one design; ``seed`` draws the number of steps and the batch."""
    p = parameters
    steps = int(stream(seed, 0).integers(p.min_steps, p.max_steps + 1))
    batch = int(stream(seed, 1).integers(p.min_batch, p.max_batch + 1))
    design = cell_design(p.cell)
    loose = sorted(set(range(NODES)) - {read for read, _ in design})
    width = NODES + 2
    state = float(FLOAT * batch * p.hidden)
    names, kinds, work, weights = ["embedding"], ["Gather"], [float(steps * batch * p.hidden)], [float(FLOAT * p.vocabulary * p.hidden)]
    edges: list[tuple[int, int]] = []
    for t in range(steps):
        base = 1 + t * width
        edges.append((0, base))
        names.append(f"slice{t}")
        kinds.append("Slice")
        work.append(float(batch * p.hidden))
        weights.append(0.0)
        for k, (read, activation) in enumerate(design):
            node = base + 1 + k
            edges += [(base, node)] if k == 0 else [(base + 1 + read, node)]
            if k == 0 and t:
                edges.append((base - 1, node))  # the hidden state of the step before
            names.append(f"node{t}.{k}")
            kinds.append(activation)
            inputs = 2 if k == 0 else 1
            work.append(4.0 * inputs * batch * p.hidden**2)
            # The steps share the cell's weights; each step's operator holds its share, so that the sum is right.
            weights.append(2.0 * inputs * FLOAT * p.hidden**2 / steps)
        edges += [(base + 1 + k, base + width - 1) for k in loose]
        names.append(f"state{t}")
        kinds.append("Mean")
        work.append(float(batch * p.hidden * len(loose)))
        weights.append(0.0)
    output = np.full(len(names), state)
    output[0] = state * steps
    pairs = np.array(sorted(edges), dtype=np.int32)
    graph = ComputationGraph(
        names=tuple(names), op_types=tuple(kinds), flops=np.array(work), output_bytes=output, edges=pairs,
        edge_bytes=np.full(len(pairs), state), parameter_bytes=np.array(weights), name=f"enas-{p.cell}-s{seed_label(seed)}",
        provenance="published generator",
    )  # fmt: skip
    return group_operators(graph, p.groups) if p.groups else graph
