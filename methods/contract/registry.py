"""The registry: every module right in ``methods/`` or ``methods/heuristics/`` is one method, named after its file, and so is every
folder there that holds a module of its own name. There is no list to keep."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import methods
from envs.problem.errors import InputError, nearest
from envs.problem.problem import Problem
from methods.contract.config import make_config
from methods.contract.method import Method


def modules() -> dict[str, str]:
    """The module of every method by the method's name, without importing any: ``methods/rnn_placer.py`` is ``rnn-placer``."""
    found = {}
    for package, folders in (("methods", methods.__path__), ("methods.heuristics", [str(Path(p, "heuristics")) for p in methods.__path__])):
        for m in pkgutil.iter_modules(folders):
            if not m.ispkg:
                found[m.name.replace("_", "-")] = f"{package}.{m.name}"
            elif any(Path(folder, m.name, f"{m.name}.py").is_file() for folder in folders):
                found[m.name.replace("_", "-")] = f"{package}.{m.name}.{m.name}"
    return dict(sorted(found.items()))


def names() -> list[str]:
    """Names of all methods, without importing any."""
    return list(modules())


def source_file(name: str) -> Path:
    """The file in which a method is defined; InputError naming the nearest known method if there is none."""
    spec = importlib.util.find_spec(_module(name))
    assert spec is not None and spec.origin is not None
    return Path(spec.origin)


def _module(name: str) -> str:
    known = modules()
    if name not in known:
        raise InputError(f"unknown method {name!r}{nearest(name, known)}")
    return known[name]


def method_class(name: str) -> type[Method]:
    """The class of the method called ``name``; InputError naming the nearest known method if there is none."""
    module = importlib.import_module(_module(name))
    found = [c for _, c in inspect.getmembers(module, inspect.isclass) if issubclass(c, Method) and c.__module__ == module.__name__]
    if len(found) != 1:
        raise TypeError(f"module {module.__name__} must define exactly one Method, not {len(found)}")
    return found[0]


def configure(name: str, overrides: Mapping[str, Any]) -> Any:
    """The method's config with ``overrides``; InputError for unknown keys and wrong types."""
    return make_config(method_class(name).Config, overrides)


def build(name: str, overrides: Mapping[str, Any], problems: Sequence[Problem], seed: np.random.SeedSequence | int) -> Method:
    """A method ready to propose."""
    return method_class(name)(configure(name, overrides), problems, seed)
