"""Placewright from Python: problems, placements, methods and sweeps, as the commands have them.

Everything here is stable: names and parameters are pinned by a test. The rooms behind it (`envs`, `methods`, `orchestration`) may change.
Importing this is cheap; what a function needs is imported when it is called. Times are in seconds, energies in joules; bad input raises
`InputError` with one sentence that says what is wrong and what helps. The same seed gives the same result as on the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from envs.problem.errors import InputError
    from envs.problem.graph import ComputationGraph
    from envs.problem.measurement import Measurements
    from envs.problem.network import DeviceNetwork
    from envs.problem.problem import Problem
    from orchestration.analysis.comparison import Comparison
    from orchestration.analysis.load import SweepRecord
    from orchestration.commands.place import Placed
    from orchestration.specs.trial import ProblemSpec

_TYPES = {
    "ComputationGraph": "envs.problem.graph",
    "DeviceNetwork": "envs.problem.network",
    "InputError": "envs.problem.errors",
    "Measurements": "envs.problem.measurement",
    "Placed": "orchestration.commands.place",
    "Problem": "envs.problem.problem",
}
"""Types of the rooms below, by the module that they are fetched from when they are first asked for."""

__all__ = [
    "ComputationGraph", "DeviceNetwork", "InputError", "Measurements", "Placed", "Policy", "Problem", "SweepResults",
    "assignment", "load_placements", "load_policy", "load_problem", "load_sweep", "measure", "methods", "models", "networks", "place",
    "run_sweep", "save_placements", "save_timeline", "simulate",
]  # fmt: skip

_SPECS: WeakKeyDictionary[Problem, ProblemSpec] = WeakKeyDictionary()
"""How each problem that `load_problem` made was described: what a search's random numbers derive from."""


