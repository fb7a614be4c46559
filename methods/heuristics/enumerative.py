"""EnumerativeOptimizer: meta-op by meta-op the assignment with the least transfer time (DOPPLER, Appendix A, Algorithm 4).

A graph made by sharding consists of meta-ops (`ComputationGraph.meta_op`), each of ShardOps and, maybe, ReduceOps. In
topological order of the meta-ops, first the ShardOps and then the ReduceOps are spread evenly over all devices so that moving
their inputs from where they are takes the least time in sum. The paper tries all permutations of the devices; as the sum has
one term for each (operation, device), the best permutation is an assignment problem, which is solved exactly for any number of
devices. Groups of more operations than devices, which the paper does not have, are spread with at most ceil(k / D) a device.
The paper keeps the first of equally good permutations; here the one that evens out the work so far is taken, which makes it a
stronger baseline than the paper's. With ``literal`` it is the paper's, larger groups cycling through the permutation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from methods.contract.fixed_list import FixedList
from methods.placing.meta_ops import enumerate_meta_ops


@dataclass(frozen=True)
class EnumerativeConfig:
    """What Algorithm 4 leaves open."""

    free_inputs: bool = True
    """Whether inputs (nodes without a producer) are on every device, as in Algorithm 1, so that moving them costs nothing."""
    literal: bool = False
    """Whether permutations of the devices (at most 8) are tried and the first of equals kept, as printed."""


class Enumerative(FixedList):
    """One placement; of nodes without a meta-op, each level counts as one."""

    Config = EnumerativeConfig
    seeded = False

    def placement(self, index: int) -> np.ndarray:
        return enumerate_meta_ops(self.problem, self.config.free_inputs, self.config.literal)
