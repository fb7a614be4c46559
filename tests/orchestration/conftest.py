"""Shared fixtures of the tests of orchestration."""

from __future__ import annotations

from pathlib import Path

import pytest

import methods


@pytest.fixture
def toy_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the methods in ``toy_methods/`` known to the registry."""
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(Path(__file__).parent / "toy_methods")])