def __getattr__(name: str) -> Any:
    if name in _TYPES:
        return getattr(import_module(_TYPES[name]), name)
    raise AttributeError(f"module 'placewright' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


# --- problems and placements -----------------------------------------------------------------------------------------


def methods() -> list[str]:
    """Names of all methods; ``placewright methods`` tells their settings."""
    from methods.contract.registry import names

    return names()


def models() -> list[str]:
    """Names of all models that can be captured."""
    from envs.graphs.capture import model_names

    return model_names()


def networks() -> list[str]:
    """Names of all known networks of devices."""
    from envs.networks.named import names

    return names()


def load_problem(
    model: str | Path | Mapping[str, Any],
    network: str | Path | Mapping[str, Any] | None = None,
    *,
    costs: str | Mapping[str, Any] | None = None,
    objective: str | None = None,
) -> Problem:
    """A graph of operations on a network of devices.

    Args:
        model: a known model's name (`models`), an ONNX or OpenVINO IR file, a JSON or STG file of a graph or of a whole problem, or a graph
            as a sweep says it, e.g. ``{"synthetic": {"tasks": 40}, "seed": 0}``.
        network: a known network's name (`networks`), a JSON file, or a network as a sweep says it; None keeps that of a whole problem.
        costs: how long operations take: ``"linear"``, ``"roofline"``, ``"profiled"``, or a mapping with ``kind`` and options. By default
            roofline for models, linear for synthetic graphs, and a file's own.
        objective: ``"makespan"`` (s), ``"energy"`` (J) or ``"throughput"`` (the period of a pipeline, s); by default
            makespan, or a file's own.

    Raises:
        InputError: for unknown names, files that cannot be read, and operations that no device can run.
    """
    from envs.problem.errors import InputError
    from orchestration.commands.place import problem_spec
    from orchestration.specs.canonical import FrozenDict
    from orchestration.specs.sources import LINEAR, build_problem, costs_source, graph_source, network_source
    from orchestration.specs.trial import ProblemSpec

    if isinstance(model, Mapping) or isinstance(network, Mapping) or isinstance(costs, Mapping):
        here = Path.cwd()
        graph = graph_source(model if isinstance(model, Mapping) else {_kind(model, "model"): str(model)}, here, here)
        own = network is None
        if own and not {"problem", "fusion"} & set(graph):
            raise InputError(f"graph {dict(graph)} says nothing about devices; give a network: a known name, a file or a mapping")
        devices = network if isinstance(network, Mapping) else {_kind(network, "named"): str(network)}
        target = FrozenDict({"own": True}) if own else network_source(devices, here, here)
        standard = "own" if own else "linear" if any(kind in graph for kind in LINEAR) else "roofline"
        goal = objective or ("own" if own else "makespan")
        cost = costs_source(costs, here, here) if costs else FrozenDict({"kind": standard})
        spec = ProblemSpec(graph, target, cost, goal, _label(model), _label(network))
    else:
        spec = problem_spec(str(model), None if network is None else str(network), costs, objective)
    problem = build_problem(spec)
    _SPECS[problem] = spec
    return problem


def _kind(source: str | Path | None, named: str) -> str:
    """Whether a word means a file or a name."""
    return "file" if Path(str(source)).suffix in (".json", ".stg", ".onnx", ".xml") else named


def _label(source: str | Path | Mapping[str, Any] | None) -> str:
    """A name for people: ``mlp`` for ``mlp.onnx``, ``synthetic/1`` for a generated graph of seed 1."""
    if isinstance(source, Mapping):
        kind, value = next(iter(source.items()), ("unnamed", None))
        return _label(value) if isinstance(value, str) else f"{kind}/{source.get('seed', 0)}"
    return "own" if source is None else Path(str(source)).stem


def assignment(problem: Problem, placement: Sequence[int] | np.ndarray) -> dict[str, str]:
    """The device of every operation, by name.

    Args:
        placement: device indices ``[V]``.
    """
    from envs.sources.files import dump_placements

    (found,) = dump_placements(problem, _rows(problem, placement))
    return found


def _rows(problem: Problem, placements: Any) -> np.ndarray:
    """Placements int16[B, V] in any of the forms that the public functions take."""
    import numpy as np

    from envs.problem.errors import InputError
    from envs.sources.files import load_placements as read

    if isinstance(placements, Mapping):
        return read([placements], problem)
    if isinstance(placements, Sequence) and placements and isinstance(placements[0], Mapping):
        return read(placements, problem)
    rows = np.atleast_2d(np.asarray(placements))
    if rows.shape[-1] != problem.n_nodes or rows.ndim != 2 or not np.issubdtype(rows.dtype, np.integer):
        raise InputError(
            f"placements of {problem.name} are whole numbers [V] or [B, V] with V = {problem.n_nodes}, or mappings from operation to "
            f"device; these are {rows.dtype} of shape {np.shape(placements)}"
        )
    return rows.astype(np.int16)


def simulate(problem: Problem, placements: Any, *, noise: float = 0.0, seed: int = 0, trace: bool = False) -> Measurements:
    """Simulated times of placements, on the simulator that sweeps use by default.

    Args:
        placements: device indices ``[V]`` or ``[B, V]``, or a mapping from operation to device, or several.
        noise: σ of the simulator's noise, in [0, 1).
        trace: also say when every operation starts and finishes.

    Returns:
        Of B placements: ``seconds`` float64[B] (the makespan; NaN where it cannot run), ``objective`` float64[B], ``ok`` bool[B], …
    """
    from envs.simulators.fifo.evaluator import Simulator

    return Simulator(noise=noise).evaluate(problem, _rows(problem, placements), seed, trace=trace)


def measure(problem: Problem, placements: Any, evaluator: str | Mapping[str, Any], *, seed: int = 0, trace: bool = False) -> Measurements:
    """Times of placements by any evaluator, also one that measures on this machine's devices.

    Args:
        placements: as in `simulate`.
        evaluator: its kind, or a mapping with ``kind`` and options, as under ``evaluator`` in a sweep.

    Raises:
        InputError: for an unknown evaluator or option, or a device that this machine does not have.
    """
    from orchestration.rewards.evaluators import build_evaluator
    from orchestration.specs.canonical import FrozenDict
    from orchestration.specs.trial import EvaluatorSpec

    options = {"kind": evaluator} if isinstance(evaluator, str) else dict(evaluator)
    built = build_evaluator(EvaluatorSpec(options.pop("kind", "simulator"), FrozenDict(options)))
    try:
        return built.evaluate(problem, _rows(problem, placements), seed, trace=trace)
    finally:
        built.close()


def place(
    problem: Problem,
    method: str = "local-search",
    *,
    settings: Mapping[str, Any] | None = None,
    budget: int = 2000,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> Placed:
    """Search for a placement on the simulator, as ``placewright place`` does.

    Args:
        problem: from `load_problem`, or a `Problem` of your own.
        method: one of `methods`.
        settings: the method's settings that differ from its defaults.
        budget: placements that may be evaluated.
        progress: called with the evaluations and the best objective so far.

    Returns:
        ``placement`` int16[V], ``makespan`` and ``objective``, ``lower_bound``, and every single device beside them.

    Raises:
        InputError: for an unknown method or setting, or if no placement that can run was found.
    """
    import dataclasses
    from tempfile import TemporaryDirectory

    from orchestration.commands.place import place as search
    from orchestration.commands.place import problem_spec

    if problem in _SPECS:
        return search(_SPECS[problem], method, settings, budget, seed, progress)
    with TemporaryDirectory() as folder:
        save_placements(problem, None, Path(folder) / "problem.json")
        placed = search(problem_spec(str(Path(folder) / "problem.json")), method, settings, budget, seed, progress)
    return dataclasses.replace(placed, problem=problem)


def save_placements(problem: Problem, placements: Any, path: str | Path) -> Path:
    """Write a problem with its placements (or none, if None) as JSON, which `load_placements` and ``placewright simulate`` read."""
    from envs.sources.files import dump_problem, save

    save(dump_problem(problem, None if placements is None else _rows(problem, placements)), path)
    return Path(path)


def load_placements(path: str | Path, problem: Problem | None = None) -> tuple[Problem, np.ndarray]:
    """The problem of a file and its placements, int16[B, V].

    Args:
        problem: take the placements as ones of this problem instead of the file's own.
    """
    from envs.sources.importing import load_placements as read

    found = load_problem(path) if problem is None else problem
    return found, read(path, found)


def save_timeline(problem: Problem, placement: Any, path: str | Path) -> Path:
    """Simulate a placement and draw it: an HTML page with a row a device and a link, which needs nothing else."""
    from orchestration.analysis import schedule
    from orchestration.plots import timeline

    return timeline.write_page(schedule.simulate(problem, _rows(problem, placement)[0]), Path(path))


# --- sweeps ----------------------------------------------------------------------------------------------------------


def run_sweep(
    sweep: str | Path | Mapping[str, Any],
    *,
    output: str | Path = ".placewright",
    local: bool = False,
    cpus: int | None = None,
    fresh: bool = False,
    quiet: bool = False,
) -> SweepResults:
    """Run everything of a sweep that has not run yet, as ``placewright run`` does, and read what came out.

    Args:
        sweep: its YAML file, or what such a file says as a mapping; files in it are then found from the current folder.
        output: the folder of all sweeps.
        local: run in this process, without Ray.
        cpus: CPUs of the Ray that is started here; by default all.
        fresh: run everything again; what there was is set aside.
        quiet: print nothing.

    Raises:
        InputError: naming everything that is wrong with the definition.
    """
    import contextlib
    import io
    import json
    from tempfile import NamedTemporaryFile

    from rich.console import Console

    from orchestration.definition.sweep import load_sweep as read
    from orchestration.driver.run_sweep import run_sweep as run

    if isinstance(sweep, Mapping):  # JSON is YAML
        with NamedTemporaryFile("w", prefix="sweep-", suffix=".yaml", dir=Path.cwd(), encoding="utf-8") as file:
            json.dump(dict(sweep), file, indent=1)
            file.flush()
            definition = read(file.name)
    else:
        definition = read(sweep)
    definition.check_problems()
    with contextlib.redirect_stdout(io.StringIO()) if quiet else contextlib.nullcontext():
        console = Console(quiet=True) if quiet else None
        done = run(definition, local=local, fresh=fresh, output=Path(output), cpus=cpus, console=console)
    return SweepResults(done.folder)


def load_sweep(sweep: str | Path, output: str | Path = ".placewright") -> SweepResults:
    """What a sweep that ran left behind.

    Args:
        sweep: its name, its folder or its YAML file.
        output: the folder of all sweeps.
    """
    from orchestration.analysis.load import sweep_folder

    return SweepResults(sweep_folder(str(sweep), Path(output)))


@dataclass(frozen=True)
class SweepResults:
    """The results of a sweep, read from its folder. A notebook shows its leaderboard."""

    folder: Path
    """Ledger, report and learned policies lie there."""

    @cached_property
    def _record(self) -> SweepRecord:
        from orchestration.analysis.load import load_sweep_record

        return load_sweep_record(self.folder)

    @cached_property
    def _comparison(self) -> Comparison:
        from orchestration.analysis.comparison import compare

        return compare(self._record.collection, self._record.known_baseline)

    @property
    def page(self) -> Path:
        """The page with leaderboard, curves and timelines, for a browser."""
        from orchestration.specs.layout import PAGE

        return self.folder / PAGE

    def leaderboard(self) -> pd.DataFrame:
        """A row a method and stage, from best to worst: IQM of objective / best known with its 95 % interval, gaps, evaluations, …"""
        from orchestration.report.tables import leaderboard_frame

        return leaderboard_frame(self._comparison)

    def runs(self) -> pd.DataFrame:
        """A row a run: stage, method, problem, seed, objective (s or J, as ``unit`` says), score (over best known), evaluations, …"""
        from orchestration.report.tables import runs_frame

        return runs_frame(self._comparison).infer_objects()

    def curves(self) -> pd.DataFrame:
        """A row a point of a search curve: stage, method, problem, seed, evaluations, and the best objective so far."""
        import pandas as pd

        collection = self._record.collection
        names = {p.key: p.name for p in collection.problems}
        lines = [(r.stage, r.method, names[r.problem], r.seed, c.evaluations, c.best) for r in collection.runs for c in r.curve]
        return pd.DataFrame(lines, columns=["stage", "method", "problem", "seed", "evaluations", "best"])

    def best(self, problem: str) -> tuple[Problem, np.ndarray]:
        """A problem by its name in `runs`, and the best placement found for it by any method, int16[V].

        Raises:
            InputError: for an unknown name, or if nothing found a placement.
        """
        import numpy as np

        from envs.problem.errors import InputError, nearest
        from orchestration.report.finish import best_run
        from orchestration.specs.sources import recorded_problem

        known = {p.name: p for p in self._comparison.problems if np.isfinite(p.best)}
        if problem not in known:
            raise InputError(f"no placement of problem {problem!r} was found{nearest(problem, known)}")
        info = known[problem]
        spec = self._record.specs[info.problem_hash]
        found = recorded_problem(spec, info.problem_hash)
        _SPECS[found] = spec
        return found, np.array(best_run(self._record, info).placement, dtype=np.int16)

    def policy(self, method: str, stage: str | None = None, seed: int | None = None) -> Policy:
        """What a method learned; of several trials that of the first stage and seed.

        Args:
            method: its label in the sweep.

        Raises:
            InputError: if no such trial left a policy.
        """
        from envs.problem.errors import InputError
        from orchestration.specs.layout import POLICY, trial_folder

        left = [(t, path) for t, _ in self._record.ended.values() if (path := trial_folder(self.folder, t.content_hash) / POLICY).is_file()]
        fitting = [(t, p) for t, p in left if t.label == method and stage in (None, t.stage) and seed in (None, t.seed)]
        if not fitting:
            known = sorted({f"{t.label} of stage {t.stage}, seed {t.seed}" for t, _ in left})
            raise InputError(f"no policy of {method!r} in {self.folder}; there is {'; '.join(known[:10]) or 'none: nothing learned there'}")
        _, path = min(fitting, key=lambda found: (found[0].kind != "pretrain", found[0].stage, found[0].seed, found[0].content_hash))
        return load_policy(path)

    def _repr_html_(self) -> str:
        frame = self.leaderboard()
        html: str = frame.to_html(index=False, float_format=lambda x: f"{x:.4g}", na_rep="–")
        return f"<p><b>{self.folder.name}</b>: {self._record.collection.origin}</p>{html}"


@dataclass(frozen=True)
class Policy:
    """What a method learned in a trial."""

    method: str
    """Name in `methods`."""
    settings: Mapping[str, Any]
    """The method's settings, all of them."""
    weights: Mapping[str, Any]
    """Nested mappings of arrays."""

    def place(self, problem: Problem, seed: int = 0) -> np.ndarray:
        """A placement of any problem, without evaluating one, int16[V].

        Raises:
            InputError: if the method needs evaluations to place.
        """
        from methods.contract.registry import build

        made = build(self.method, self.settings, [problem], seed)
        made.load_policy(dict(self.weights))
        return made.place(problem)


def load_policy(path: str | Path) -> Policy:
    """The policy of a trial: its file ``policy.safetensors``, or the folder ``trials/…`` of a sweep that it lies in.

    Raises:
        InputError: if there is none, it is damaged, or the sweep's ledger does not know the trial.
    """
    from envs.problem.errors import InputError
    from orchestration.folder.ledger import entries
    from orchestration.specs.layout import POLICY
    from orchestration.specs.state_files import load_state

    file = Path(path) / POLICY if Path(path).is_dir() else Path(path)
    weights, trial_name = load_state(file), file.resolve().parent.name
    for trial, _ in entries(file.resolve().parents[2]):
        if trial.content_hash.startswith(trial_name):
            return Policy(trial.method, trial.config, weights)
    raise InputError(f"the ledger in {file.resolve().parents[2]} knows no trial {trial_name[:12]}, so nothing says what made {file}")
