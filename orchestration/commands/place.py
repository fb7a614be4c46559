"""Placing one model of a user: a single trial in this process, compared with every single device. Sweeps do not belong here."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from envs.problem.errors import InputError
from envs.problem.problem import UNITS, Problem, shown_in
from envs.simulators.bounds import lower_bound
from envs.simulators.fifo.evaluator import Simulator
from envs.sources.files import dump_problem, save
from methods.contract.registry import configure
from orchestration.analysis import schedule
from orchestration.analysis.quantity import percent, significant
from orchestration.analysis.schedule import why_not
from orchestration.analysis.table import Table, terminal
from orchestration.plots import placed_graph, timeline
from orchestration.rewards.evaluators import build_evaluator
from orchestration.specs.policies import Policy
from orchestration.specs.results import TrialResult, placement_array
from orchestration.specs.sources import DOCUMENTS, build_problem, costs_source, graph_source, network_source, own_network_name
from orchestration.specs.trial import Budget, EvaluatorSpec, FrozenDict, ProblemSpec, Trial
from orchestration.trials.run_trial import Silent, run_trial

MODEL_SUFFIXES = (".onnx", ".xml", *DOCUMENTS)


@dataclass(frozen=True)
class Placed:
    """What a search for one problem found, beside every single device and the bound."""

    problem: Problem
    method: str
    placement: np.ndarray
    """int16[V]."""
    makespan: float
    """Seconds."""
    objective: float
    """Seconds or joules."""
    lower_bound: float
    """In the problem's objective."""
    single: tuple[tuple[str, float | None, str], ...]
    """For every device: name, objective if all operations run there, and why they cannot if that is None."""
    evaluations: int
    wall_seconds: float
    report: Mapping[str, float] = field(default_factory=dict)
    """What the method itself says of its result."""
    kept: str = ""
    """The single device that is better than what the method found, and is kept instead; empty if none is."""
    found: float | None = None
    """Objective of what the method found, where a single device is kept."""
    files: tuple[Path, ...] = ()


def problem_spec(model: str, network: str | None = None, costs: str | None = None, objective: str | None = None) -> ProblemSpec:
    """The problem that the command line names.

    Args:
        model: an ONNX or OpenVINO IR file, a graph or problem of any format (`envs.sources.importing`), or the name of a known model.
        network: a known network or a JSON file; None keeps that of a whole problem.
        costs: a cost model; None is roofline for models and the file's own for JSON.
        objective: one of `envs.problem.problem.OBJECTIVES`; None is the file's own, or makespan.

    Raises:
        InputError: for unknown names, missing files, and a model without a network.
    """

    here, path = Path.cwd(), Path(model)
    is_json = path.suffix in DOCUMENTS
    if path.suffix not in MODEL_SUFFIXES and path.suffix and path.exists():
        raise InputError(f"{model} is no model that can be read; known endings are {', '.join(MODEL_SUFFIXES)}")
    if network is None and not is_json:
        raise InputError(f"model {model!r} says nothing about devices; give --network with a known network or a JSON file")
    own = network is None
    named = path.suffix not in MODEL_SUFFIXES
    graph = graph_source({"model": model} if named else {"problem" if own else "file": model}, here, here)
    if own:
        target, label = FrozenDict({"own": True}), own_network_name(graph)
    else:
        target = network_source({"file": network} if str(network).endswith(".json") else {"named": network}, here, here)
        label = Path(str(network)).stem if "file" in target else str(network)
    cost = costs_source(costs, here, here) if costs else FrozenDict({"kind": "own" if is_json else "roofline"})
    goal = objective or ("own" if own else "makespan")
    return ProblemSpec(graph, target, cost, goal, model if named else path.stem, label)


