"""The front door of graph capture: files, torch modules and named models become ComputationGraphs, cached on disk by content.

Importing this module is cheap; torch, openvino and transformers are imported when a model has to be built.
"""

from __future__ import annotations

import importlib.util
import logging
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.graphs import openvino_capture, step_models, store, torch_capture
from envs.graphs.openvino_capture import InputShapes
from envs.problem.errors import InputError, nearest
from envs.problem.graph import ComputationGraph

if TYPE_CHECKING:
    import torch

SUFFIXES = (".xml", ".onnx")
_LOG = logging.getLogger(__name__)
"""Silent by itself; commands print what it says."""


def model_names() -> list[str]:
    """The models known by name, sorted."""
    return sorted({*torch_capture.NAMED, *step_models.STEPS, *light_models()})


@cache
def light_models() -> dict[str, Path]:
    """The convolutional networks without weights that the installed ``onnx`` package carries for its own tests, as ``light-resnet50``."""
    spec = importlib.util.find_spec("onnx")
    folders = [] if spec is None else spec.submodule_search_locations or []
    found = (path for folder in folders for path in sorted(Path(folder, "backend", "test", "data", "light").glob("light_*.onnx")))
    return {path.stem.replace("_", "-"): path for path in found}


def is_step(name: str, options: Mapping[str, Any]) -> bool:
    """Whether a model known by name is meant as a step of a torch module, and not as an OpenVINO model for inference."""
    return name in step_models.STEPS and (name not in torch_capture.NAMED or options.get("training", False) is not False)


def is_captured(source: str | Path, input_shapes: InputShapes | None = None, **options: Any) -> bool:
    """Whether the graph of a named model or a file is on disk already, so that `capture` only reads it; arguments as there."""
    if isinstance(source, str) and source in step_models.STEPS and is_step(source, options):
        return store.has_graph(step_models.graph_key(source, step_models.resolve_step(source, options)))
    key = resolve(source, None, input_shapes, options).key
    return key is not None and store.has_graph(store.graph_key(*key, True))


