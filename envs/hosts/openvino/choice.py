"""OpenVINO's own choice of devices behind the evaluator's face, as a baseline (OpenVINO-CPU and OpenVINO-GPU of HSDAG's Table 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from envs.hosts.openvino.host import OpenVinoHost, fingerprint
from envs.problem.errors import InputError, nearest
from envs.problem.measurement import Measurements, Outcome, Wrapper
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import as_placements

CHOICES = ("HETERO", "AUTO")


@dataclass
class ToolkitChoice(Wrapper):
    """Measures what the toolkit chooses, whatever placement it is asked about; one evaluation is enough.

    Raises:
        InputError: for another choice, or a preference that is no list.
    """

    inner: OpenVinoHost
    choice: str
    """``HETERO`` (each operation goes to the first device that supports it) or ``AUTO`` (one device for all)."""
    preference: Sequence[str] = ()
    """Names of the network's devices, the preferred one first; all of them in the host's order if none is given."""

    def __post_init__(self) -> None:
        if self.choice not in CHOICES:
            raise InputError(f"choice is {self.choice!r}; OpenVINO chooses by HETERO or AUTO{nearest(str(self.choice), CHOICES)}")
        self.preference = self.preference or list(self.inner.devices)
        if isinstance(self.preference, str):
            raise InputError(f"preference is {self.preference!r}; it must list the network's devices, as [gpu, cpu]")

    @property
    def protocol(self) -> str:
        """What is measured, and that the devices are the toolkit's choice."""
        return f"{self.inner.protocol} choice={self.choice}:{','.join(self.preference)}"

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """Every row is another measurement of the same choice [s]; of ``placements`` int16[B, V] only their number B counts."""
        placements = as_placements(problem, placements)
        details = [self.inner.choice(problem, self.preference, self.choice) for _ in placements]
        outcome = np.array([d.outcome for d in details], dtype=np.int8)
        seconds = np.array([d.seconds for d in details])
        return Measurements(
            problem_hash=problem.content_hash, placements=placements, outcome=outcome, seconds=seconds,
            objective=np.where(outcome == Outcome.OK, seconds, np.inf), seed=seed, protocol=self.protocol, host=fingerprint(), first=first,
            samples=tuple(d.samples for d in details), notes=tuple(d.note for d in details),
            deviation=np.array([d.dispersion if d.outcome == Outcome.OK else np.nan for d in details]),
            compile_seconds=np.array([d.compile_seconds for d in details]),
        )  # fmt: skip
