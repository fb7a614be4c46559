"""From descriptions to problems: where graphs, networks and cost models come from.

A source is a mapping with one key that says its kind (``model``, ``file``, ``synthetic``, …) and that kind's options. `graph_source`
and `network_source` check one and complete it (a file gets its sha256) without building anything large; `build_problem`
builds it, once a process. Which sources a sweep names does not belong here.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from envs.graphs.capture import capture, is_captured, is_step, resolve_options
from envs.graphs.sharded import sharded
from envs.graphs.store import file_hash
from envs.graphs.traffic import RECORDED
from envs.networks.named import named_network
from envs.problem.cost_model import LinearCosts
from envs.problem.errors import InputError, nearest
from envs.problem.problem import Problem
from envs.sources.costs import make_costs
from envs.sources.files import load_network
from envs.sources.importing import check, load_problem, network_name
from envs.sources.sensor_fusion import FusionParameters, fusion_problem
from methods.contract.config import make_config
from orchestration.specs.canonical import FrozenDict

if TYPE_CHECKING:
    from envs.problem.cost_model import CostModel
    from envs.problem.graph import ComputationGraph
    from envs.problem.network import DeviceNetwork
    from envs.problem.problem import Problem
    from orchestration.specs.trial import ProblemSpec

Named = TypeVar("Named", "ComputationGraph", "DeviceNetwork")

GENERATED: Mapping[str, Mapping[str, tuple[str, str, str]]] = {
    "graph": {
        "synthetic": ("envs.graphs.synthetic", "TaskGraphParameters", "generate_graph"),
        "enas": ("envs.graphs.enas", "EnasParameters", "generate_enas"),
        "fusion": ("envs.sources.sensor_fusion", "FusionParameters", "fusion_problem"),
    },
    "network": {
        "synthetic": ("envs.networks.synthetic", "NetworkParameters", "generate_network"),
        "changing": ("envs.networks.changing", "ChangingParameters", "changing_network"),
    },
}
"""Sources that make a graph or a network from parameters and a seed: module, dataclass of parameters, function."""
GRAPH_KINDS = ("model", "file", *GENERATED["graph"], "sharded", "problem")
NETWORK_KINDS = ("named", "file", *GENERATED["network"])
WHOLE = ("problem", "fusion")
"""Graphs that come with their own network and costs."""
LINEAR = ("synthetic", "enas")
"""Graphs whose work is free of kinds and bytes, so that work / speed is what there is to say."""
DOCUMENTS = (".json", ".stg")
"""Endings of files that hold a graph or a whole problem as data: placewright's own and those that `envs.sources.importing` reads."""
_MOST_SHARDS = 1024
_ON_DISK: set[FrozenDict] = set()
"""Graphs that `must_be_captured` found on disk, so that it does not hash large files for every problem anew."""
_CACHED = 512
"""Problems, graphs and networks kept by a process."""


