"""Random placements: every operation (or co-location group) uniform over its feasible devices, without end."""

from __future__ import annotations

from methods.contract.method import Method, Proposal
from methods.placing.constraints import random_placements


class RandomPlacements(Method):
    """The baseline that every search has to beat; draws that overflow a memory are repaired."""

    def propose(self, n: int) -> list[Proposal]:
        return [Proposal(0, random_placements(self.problem, n, self.rng))]
