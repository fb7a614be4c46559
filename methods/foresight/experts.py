"""What was learned: parameters of policies that complement each other, and how each, and each heuristic, did on the graphs of training.

Where nothing is planned, a new problem is compared with those of training by the numbers of its graph (`methods.foresight.features.GRAPH`);
policies are tried in the order that would have been best on the problems most like it: first the one that is best on the average, then
always the one that would have lowered the best so far the most (a greedy portfolio; Xu, Hoos and Leyton-Brown, "Hydra", AAAI 2010, with
weights by likeness).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envs.problem.errors import InputError
from methods.foresight.policy import SIZE
from methods.placing.starts import COARSE
from methods.placing.varied_schedules import KINDS

SHIPPED = Path(__file__).with_name("policy.npz")
HEURISTICS = KINDS + len(COARSE)
"""One-go heuristics that are tried like policies: list schedules as they are, then placements that are none."""
LIKENESS = 0.6
"""Distance of graph features at which a problem of training counts exp(-1/2) of one that is equal."""


@dataclass(frozen=True, eq=False)
class Experts:
    """K policies, of which the first `HEURISTICS` are the list schedules of `methods.placing.varied_schedules` and `COARSE`."""

    thetas: np.ndarray
    """Parameters of the learned ones, float64[K - HEURISTICS, SIZE]."""
    graphs: np.ndarray
    """Graph features of the problems of training, float64[N, G]."""
    gains: np.ndarray
    """Logarithm of makespan over HEFT's, of each problem by each policy, float64[N, K]."""

    def __post_init__(self) -> None:
        if self.thetas.ndim != 2 or self.thetas.shape[1] != SIZE or self.gains.shape != (len(self.graphs), HEURISTICS + len(self.thetas)):
            raise InputError(f"policies of foresight have shapes {self.thetas.shape} and {self.gains.shape}; they are of another version")

    def order(self, graph: np.ndarray, count: int) -> np.ndarray:
        """The ``count`` policies to try on a problem with the features ``graph`` float64[G], int64[count]."""
        distance = ((self.graphs - graph) ** 2).sum(axis=1)
        weight = np.exp(-(distance - distance.min()) / (2 * LIKENESS**2))
        chosen, best = list[int](), np.full(len(self.gains), np.inf)
        for _ in range(min(count, self.gains.shape[1])):
            value = weight @ np.minimum(self.gains, np.where(np.isfinite(best), best, 1e3)[:, None])
            value[chosen] = np.inf
            chosen.append(int(value.argmin()))
            best = np.minimum(best, self.gains[:, chosen[-1]])
        return np.array(chosen, dtype=np.int64)

    def unlearned(self) -> Experts:
        """The same heuristics beside a policy of parameters that are zero, which is HEFT."""
        return Experts(np.zeros((1, SIZE)), self.graphs, np.pad(self.gains[:, :HEURISTICS], ((0, 0), (0, 1))))

    def state(self) -> dict[str, Any]:
        """As arrays."""
        return {"thetas": self.thetas.astype(np.float32), "graphs": self.graphs.astype(np.float32), "gains": self.gains.astype(np.float32)}

    @staticmethod
    def of(state: Any) -> Experts:
        """The inverse of `state`; InputError if something is missing or of another shape."""
        try:
            return Experts(*(np.asarray(state[key], dtype=np.float64) for key in ("thetas", "graphs", "gains")))
        except KeyError as error:
            raise InputError(f"policies of foresight lack {error}; they are of another version") from None

    def save(self, path: Path) -> None:
        """Writes a file that `load` reads."""
        with path.open("wb") as file:
            np.savez_compressed(file, **self.state())


def load(path: Path) -> Experts:
    """The policies in a file that `Experts.save` wrote."""
    with np.load(path, allow_pickle=False) as found:
        return Experts.of(found)


def shipped() -> Experts:
    """The policies that come with the code."""
    return load(SHIPPED)
