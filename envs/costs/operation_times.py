"""A table of measured operation times, and which graph it belongs to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph, digest, frozen


@dataclass(frozen=True, eq=False)
class OperationTimes:
    """Measured seconds of every operation of one graph.

    Raises:
        InputError: for a wrong length, and negative or infinite times.
    """

    names: tuple[str, ...]
    seconds: np.ndarray
    """Seconds of each operation on the measured device, float64[V]; zero for what a compiler removes."""
    signature: str
    """`graph_signature` of the measured graph."""
    about: tuple[tuple[str, str], ...] = ()
    """How it was measured, for people: CPU, threads, precision, repeats, toolkit."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "seconds", frozen(self.seconds, np.float64))
        object.__setattr__(self, "about", tuple((str(k), str(v)) for k, v in self.about))
        if self.seconds.shape != (len(self.names),):
            raise InputError(f"table of operation times has {len(self.names)} names but {self.seconds.size} times")
        bad = np.flatnonzero(~(np.isfinite(self.seconds) & (self.seconds >= 0)))
        if bad.size:
            raise InputError(f"measured time of {self.names[bad[0]]!r} is {self.seconds[bad[0]]} s; it must be finite and not negative")

    @cached_property
    def content_hash(self) -> str:
        """sha256 of names, times and measured graph."""
        return digest(self.names, self.seconds, self.signature)

    def save(self, path: str | Path) -> None:
        """Write the table as JSON, to be kept with a study."""
        about = dict(self.about)
        table = dict(zip(self.names, self.seconds.tolist(), strict=True))
        Path(path).write_text(json.dumps({"signature": self.signature, "about": about, "seconds": table}, indent=1) + "\n")

    @staticmethod
    def read(path: str | Path) -> OperationTimes:
        """The table that `save` wrote; InputError if the file is missing or malformed."""
        try:
            document = json.loads(Path(path).read_text())
            table, about = document["seconds"], document.get("about", {})
            times = np.array(list(table.values()), dtype=np.float64)
            return OperationTimes(tuple(table), times, str(document["signature"]), tuple(about.items()))
        except InputError:
            raise
        except OSError as error:
            raise InputError(f"cannot read the table of operation times {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is not a table of operation times as profiling writes it ({error})") from None


def graph_signature(graph: ComputationGraph) -> str:
    """Identity of what is measured: operations, shapes and edges; sizes, groups and the graph's name do not count."""
    return digest(graph.names, graph.op_types, graph.output_shapes, graph.edges)
