"""What a host that measures needs to know of a sweep's problems: the models behind their graphs, and what stands for their devices.

A graph's own file says it: a model's file is the model, and a problem that ``placewright calibrate`` wrote names the model and the devices
that it was measured with. What a sweep gives itself stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.graphs import capture, openvino_capture, store
from envs.problem.errors import InputError
from envs.sources import files
from orchestration.specs.canonical import FrozenDict
from orchestration.specs.sources import file_path, network_of

if TYPE_CHECKING:
    from orchestration.specs.trial import EvaluatorSpec, ProblemSpec

KINDS = ("openvino", "dataflow")
"""Evaluators whose options are completed."""
_MODELS = (".onnx", ".xml")


def is_incomplete(spec: EvaluatorSpec) -> bool:
    """Whether an evaluator is only known together with its problems."""
    return spec.kind in KINDS and "devices" not in spec.options


def completed(spec: EvaluatorSpec, problems: Sequence[ProblemSpec]) -> EvaluatorSpec:
    """``spec`` with the models and devices that it does not give itself.

    Raises:
        InputError: where nothing says which model a graph is of, or what stands for the networks' devices.
    """
    if spec.kind not in KINDS or not problems:
        return spec
    options: dict[str, Any] = dict(spec.options)
    runs = {p.graph_label: _runs(p, spec.kind) for p in problems}
    given = dict(options.get("models") or {})
    models = {p.graph_label: m for p in problems if p.graph_label not in given and (m := _model(p, spec.kind, runs[p.graph_label]))}
    if models:
        options["models"] = given | models
    if "devices" not in options:
        options = _agreed(runs.values()) | options
    if "devices" not in options:
        options |= _devices(spec.kind, problems, options)
    return spec if options == dict(spec.options) else type(spec)(spec.kind, FrozenDict(options))


def _runs(problem: ProblemSpec, kind: str) -> Mapping[str, Any]:
    """What a calibrated problem's file says of how it was measured; empty for everything else."""
    if "problem" not in problem.graph or not problem.graph["file"].endswith(".json"):
        return {}
    found = files.parse(file_path(problem.graph))
    runs = found.get("runs") if isinstance(found, dict) else None
    return runs if isinstance(runs, dict) and runs.get("evaluator") == kind else {}


def _model(problem: ProblemSpec, kind: str, runs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The entry of a host's ``models`` for a problem's graph; None if it needs none."""
    source, label = problem.graph, problem.graph_label
    if runs:
        return _beside(runs["model"], file_path(source).parent)
    if kind == "dataflow":
        return None
    if "file" in source and source["file"].endswith(_MODELS):
        return {k: v for k, v in source.items() if v is not None}
    if "model" in source:
        default = label == source["model"] and dict(source) == {"model": label, **capture.resolve_options(label, {})}
        return None if default else dict(source)
    if label in capture.model_names():
        return None
    raise InputError(
        f"graph {label!r} is of no model that OpenVINO could run; give it by file: PATH.onnx, or add models: {{{label}: {{file: PATH}}}}"
    )


def _beside(model: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A file that a problem's file names, relative to the folder of that."""
    if "file" not in model:
        return dict(model)
    path = folder / model["file"]
    if not path.is_file():
        raise InputError(f"model file {str(path)!r} is gone, from which the problem beside it was calibrated; bring it back")
    return {**model, "file": path.name, "root": str(path.parent.resolve()), "sha256": store.file_hash(path)}


def _agreed(runs: Any) -> dict[str, Any]:
    """The options that calibrated problems were measured with, if all say the same."""
    found = [r["options"] for r in runs if r]
    return dict(found[0]) if found and len(found) == len(runs) and all(o == found[0] for o in found) else {}


def _devices(kind: str, problems: Sequence[ProblemSpec], options: Mapping[str, Any]) -> dict[str, Any]:
    """What stands for the networks' devices, by their kinds and names."""
    networks = {p.network_label: network_of(p) for p in problems}
    names = {n.names for n in networks.values()}
    if len(names) > 1:
        raise InputError(
            f"networks {' and '.join(networks)} have different devices; say what stands for each network's in its own evaluator"
        )
    (network,) = {n.names: n for n in networks.values()}.values()
    if kind == "dataflow":
        return _torch_devices(network.names)
    found = [_openvino_name(name, network.kinds[d] if network.kinds else "") for d, name in enumerate(network.names)]
    return _openvino_devices(network.names, found, options)


def _torch_devices(names: Sequence[str]) -> dict[str, Any]:
    if unknown := [n for n in names if n.partition(":")[0] not in ("cpu", "cuda") or ":" not in n]:
        raise InputError(f"nothing says what device {unknown[0]!r} is on this machine; give devices, as devices: [cpu:0, cpu:1]")
    return {"devices": list(names)}


def _openvino_name(name: str, kind: str) -> str:
    """OpenVINO's name for a device: its own if that is one (``GPU.1``), else the plugin of its kind or of the word that it begins with."""
    plugin, dot, number = name.upper().partition(".")
    if plugin in ("CPU", "GPU", "NPU") and (not dot or number.isdigit()):
        return name.upper()
    return next((p for p in ("CPU", "GPU", "NPU") if kind.upper() == p or name.upper().startswith(p)), "")


def _openvino_devices(names: Sequence[str], found: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Instances of the CPU plugin that share the cores evenly, in float32, and the plugins of the others."""
    available = openvino_capture.import_openvino().Core().available_devices
    for name, device in zip(names, found, strict=True):
        if not device or (device not in available and f"{device}.0" not in available and "host" not in options):
            raise InputError(
                f"nothing stands for device {name!r} here: OpenVINO finds {', '.join(available)}; "
                f"give devices, as devices: {{{name}: {{device: CPU, threads: 1}}}}"
            )
    cpus = found.count("CPU")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    one = {"device": "CPU", "precision": "f32"}
    cpu = one if cpus == 1 else {**one, "threads": max(1, cores // max(cpus, 1)), "pin": False}
    mode = {"mode": "overlapped"} if cpus > 1 and "mode" not in options else {}  # HETERO would forget the limits of threads
    return {"devices": {n: cpu if d == "CPU" else {"device": d} for n, d in zip(names, found, strict=True)}, **mode}