def resolve_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a model known by name, defaults filled in; InputError for unknown names and impossible values."""
    if name not in model_names():
        raise InputError(f"unknown model {name!r}{nearest(name, model_names())}")
    if name in light_models():
        if options:
            raise InputError(f"model {name!r} is a file of the onnx package and takes no options; remove {next(iter(options))!r}")
        return {}
    if is_step(name, options):
        return step_models.resolve_step(name, options)
    return torch_capture.resolve_options(name, {k: v for k, v in options.items() if k != "training"})


def capture(
    source: str | Path | torch.nn.Module,
    *,
    example_inputs: Sequence[torch.Tensor] | torch.Tensor | None = None,
    input_shapes: InputShapes | None = None,
    name: str | None = None,
    colocate_constants: bool = True,
    cache: bool = True,
    **options: Any,
) -> ComputationGraph:
    """The computation graph of a real model: operation types, output shapes and bytes, parameter bytes, FLOPs.

    Nodes are the layers of the model's OpenVINO IR (``openvino.save_model`` with its defaults; an IR file as it is), as in
    Table 1 of HSDAG. See ``openvino_capture`` for how sizes are counted.

    Args:
        source: a name (`model_names`), an OpenVINO IR (``.xml`` with its ``.bin``), an ONNX file, or a torch module.
        example_inputs: for a torch module, tensors it is traced with; their shapes are the graph's.
        input_shapes: for files with dynamic inputs, concrete shapes by input name or in order; the first dimension (batch)
            is 1 if not given.
        name: the graph's name; by default the model's, the file's stem, or the module's class.
        colocate_constants: keep weights with the one operation that reads them (a co-location group); a placement that splits
            them would send weights over a link at every inference, which no runtime does.
        cache: read and write the disk cache (`store.cache_directory`). Torch modules have no content to look up and are never cached.
        options: for named models: ``batch``, ``size`` (images), ``length`` (tokens, 128), ``attention`` (``sdpa``, ``eager``), and those of
            `envs.graphs.step_models`, whose graphs are traced operation by operation (``training: true`` for a whole training step).

    Raises:
        InputError: in one sentence, for anything that is missing, malformed or unsupported.
    """
    if isinstance(source, str) and source in step_models.STEPS and is_step(source, options):
        if input_shapes is not None or example_inputs is not None:
            raise InputError(f"model {source!r} takes its sizes as options ({', '.join(step_models.STEPS[source].sizes)})")
        resolved = step_models.resolve_step(source, options)
        with _told("" if cache and is_captured(source, **options) else source) as made:
            step = step_models.capture_named_step(source, resolved, cache)
            made.append(step)
        return replace(step, name=name or source, provenance="traced")
    model = resolve(source, example_inputs, input_shapes, options)
    key = None
    if cache and model.key is not None:
        key = store.graph_key(*model.key, colocate_constants)
        if (found := store.load_graph(key)) is not None:
            return replace(found, name=name or model.name, provenance="traced")
    with _told(model.name if key is not None else "") as made, written_ir(model) as path:
        graph = openvino_capture.graph_of_ir(path, model.shapes, name or model.name, colocate_constants)
        made.append(graph)
    if key is not None:
        store.save_graph(key, graph)
    return replace(graph, provenance="traced")


def beginning(name: str) -> str:
    """What is said as the capture of a model begins."""
    return f"capturing {name}, slow the first time: the model is built and converted. Its graph is kept in {store.cache_directory()}"


@contextmanager
def _told(name: str) -> Iterator[list[ComputationGraph]]:
    """Tell those who listen that a model is captured, which is slow, and how it went; nothing of one without a name."""
    begin, made = time.perf_counter(), list[ComputationGraph]()
    if name:
        _LOG.info("%s", beginning(name))
    yield made
    if name:
        _LOG.info("captured %s: %s operations in %.0f s", name, f"{made[0].n_nodes:,}", time.perf_counter() - begin)


@dataclass(frozen=True)
class ModelSource:
    """A model that is known to exist but has not been built."""

    name: str
    key: tuple[object, ...] | None
    """What identifies its content; None for a torch module."""
    shapes: InputShapes | None
    path: Path | None = None
    options: Mapping[str, Any] | None = None
    module: Any = None
    example_inputs: Any = None


def resolve(source: object, example_inputs: Any, input_shapes: InputShapes | None, options: Mapping[str, Any]) -> ModelSource:
    """Check what `capture` was given and identify the model's content, without building it."""
    if isinstance(source, str | Path) and example_inputs is not None:
        raise InputError(f"example_inputs belong to a torch module; {str(source)!r} is captured without")
    if isinstance(source, str) and source in step_models.STEPS and is_step(source, options):
        raise InputError(f"model {source!r} is known as a step of a torch module only, which OpenVINO does not run")
    if isinstance(source, str) and source in light_models() and not options:
        return _resolve_file(light_models()[source], input_shapes)
    if isinstance(source, str) and source in torch_capture.NAMED:
        if input_shapes is not None:
            sizes = ", ".join(torch_capture.NAMED[source].sizes)
            raise InputError(f"model {source!r} takes its sizes as options ({sizes}), not as input_shapes")
        resolved = torch_capture.resolve_options(source, options)
        shapes = torch_capture.named_input_shapes(source, resolved)
        return ModelSource(source, ("named", source, tuple(sorted(resolved.items()))), shapes, options=resolved)
    if options:
        raise InputError(f"option {next(iter(options))!r} is for models known by name ({', '.join(model_names())})")
    if isinstance(source, str | Path):
        return _resolve_file(Path(source), input_shapes)
    if not (hasattr(source, "forward") and hasattr(source, "eval")):
        raise InputError(f"cannot capture {source!r}; give the name of a model, a file ending in .xml or .onnx, or a torch module")
    if example_inputs is None:
        raise InputError(f"torch module {type(source).__name__} needs example_inputs (tensors it can be traced with)")
    tensors = [example_inputs] if hasattr(example_inputs, "shape") else list(example_inputs)
    given = input_shapes if input_shapes is not None else [tuple(t.shape) for t in tensors]
    return ModelSource(type(source).__name__, None, given, module=source, example_inputs=tensors)


def _resolve_file(path: Path, input_shapes: InputShapes | None) -> ModelSource:
    if path.suffix not in SUFFIXES:
        if path.suffix:
            raise InputError(f"cannot capture {str(path)!r}; a model file ends in .xml (OpenVINO IR) or .onnx")
        raise InputError(f"unknown model {str(path)!r}{nearest(str(path), model_names())}")
    if not path.is_file():
        raise InputError(f"there is no model file {str(path)!r}; check the path")
    beside = [path.with_suffix(".bin")] if path.suffix == ".xml" else openvino_capture.external_files(path)
    content = store.file_hash(path, *(p for p in beside if p.is_file()))
    if input_shapes is None:
        given: object = None
    elif isinstance(input_shapes, Mapping):
        given = tuple(sorted((k, tuple(v)) for k, v in input_shapes.items()))
    else:
        given = tuple(map(tuple, input_shapes))
    return ModelSource(path.stem, ("file", path.suffix, content, given), input_shapes, path=path)


@contextmanager
def written_ir(model: ModelSource) -> Iterator[Path]:
    """The model as an IR file: its own, or one that exists as long as the context."""
    if model.path is not None and model.path.suffix == ".xml":
        yield model.path
        return
    with tempfile.TemporaryDirectory(prefix="placewright-") as folder:
        if model.path is not None:
            converted = openvino_capture.convert_onnx(model.path)
        elif model.module is not None:
            converted = torch_capture.convert_module(model.module, model.example_inputs)
        else:
            converted = torch_capture.convert_named(model.name, model.options or {})
        yield openvino_capture.save_ir(converted, Path(folder))