def _only(settings: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for key in settings:
        if key not in known:
            raise InputError(f"unknown key {key!r} of {what}{nearest(key, known)}")


def _file(name: Any, base: Path, root: Path, suffixes: tuple[str, ...]) -> dict[str, Any]:
    """A file by content: its sha256, and where it lies relative to ``root`` so that another machine's copy is found too."""
    if not isinstance(name, str):
        raise InputError(f"a file is given by its path, not {name!r}; write file: graphs/mine.json")
    path = (base / name).resolve()
    if path.suffix not in suffixes:
        raise InputError(f"file {name!r} has an unknown ending; known are {', '.join(suffixes)}")
    if not path.is_file():
        near = sorted(p.name for p in path.parent.glob(f"*{path.suffix}"))[:8] if path.parent.is_dir() else []
        raise InputError(f"file {name!r} does not exist{nearest(path.name, near) or '; check the path'}")

    inside = path.is_relative_to(root)
    return {"file": str(path.relative_to(root)) if inside else str(path), "root": str(root), "sha256": file_hash(path)}


def file_path(source: Mapping[str, Any]) -> Path:
    """Where a described file lies on this machine; InputError if it is gone or is another one now."""
    candidates = [Path(source["root"]) / source["file"], Path(source["file"])]
    path = next((p for p in candidates if p.is_file()), None)
    if path is None:
        raise InputError(f"file {candidates[0]} is gone; bring it back, or run the sweep where it is")
    if file_hash(path) != source["sha256"]:
        raise InputError(f"file {path} was changed since the sweep was read; run the sweep again")
    return path


def network_of(spec: ProblemSpec) -> DeviceNetwork:
    """The network of a problem, without its graph where that can be."""
    return build_problem(spec).network if "own" in spec.network or "fusion" in spec.graph else _network(spec.network)


def graph_source(settings: Mapping[str, Any], base: Path, root: Path) -> FrozenDict:
    """A checked and complete source of a graph.

    Args:
        settings: ``{model: NAME, **options}``, ``{file: PATH, input_shapes: …}``, ``{synthetic: {…}, seed: 0}``,
            ``{sharded: NAME, shards: n, **sizes}`` or ``{problem: PATH}`` (a whole problem in one JSON file).
        base: the folder that paths are relative to.
        root: the folder that paths are kept relative to.

    Raises:
        InputError: for unknown names, options and files.
    """
    if "model" in settings:
        return _model_source(settings)
    if "file" in settings:
        _only(settings, ("file", "input_shapes"), "a graph from a file")
        source = _file(settings["file"], base, root, (*DOCUMENTS, ".onnx", ".xml"))
        if source["file"].endswith(DOCUMENTS):
            if "input_shapes" in settings:
                raise InputError("input_shapes are for .onnx and .xml files; a JSON graph states its sizes, so remove them")

            check(file_path(source))
        return FrozenDict(source | ({"input_shapes": settings["input_shapes"]} if "input_shapes" in settings else {}))
    if "problem" in settings:
        _only(settings, ("problem",), "a problem from a file")
        source = _file(settings["problem"], base, root, DOCUMENTS)

        load_problem(file_path(source))
        return FrozenDict({"problem": True, **source})
    if "sharded" in settings:
        return _sharded_source(settings)
    return _generated_source(settings, "graph", base, root)


def _model_source(settings: Mapping[str, Any]) -> FrozenDict:
    name = str(settings["model"])
    return FrozenDict({"model": name, **resolve_options(name, _model_options(settings))})


def _sharded_source(settings: Mapping[str, Any]) -> FrozenDict:
    source = FrozenDict(settings)
    for key, value in settings.items():
        if key != "sharded" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise InputError(f"{key} of sharded graph {settings['sharded']!r} is {value!r}; it must be a positive whole number")
        if key == "shards" and value > _MOST_SHARDS:
            raise InputError(f"shards of sharded graph {settings['sharded']!r} is {value}; at most {_MOST_SHARDS} are built")
    _graph(source)  # A few hundred nodes: building it is the check.
    return source


def network_source(settings: Mapping[str, Any], base: Path, root: Path) -> FrozenDict:
    """A checked and complete source of a network: ``{named: NAME}``, ``{file: PATH}`` or ``{synthetic: {…}, seed: 0}``."""
    if "named" in settings:
        _only(settings, ("named",), "a named network")
        # With its content, so that a recalibrated network is another problem.
        return FrozenDict({**settings, "content": named_network(settings["named"]).content_hash})
    if "file" in settings:
        _only(settings, ("file",), "a network from a file")
        source = _file(settings["file"], base, root, (".json",))

        load_network(file_path(source))
        return FrozenDict(source)
    return _generated_source(settings, "network", base, root)


def _generated_source(settings: Mapping[str, Any], what: str, base: Path, root: Path) -> FrozenDict:
    """Parameters with their defaults filled in, so that a changed default is another problem."""
    kind = next((k for k in GENERATED[what] if k in settings), "synthetic")
    _only(settings, (kind, "seed"), f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} {what}")
    parameters = settings.get(kind)
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, Mapping):
        raise InputError(f"{kind} needs a mapping of parameters, not {parameters!r}; write {kind}: {{tasks: 40}}")
    seed = settings.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise InputError(f"seed of {'an' if kind[0] in 'aeiou' else 'a'} {kind} {what} is {seed!r}; it must be a whole number from 0")
    trace = {}
    if kind == "fusion":
        # By its content, as every file: another trace is another problem.
        trace = {"trace": _file(str(parameters.get("trace", RECORDED)), base, root, (".npz",))}
        parameters = {k: v for k, v in parameters.items() if k != "trace"}
    made = make_config(generator(what, kind)[0], parameters)
    if kind == "fusion" and seed >= made.cases:
        raise InputError(f"case {seed} is not among the {made.cases} cases of fusion; choose seeds from 0 to {made.cases - 1}")
    return FrozenDict({kind: dataclasses.asdict(made), "seed": seed, **trace})


