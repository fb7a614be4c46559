"""The registry: every module right in ``methods/`` is one method, named after its file. There is no list to keep."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import methods
from envs.errors import InputError, nearest
from envs.problem import Problem
from methods.common.config import make_config
from methods.common.contract import Method


def names() -> list[str]:
    """Names of all methods, without importing any: ``methods/single_device.py`` is ``single-device``."""
    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(methods.__path__) if not m.ispkg)


def method_class(name: str) -> type[Method]:
    """The class of the method called ``name``; InputError naming the nearest known method if there is none."""
    if name not in names():
        raise InputError(f"unknown method {name!r}{nearest(name, names())}")
    module = importlib.import_module(f"methods.{name.replace('-', '_')}")
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
