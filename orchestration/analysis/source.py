"""Where a result comes from: simulated or measured, by what, how exactly. Decided from the trial's evaluator, never from words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestration.rewards.evaluators import simulates
from orchestration.specs.trial import EvaluatorSpec


@dataclass(frozen=True)
class ScoredBy:
    """What scored the placements of a trial; by default the plain simulator."""

    kind: str = "simulator"
    """Kind of the evaluator, e.g. ``work-conserving`` or ``openvino``."""
    simulated: bool = True
    exact: bool = True
    """Whether it gives the cost model's own time, without noise or additions; only then do bounds of the cost model hold for it."""
    free_inputs: bool = False
    """Whether inputs cost nothing on any device (DOPPLER's simulator); a bound that counts them would be none."""


PLAIN_SIMULATOR = ScoredBy()


def source_of(evaluator: EvaluatorSpec) -> ScoredBy:
    """What the results of an evaluator are."""
    kind, options = evaluator.kind, evaluator.options
    simulated = simulates(kind)
    added = options.get("relocation") is not None or any(options.get(key) for key in ("noise", "measurement_noise", "cost_error"))
    free = kind == "work-conserving" and bool(options.get("inputs_everywhere", True))
    return ScoredBy(kind, simulated, simulated and not added, free)


def origin(sources: Iterable[tuple[ScoredBy, str]]) -> str:
    """``simulated``, ``measured on HOST``, or both, of results with the fingerprint of what measured each; empty without any."""
    found = list(sources)
    hosts = sorted({host for source, host in found if not source.simulated and host})
    simulated = any(source.simulated for source, _ in found)
    measured = any(not source.simulated for source, _ in found)
    where = " and on ".join(hosts) or "an unknown host"
    return " and ".join([*(["simulated"] if simulated else []), *([f"measured on {where}"] if measured else [])])
