"""Whoever could reach a cluster without being meant to is named."""

import tempfile
from pathlib import Path

import pytest

from orchestration.driver.exposure import TOKEN, notes


@pytest.fixture
def token(monkeypatch):
    """A token of Ray's making, in a home folder that everybody may enter; pytest's own temporary folders are closed to others."""
    folder = tempfile.TemporaryDirectory()
    home = Path(folder.name)
    home.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    path = home / TOKEN
    path.parent.mkdir(mode=0o755)
    path.write_text("0" * 64)
    path.chmod(0o600)
    yield path
    folder.cleanup()


def test_ray_without_a_token_is_told_where_others_reach_it(token, monkeypatch):
    assert notes(["192.0.2.7", "127.0.0.1"]) == []
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    (note,) = notes(["127.0.0.1", "192.0.2.7"])
    assert "192.0.2.7" in note and "no token" in note and "RAY_AUTH_MODE" in note
    monkeypatch.delenv("RAY_AUTH_MODE")
    assert "no token" in notes(["head.example.org"])[0]
    assert notes(["127.0.0.1", "::1", "localhost"]) == []


def test_a_token_that_others_can_read_is_told(token, monkeypatch):
    token.chmod(0o644)
    assert notes(["192.0.2.7"]) == [f"other users of this machine can read {token}, and with it use Ray as this user; chmod 600 {token}"]
    token.parent.chmod(0o700)
    assert notes(["192.0.2.7"]) == [], "its folder keeps them out"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "1" * 64)
    token.parent.chmod(0o755)
    assert notes(["192.0.2.7"]) == [], "another token is in force"
