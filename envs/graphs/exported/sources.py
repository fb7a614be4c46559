"""Where torch programs come from: ``.pt2`` archives, a function of the user's that builds a module, and models known by name."""

from __future__ import annotations

import importlib
import re
import sys
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from envs.graphs import step_models, torch_capture
from envs.graphs.models.seeded import seeded
from envs.graphs.openvino_capture import first_line
from envs.problem.errors import InputError, nearest

Shapes = Mapping[str, Sequence[int]]
OWN: Mapping[str, tuple[str, Mapping[str, int], tuple[str, ...]]] = {
    "lstm": ("StackedLstm", {"depth": 4, "hidden": 512, "steps": 32, "batch": 32}, ("steps", "batch", "hidden")),
    "experts": ("DenseExperts", {"experts": 8, "hidden": 512, "batch": 16}, ("batch", "hidden")),
}
"""Further names: the definition in `envs.graphs.exported.models`, its sizes, and those that are the shape of its input."""


def program_names() -> list[str]:
    """Models known by name that can be exported."""
    return sorted({*OWN, *torch_capture.NAMED, *step_models.STEPS})


def is_program(source: str) -> bool:
    """Whether ``source`` reads as a torch program: a ``.pt2`` file or ``package.module:function``."""
    return source.endswith(".pt2") or (":" in source and not Path(source).exists())


def load_program(source: str, shapes: Shapes | None = None, options: Mapping[str, Any] | None = None) -> tuple[ExportedProgram, str]:
    """The program and a name for it.

    Args:
        source: a ``.pt2`` file, ``package.module:function`` of a function without arguments that returns a module and its example inputs (a
            tuple of tensors, or one), or a name (`program_names`).
        shapes: concrete shapes of inputs by name, where the program's own are dynamic or others are wanted.
        options: sizes of a model known by name.

    Raises:
        InputError: for what is missing, cannot be imported, built, run or exported.
    """
    if options and is_program(source):
        raise InputError(f"option {next(iter(options))!r} is for models known by name ({', '.join(program_names())})")
    if source.endswith(".pt2"):
        program, name = _archive(Path(source)), Path(source).stem
    elif is_program(source):
        program, name = exported(*_built(source)), source.rpartition(":")[2]
        name = source.partition(":")[0].rpartition(".")[2] if name in ("build", "make", "model", "main") else name
    else:
        program, name = exported(*_named(source, options or {})), source
    return (_reshaped(program, shapes, name) if shapes else program), name


def save_program(program: ExportedProgram, path: Path) -> None:
    """Write a ``.pt2`` archive that `load_program` reads; what torch has to say of views among the weights is for its own people."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, path)


def exported(module: nn.Module, inputs: tuple[Any, ...]) -> ExportedProgram:
    """``module`` in evaluation mode, exported on its example inputs.

    Raises:
        InputError: if it cannot run on them, or `torch.export` refuses it.
    """
    module.eval()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module(*inputs)  # first by itself: an error in the module reads better than one in its export
            return torch.export.export(module, inputs)
    except Exception as error:  # whatever the user's module raises
        raise InputError(f"torch module {type(module).__name__} cannot be exported: {first_line(error)}") from None


def _archive(path: Path) -> ExportedProgram:
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}; check the path")
    try:
        _refuse_pickles(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.load(path)
    except InputError:
        raise
    except Exception as error:  # whatever a damaged archive raises
        raise InputError(f"{str(path)!r} is no archive that torch.export.save wrote: {first_line(error)}") from None


def _refuse_pickles(path: Path) -> None:
    """Reading a pickle runs whatever it says, so an archive may hold plain tensors only."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if not any(name.endswith("/archive_format") for name in names):
            raise InputError(f"{str(path)!r} is no archive of today's torch.export.save; save it again with torch {torch.__version__}")
        for name in names:
            pickled = name.endswith(".json") and re.search(rb'"use_pickle"\s*:\s*true', archive.read(name))
            if pickled or "custom_obj_" in name or "opaque_obj_" in name:
                raise InputError(
                    f"{str(path)!r} holds pickled objects ({name}), which could run anything; export a module of plain tensors"
                )


def _built(source: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """The user's module and example inputs; their folder is the current one."""
    where, _, function = source.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        build = getattr(importlib.import_module(where), function)
    except ModuleNotFoundError as error:
        raise InputError(f"{source!r} cannot be imported: {error}; run in the folder that holds it, or put it on PYTHONPATH") from None
    except AttributeError:
        raise InputError(f"module {where!r} has no {function!r}; name a function that returns a module and its example inputs") from None
    try:
        found = build()
    except Exception as error:  # whatever the user's function raises
        raise InputError(f"{source!r} raised {type(error).__name__}: {first_line(error)}") from None
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], nn.Module)):
        raise InputError(f"{source!r} returned {type(found).__name__}; it must return a torch module and a tuple of example inputs")
    inputs = found[1]
    return found[0], (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)


def _named(name: str, options: Mapping[str, Any]) -> tuple[nn.Module, tuple[Tensor, ...]]:
    if name in OWN:
        definition, sizes, shape = OWN[name]
        if unknown := [k for k in options if k not in sizes]:
            raise InputError(f"model {name!r} has no option {unknown[0]!r}{nearest(unknown[0], sizes)}")
        size = {**sizes, **options}
        own = importlib.import_module("envs.graphs.exported.models")
        arguments = {k: v for k, v in size.items() if k not in shape or k == "hidden"}
        return seeded(lambda: getattr(own, definition)(**arguments)), (torch.randn([size[k] for k in shape]),)
    if name in torch_capture.NAMED:
        return torch_capture.build_named(name, torch_capture.resolve_options(name, options))
    if name in step_models.STEPS:
        return step_models.build_step(name, step_models.resolve_step(name, options))
    raise InputError(f"unknown model {name!r}{nearest(name, program_names())}; give a .pt2 file, package.module:function or a known name")


def _reshaped(program: ExportedProgram, shapes: Shapes, name: str) -> ExportedProgram:
    """The program for inputs of other shapes, exported again."""
    given, keywords = program.example_inputs or ((), {})
    names = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    flat, spec = torch.utils._pytree.tree_flatten((given, keywords))
    if unknown := [key for key in shapes if key not in names]:
        raise InputError(f"program {name!r} has no input {unknown[0]!r}{nearest(unknown[0], names)}; it has {', '.join(names)}")
    if not flat:
        raise InputError(f"program {name!r} was saved without example inputs, so it cannot be given other shapes; export it with those")
    made = [torch.ones(tuple(shapes[k]), dtype=x.dtype) if k in shapes else x for k, x in zip(names, flat, strict=True)]
    arguments, keywords = torch.utils._pytree.tree_unflatten(made, spec)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(program.module(), arguments, keywords)
    except Exception as error:  # sizes that do not fit raise whatever the operations raise
        raise InputError(f"program {name!r} does not take the shapes {dict(shapes)}: {first_line(error)}") from None
