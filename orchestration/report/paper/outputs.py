"""What placements compute, compared pair by pair (HSDAG's Table 4): best placements of a sweep, run once more on this machine."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.hosts.openvino.model import agreement
from envs.problem.errors import InputError
from orchestration.analysis.quantity import TableCell, quantity
from orchestration.folder.ledger import entries
from orchestration.rewards.evaluators import build_evaluator, close_evaluators
from orchestration.specs.results import placement_array

if TYPE_CHECKING:
    from orchestration.analysis.table import Table
    from orchestration.report.paper.study import Score, Study

COLUMNS = ("pair", "graph", "MSE", "cosine", "L2 norm", "L2 / norm")


def outputs(study: Study) -> Table:
    """HSDAG's Table 4: what the best placements compute, method against method, run once more on this machine.

    A row for every graph and pair of methods: mean squared error, cosine similarity, L2 norm of the difference. Of each method
    the best placement of all its seeds is taken.

    Raises:
        InputError: if the sweep did not measure with an OpenVINO host, or only one method has a placement.
    """
    best = _best(study)
    rows: list[list[TableCell]] = []
    for graph, methods in best.items():
        for (one, a), (other, b) in itertools.combinations(methods.items(), 2):
            found = agreement(a, b)
            pair = f"{one} vs {other}"
            numbers = zip(("{:.3e}", "{:.6f}", "{:.3g}", "{:.2e}"), (found.mse, found.cosine, found.l2, found.relative), strict=True)
            rows.append([pair, graph, *(quantity(lambda value, form=form: form.format(value), value=x) for form, x in numbers)])
    if not rows:
        raise InputError("outputs are compared between methods, but fewer than two have a placement; let the sweep run on")
    note = "Outputs of the best placements on the same inputs; the last column is relative to the second one."
    return study.table(COLUMNS, rows, note)


def _best(study: Study) -> Mapping[str, Mapping[str, Sequence[np.ndarray]]]:
    """Outputs of the best placement of every method, by graph."""
    trials = {result.trial: (trial, result) for trial, result in entries(study.record.folder)}
    hosts: dict[str, Any] = {}
    found: dict[str, dict[str, Sequence[np.ndarray]]] = {}
    try:
        for method in study.methods:
            best: dict[str, Score] = {}
            for score in study.of(method):
                name = score.problem.graph.name
                if score.run.placement is not None and score.run.objective < best.get(name, score).run.objective * (1 + 1e-12):
                    best[name] = score
            for name, score in best.items():
                trial, result = trials[score.run.trial]
                if trial.evaluator.kind != "openvino" or "choice" in trial.evaluator.options:
                    raise InputError(f"method {method!r} was not measured by an OpenVINO host, so it has no outputs; leave it out")
                host = hosts.setdefault(trial.evaluator.content_hash, build_evaluator(trial.evaluator))
                placed = next(p for p in result.problems if p.problem_hash == score.problem.content_hash)
                found.setdefault(name, {})[method] = host.outputs(score.problem, placement_array(placed))
    finally:
        close_evaluators(hosts.values())
    return found
