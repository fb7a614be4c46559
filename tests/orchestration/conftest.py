"""Shared fixtures of the tests of orchestration."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import methods


@pytest.fixture
def toy_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the methods in ``toy_methods/`` known to the registry."""
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(Path(__file__).parent / "toy_methods")])


@pytest.fixture(scope="session")
def ray_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Ray of two CPUs for all tests that need one; the module ``ray``."""
    import ray

    from orchestration.driver.ray_start import start_ray
    from orchestration.rewards.cluster_service import STORE_VARIABLE

    os.environ[STORE_VARIABLE] = str(tmp_path_factory.mktemp("measurements"))
    started = start_ray(None, 2)
    yield ray
    if started:
        ray.shutdown()