def generator(what: str, kind: str) -> tuple[type, Any]:
    """The dataclass of parameters and the function of a generated source."""
    module, parameters, function = GENERATED[what][kind]
    loaded = importlib.import_module(module)
    return getattr(loaded, parameters), getattr(loaded, function)


def _generate(what: str, source: Mapping[str, Any]) -> Any:
    kind = next(k for k in GENERATED[what] if k in source)
    parameters, function = generator(what, kind)
    return function(make_config(parameters, source[kind]), source["seed"])


def costs_source(value: Any, base: Path, root: Path) -> FrozenDict:
    """A checked cost model: its name, or a mapping with ``kind`` and its options; folders as in `graph_source`."""
    spec = {"kind": value} if isinstance(value, str) else value
    if not isinstance(spec, Mapping) or not isinstance(spec.get("kind"), str):
        raise InputError(f"costs are a name or a mapping with kind, not {value!r}; write costs: roofline")
    if spec["kind"] == "table":
        raise InputError("a table of costs belongs into the problem's own file; give the graph as {problem: file.json}")

    if spec["kind"] == "profiled":
        table = spec.get("table")
        # Without a table the operations are measured when the problem is first loaded: too long for a check of the text.
        return FrozenDict({**spec, "table": _file(table, base, root, (".json",))} if table is not None else spec)
    make_costs(dict(spec))
    return FrozenDict(spec)


def own_network_name(source: Mapping[str, Any]) -> str:
    """The name of the network in a whole problem's file."""
    return "own" if "fusion" in source else network_name(file_path(source))


@lru_cache(maxsize=_CACHED)
def _graph(source: FrozenDict) -> ComputationGraph:
    if "model" in source:
        return capture(source["model"], **_model_options(source))
    if "sharded" in source:
        return sharded(source["sharded"], **{k: v for k, v in source.items() if k != "sharded"})
    if any(kind in source for kind in GENERATED["graph"]):
        return _generate("graph", source)

    return capture(file_path(source), input_shapes=source.get("input_shapes"))


@lru_cache(maxsize=_CACHED)
def _network(source: FrozenDict) -> DeviceNetwork:
    if "named" in source:
        return named_network(source["named"])
    if any(kind in source for kind in GENERATED["network"]):
        return _generate("network", source)

    return load_network(file_path(source))


@lru_cache(maxsize=_CACHED)
def _costs(spec: FrozenDict, graph: FrozenDict) -> CostModel | None:
    """The cost model; None for a file's own. Profiled costs without a table are measured on the graph's model."""
    if spec["kind"] == "own":
        return None

    settings = dict(spec)
    if settings["kind"] == "profiled" and "table" in settings:
        settings["table"] = file_path(settings["table"])
    elif settings["kind"] == "profiled" and "model" not in settings:
        options = _model_options(graph) if "model" in graph else {}
        settings["model"] = graph["model"] if "model" in graph else str(file_path(graph)) if "file" in graph else None
        settings["options"] = {**options, **settings.get("options", {})}
    return make_costs(settings)


