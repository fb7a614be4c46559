"""Passwords in URLs do not show: not in errors, not in files that others can read, not on command lines."""

import json

import pytest

from envs.problem.errors import InputError
from orchestration.cli.main import main
from orchestration.commands.submit import URI_VARIABLE, hidden_uri
from orchestration.folder.definition_copy import save_definition
from orchestration.folder.ledger import Ledger
from orchestration.specs.layout import STATE
from orchestration.specs.secrets import masked, resolved_uri
from orchestration.tracking.store_checks import check_uri, default_uri
from orchestration.tracking.tracker import Tracker, TrackingSpec
from tests.orchestration.sweeps_for_tests import SWEEP, small_sweep


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:SECRET@host/db", "postgresql://u:***@host/db"),
        ("postgresql+psycopg://u:SE@CR/ET@host:5432/db", "postgresql+psycopg://u:***@host:5432/db"),
        ("http://u:SECRET@host:5000", "http://u:***@host:5000"),
        ("https://SECRET@host", "https://***@host"),
        ("mysql://host/db?user=u&password=SECRET&x=1", "mysql://host/db?user=u&password=***&x=1"),
        ("cannot reach 'http://u:SECRET@host' (no route)", "cannot reach 'http://u:***@host' (no route)"),
        ("http://localhost:5000", "http://localhost:5000"),
        ("sqlite:////data/a@b.db", "sqlite:////data/a@b.db"),
        ("postgresql://u@host/db", "postgresql://u@host/db"),
    ],
)
def test_passwords_are_masked_and_nothing_else_is(url, shown):
    assert masked(url) == shown


@pytest.mark.parametrize(
    "uri", ["postgresql://u:SECRET@127.0.0.1:9/db", "http://u:SECRET@127.0.0.1:9", "odd://u:SECRET@host", "http://u:SECRET@h:0"]
)
def test_errors_do_not_quote_passwords(uri, tmp_path, capsys):
    with pytest.raises(InputError) as caught:
        check_uri(uri)
    assert "SECRET" not in str(caught.value) and "***" in str(caught.value)
    small_sweep(tmp_path)
    assert main(["run", str(tmp_path / "small.yaml"), "--local", "--output", str(tmp_path / "out"), "--tracking-uri", uri]) == 2
    said = capsys.readouterr()
    assert "SECRET" not in said.out + said.err and "***" in said.err
    assert "can see the password in --tracking-uri; write env:NAME or file:PATH instead" in said.err


def test_a_uri_may_come_from_the_environment_or_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("STORE", "http://u:SECRET@host")
    (tmp_path / "uri").write_text("http://u:SECRET@host\n")
    assert resolved_uri("env:STORE") == resolved_uri(f"file:{tmp_path}/uri") == "http://u:SECRET@host"
    assert resolved_uri("http://host") == "http://host"
    for wrong in ("env:NOT_THERE", f"file:{tmp_path}/not-there"):
        with pytest.raises(InputError, match="not"):
            resolved_uri(wrong)


def test_a_jobs_command_does_not_hold_the_password(tmp_path):
    (tmp_path / "uri").write_text("http://u:SECRET@host")
    assert (
        hidden_uri("http://u:SECRET@host")
        == hidden_uri(f"file:{tmp_path}/uri")
        == (f"env:{URI_VARIABLE}", {URI_VARIABLE: "http://u:SECRET@host"})
    )
    assert hidden_uri("http://host") == ("http://host", {}) and hidden_uri("env:X") == ("env:X", {}) and hidden_uri(None) == (None, {})


def test_a_definition_with_a_password_is_for_its_owner_alone(tmp_path):
    search = "stages: {tune: {search: {space: {batch: {int: [2, 9]}}, configurations: 2, storage: 'postgresql://u:SECRET@host/db'}}}\n"
    text = SWEEP.replace("[random, heft, local-search]", "[local-search]") + search
    secret = save_definition(tmp_path / "a", small_sweep(tmp_path, text))
    assert all(path.stat().st_mode & 0o077 == 0 for path in secret)
    plain = save_definition(tmp_path / "b", small_sweep(tmp_path))
    assert all(path.stat().st_mode & 0o044 for path in plain)


def test_the_note_of_the_tracker_holds_no_password(tmp_path, monkeypatch):
    Ledger(tmp_path).close()
    tracker = Tracker(TrackingSpec("http://u:SECRET@host", str(tmp_path), "s"))
    tracker._save_state()
    assert json.loads((tmp_path / STATE).read_text())["uri"] == "http://u:***@host"
    assert default_uri(tmp_path) == masked(default_uri(tmp_path))