def place(
    spec: ProblemSpec,
    method: str = "local-search",
    settings: Mapping[str, Any] | None = None,
    budget: int = 2000,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> Placed:
    """Search for a placement as a trial of a sweep would (same seed, same result), and measure every single device beside it.

    Args:
        settings: the method's settings that differ from its defaults.
        budget: placements that may be evaluated.
        progress: told evaluations and best objective so far.

    Raises:
        InputError: for an unknown method or setting, a budget below 1, or a problem without any valid placement.
    """

    if budget < 1:
        raise InputError(f"a budget of {budget} evaluations finds nothing; give 1 or more")
    config = dataclasses.asdict(configure(method, settings or {}))
    # With the smaller batch a small budget still gives the method a few rounds in which to learn.
    batch = int(np.clip(budget // 8, 1, 64))
    trial = Trial(method, method, FrozenDict(config), (spec,), EvaluatorSpec(), Budget(budget), seed, batch=batch)
    return _placed(trial, run_trial(trial, build_evaluator(trial.evaluator), _Progress(progress) if progress else None))


def place_by_policy(spec: ProblemSpec, policy: Policy, seed: int = 0) -> Placed:
    """Place a problem zero-shot, as a zero-shot stage that starts from ``policy`` would, beside every single device.

    Raises:
        InputError: if the policy's method is unknown here or does not place zero-shot, or what it proposes cannot run.
    """
    trial = Trial(
        policy.method, policy.method, policy.config, (spec,), EvaluatorSpec(), Budget(1), seed, kind="zero-shot", parent=policy.digest
    )
    configure(policy.method, policy.config)
    return _placed(trial, run_trial(trial, build_evaluator(trial.evaluator), parent_policy=policy.state))


def _placed(trial: Trial, result: TrialResult) -> Placed:
    """What a trial on one problem found, beside single devices and bound; InputError if it found nothing that runs."""
    problem, best, method = build_problem(trial.problems[0]), result.problems[0], trial.method
    placement = placement_array(best)
    single = _single_devices(problem)
    if result.report.get("infeasible"):
        raise InputError(f"method {method!r} shows that nothing it may propose for {problem.name} fits the devices' memory")
    if placement is None or best.objective is None or best.seconds is None:
        outcomes = ", ".join(f"{n} {name}" for name, n in sorted(result.outcomes.items()))
        raise InputError(
            f"method {method!r} found no placement of {problem.name} that runs within {trial.budget.evaluations} evaluations ({outcomes}); "
            "raise --budget, try another --method, or give the devices more memory"
        )
    bound = max(lower_bound(problem), result.report.get("lower_bound", 0.0) if problem.objective != "energy" else 0.0)
    placed = Placed(
        problem, method, placement, best.seconds, best.objective, bound, single, result.evaluations, result.wall_seconds, result.report
    )
    return _never_worse(placed)


def _never_worse(placed: Placed) -> Placed:
    """The best single device instead of a placement that is worse."""
    able = [(value, d, name) for d, (name, value, _) in enumerate(placed.single) if value is not None]
    if not able or min(able)[0] >= placed.objective:
        return placed
    value, device, name = min(able)
    alone = np.full_like(placed.placement, device)
    seconds = float(Simulator().evaluate(placed.problem, alone[None, :]).seconds[0])
    return dataclasses.replace(placed, placement=alone, makespan=seconds, objective=value, kept=name, found=placed.objective)


def stem(name: str) -> str:
    """Of the files of a graph's placement."""
    return re.sub(r"[^\w.-]+", "-", name)


class _Progress(Silent):
    """Passes a running trial's state on to a function."""

    def __init__(self, tell: Callable[[int, float], None]) -> None:
        self.tell = tell

    def progress(self, state: Any) -> None:
        """Called by the runner after every update."""
        self.tell(state.evaluations, state.problems[0].objective)


def _single_devices(problem: Problem) -> tuple[tuple[str, float | None, str], ...]:

    everything = np.repeat(np.arange(problem.n_devices, dtype=np.int16)[:, None], problem.n_nodes, axis=1)
    result = Simulator().evaluate(problem, everything)
    return tuple(
        (name, float(result.objective[d]) if result.ok[d] else None, "" if result.ok[d] else why_not(problem, everything[d]))
        for d, name in enumerate(problem.network.names)
    )


def write(placed: Placed, folder: Path) -> Placed:
    """Write the placement (with its problem, so that ``placewright simulate`` can repeat it), timeline, trace and picture."""
    problem = placed.problem
    folder.mkdir(parents=True, exist_ok=True)
    begin = stem(problem.graph.name)
    title = f"{problem.name} {f'on {placed.kept} alone' if placed.kept else f'by {placed.method}'}, simulated"
    plan = schedule.simulate(problem, placed.placement)
    files = [folder / f"{begin}.placement.json"]
    save(dump_problem(problem, placed.placement[None, :]), files[0])
    bound = placed.lower_bound if problem.objective == "makespan" else None
    files.append(timeline.write_page(plan, folder / f"{begin}.timeline.html", title, bound))
    files.append(timeline.write_trace(plan, folder / f"{begin}.trace.json", title))
    files += placed_graph.draw(problem, placed.placement, folder / f"{begin}.graph", title)
    return dataclasses.replace(placed, files=tuple(files))


def to_json(placed: Placed) -> dict[str, Any]:
    """What came out, for programs: values in the unit that is named, the device of every node by name."""
    problem, devices = placed.problem, placed.problem.network.names
    return {
        "problem": problem.name,
        "problem_hash": problem.content_hash,
        "provenance": problem.graph.provenance,
        "method": placed.method,
        "objective_name": problem.objective,
        "unit": UNITS[problem.objective],
        "objective": placed.objective,
        "origin": "simulated",
        "kept": placed.kept or None,
        "found": placed.found,
        "bound": placed.lower_bound,
        "makespan": placed.makespan,
        "evaluations": placed.evaluations,
        "wall_seconds": placed.wall_seconds,
        "report": dict(placed.report),
        "single_devices": {name: value for name, value, _ in placed.single},
        "placement": dict(zip(problem.graph.names, (devices[d] for d in placed.placement), strict=True)),
        "files": [str(path) for path in placed.files],
    }


def summary(placed: Placed) -> str:
    """The times side by side, for a terminal: best first, then every device alone, then the bound."""

    scale, unit = shown_in(placed.problem.objective)
    problem = placed.problem
    counts = np.bincount(placed.placement, minlength=problem.n_devices)
    spread = ", ".join(f"{n} on {d}" for d, n in zip(placed.problem.network.names, counts, strict=True) if n)
    own = placed.objective if placed.found is None else placed.found
    slower = f"{own / placed.objective:.2f} × the time: {placed.kept} alone is kept instead" if placed.kept else ""
    rows = [(placed.method, significant(own * scale), percent(_over(own, placed.lower_bound)), slower)]
    for name, value, why in sorted(placed.single, key=lambda s: (s[1] is None, s[1] or 0.0)):
        if value is None:
            rows.append((f"{name} only", "–", "–", why))
        else:
            faster = f"{value / placed.objective:.2f} × the time" if placed.objective > 0 and name != placed.kept else ""
            faster = "kept" if name == placed.kept else faster
            rows.append((f"{name} only", significant(value * scale), percent(_over(value, placed.lower_bound)), faster))
    rows.append(("lower bound", significant(placed.lower_bound * scale), "", ""))
    table = Table(
        f"{placed.problem.name}: {placed.problem.n_nodes} operations, {placed.problem.graph.n_edges} edges; simulated",
        ("placement", unit, "above bound", ""),
        tuple(rows),
        (f"{spread}; {placed.evaluations:,} evaluations in {placed.wall_seconds:.1f} s; times of the graph: {problem.graph.provenance}",),
        footer=1,
    )
    return terminal([table])


def _over(value: float, bound: float) -> float:
    return value / bound - 1 if bound > 0 else float("nan")