def count_nodes(spec: ProblemSpec) -> int:
    """V of the problem's graph, without its network and costs; InputError as from `build_problem`."""
    if spec.graph.get("file", "").endswith(DOCUMENTS):
        return build_problem(spec).n_nodes
    return _graph(spec.graph).n_nodes


def _model_options(graph: Mapping[str, Any]) -> dict[str, Any]:
    """What a graph that is a known model says besides the model's name."""
    return {key: value for key, value in graph.items() if key != "model"}


def must_be_captured(spec: ProblemSpec) -> bool:
    """Whether the problem's graph is captured from a model and not on this machine's disk yet, so that building it takes long."""
    graph = spec.graph
    if graph in _ON_DISK:
        return False
    if "model" in graph:
        found = is_captured(graph["model"], **_model_options(graph))
    else:
        found = graph.get("file", DOCUMENTS[0]).endswith(DOCUMENTS) or is_captured(file_path(graph), input_shapes=graph.get("input_shapes"))
    if found:
        _ON_DISK.add(graph)
    return not found


def is_step_of_network(spec: ProblemSpec) -> bool:
    """Whether the problem's graph is a step of a named network, traced operation by operation: capturing it may take minutes."""
    return "model" in spec.graph and is_step(spec.graph["model"], _model_options(spec.graph))


def measures_costs(spec: ProblemSpec) -> bool:
    """Whether building the problem measures operations, because its costs are profiled and there is no table of them."""
    return spec.costs["kind"] == "profiled" and "table" not in spec.costs


def _named(thing: Named, name: str) -> Named:
    """A checked graph or network under another name; what it has computed so far is shared, for names count nowhere."""
    twin = copy.copy(thing)
    object.__setattr__(twin, "name", name)
    return twin


@lru_cache(maxsize=_CACHED)
def build_problem(spec: ProblemSpec) -> Problem:
    """The problem that ``spec`` describes, its graph and network named by their labels; built once a process.

    Raises:
        InputError: if a file is gone or changed, or the parts do not fit together.
    """
    if "fusion" in spec.graph:
        return _fusion(spec)
    costs = _costs(spec.costs, spec.graph if spec.costs["kind"] == "profiled" else FrozenDict())
    if not spec.graph.get("file", "").endswith(DOCUMENTS):
        graph, network = _named(_graph(spec.graph), spec.graph_label), _named(_network(spec.network), spec.network_label)
        return Problem(graph, network, costs or LinearCosts(), spec.objective)

    given = None if "own" in spec.network else _named(_network(spec.network), spec.network_label)
    problem = load_problem(file_path(spec.graph), given, costs)
    return Problem(
        _named(problem.graph, spec.graph_label),
        _named(problem.network, spec.network_label),
        problem.costs,
        problem.objective if spec.objective == "own" else spec.objective,
        problem.allowed,
    )


def recorded_problem(spec: ProblemSpec, problem_hash: str) -> Problem:
    """The problem that a result calls ``problem_hash``.

    Raises:
        InputError: if the description makes another problem today.
    """
    problem = build_problem(spec)
    if problem.content_hash != problem_hash:
        raise InputError(
            f"problem {spec.label} is not what it was when it was placed (graphs, networks or cost models have changed since); "
            "go back to the commit that its MLflow run names"
        )
    return problem


def _fusion(spec: ProblemSpec) -> Problem:
    objective = "makespan" if spec.objective == "own" else spec.objective
    parameters = make_config(FusionParameters, spec.graph["fusion"])
    made = fusion_problem(parameters, spec.graph["seed"], file_path(spec.graph["trace"]), objective)
    graph, network = dataclasses.replace(made.graph, name=spec.graph_label), dataclasses.replace(made.network, name=spec.network_label)
    return dataclasses.replace(made, graph=graph, network=network)
