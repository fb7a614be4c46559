"""The registry: every module right in ``methods/`` or ``methods/heuristics/`` is one method, named after its file, and so is every
folder there that holds a module of its own name. There is no list to keep.

Packages outside the tree add methods by the entry point group `GROUP` (``name = "package.module:Class"``).
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import numpy as np

import methods
from envs.problem.errors import InputError, nearest
from envs.problem.problem import Problem
from methods.contract.config import make_config
from methods.contract.method import Method

GROUP = "placewright.methods"
"""Entry points of this group name methods of other packages."""


def modules() -> dict[str, str]:
    """The module of every method of our own by name, without importing any: ``methods/rnn_placer.py`` is ``rnn-placer``."""
    return dict(_modules(tuple(methods.__path__)))


@cache
def _modules(paths: tuple[str, ...]) -> dict[str, str]:
    """Those in these folders, as they are when this is first asked: every trial asks, and short ones should not look at all files."""
    found = {}
    for package, folders in (("methods", paths), ("methods.heuristics", [str(Path(p, "heuristics")) for p in paths])):
        for m in pkgutil.iter_modules(folders):
            if not m.ispkg:
                found[m.name.replace("_", "-")] = f"{package}.{m.name}"
            elif any(Path(folder, m.name, f"{m.name}.py").is_file() for folder in folders):
                found[m.name.replace("_", "-")] = f"{package}.{m.name}.{m.name}"
    return dict(sorted(found.items()))


@cache
def outside() -> dict[str, EntryPoint]:
    """Methods of other packages by name, without importing any. What bears a name that is taken is refused with a warning."""
    own, found = modules(), dict[str, EntryPoint]()
    for entry in sorted(entry_points(group=GROUP), key=lambda e: (e.name, e.value)):
        if entry.name in own:
            _refuse(entry, f"placewright's own {own[entry.name]}")
        elif entry.name not in found:
            found[entry.name] = entry
        elif entry.value != found[entry.name].value:  # the same package may be found twice on the path
            _refuse(entry, _source(found[entry.name]))
    return found


def _refuse(entry: EntryPoint, holder: str) -> None:
    warnings.warn(
        f"method {entry.name!r} of {_source(entry)} is not used, since {holder} has that name; rename its entry point", stacklevel=4
    )


def _source(entry: EntryPoint) -> str:
    """The package that an entry point belongs to, and what it names."""
    return f"package {entry.dist.name if entry.dist else '?'!r} ({entry.value})"


def packages() -> list[str]:
    """Distributions that add methods."""
    return sorted({entry.dist.name for entry in outside().values() if entry.dist})


def names() -> list[str]:
    """Names of all methods, without importing any."""
    return sorted({**modules(), **outside()})


def method_class(name: str) -> type[Method]:
    """The class of the method called ``name``.

    Raises:
        InputError: naming the nearest known method if there is none, or the package if its method cannot be had.
    """
    own = modules()
    if name in own:
        return _defined_in(own[name])
    if name in outside():
        return _loaded(outside()[name])
    raise InputError(f"unknown method {name!r}{nearest(name, names())}")


@cache
def _defined_in(path: str) -> type[Method]:
    module = importlib.import_module(path)
    found = [c for _, c in inspect.getmembers(module, inspect.isclass) if issubclass(c, Method) and c.__module__ == module.__name__]
    if len(found) != 1:
        raise TypeError(f"module {module.__name__} must define exactly one Method, not {len(found)}")
    return found[0]


def _loaded(entry: EntryPoint) -> type[Method]:
    try:
        found = entry.load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"method {entry.name!r} of {_source(entry)} cannot be imported: {error}") from error
    if not (inspect.isclass(found) and issubclass(found, Method)):
        raise InputError(f"method {entry.name!r} of {_source(entry)} is no subclass of methods.contract.method.Method")
    return found


def configure(name: str, overrides: Mapping[str, Any]) -> Any:
    """The method's config with ``overrides``; InputError for unknown keys and wrong types."""
    return make_config(method_class(name).Config, overrides)


def build(name: str, overrides: Mapping[str, Any], problems: Sequence[Problem], seed: np.random.SeedSequence | int) -> Method:
    """A method ready to propose."""
    return method_class(name)(configure(name, overrides), problems, seed)
