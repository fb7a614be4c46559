import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from envs.problem.errors import InputError
from orchestration.commands.submit import entrypoint, pack, packed_files
from orchestration.folder.ledger import results
from tests.orchestration.ray_cluster import ray_nodes


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    """What `submit` sets for its process is for that alone: another Ray that this one starts later has no token."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")


ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def project(tmp_path):
    for name in (".git/config", ".venv/lib.py", "code/a.py", "code/__pycache__/a.pyc", "data/big.bin", "sweep.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(200_000) if name.endswith("bin") else b"x")
    return tmp_path


def test_environments_history_and_what_is_excluded_are_not_sent(project):
    assert [str(p) for p in packed_files(project)] == ["code/a.py", "data/big.bin", "sweep.yaml"]
    assert [str(p) for p in packed_files(project, ["data"])] == ["code/a.py", "sweep.yaml"]
    assert [str(p) for p in packed_files(project, ["*.bin", "sweep.yaml"])] == ["code/a.py"]


def test_of_a_repository_what_git_ignores_is_not_sent(project):
    for path in (project / ".git").iterdir():
        path.unlink()
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    (project / ".gitignore").write_text("data/\n")
    subprocess.run(["git", "-C", str(project), "add", "code"], check=True)
    (project / "code" / "a.py").rename(project / "code" / "b.py")  # listed by git, but no longer there
    assert [str(p) for p in packed_files(project)] == [".gitignore", "code/b.py", "sweep.yaml"]


def test_an_upload_that_is_too_large_is_refused_before_it_is_sent(project, tmp_path):
    with pytest.raises(InputError, match=r"more than the 0 MiB .* Largest: data/big.bin \(0.2 MiB\)"):
        pack(project, tmp_path / "code.zip", limit=100_000)
    assert pack(project, tmp_path / "code.zip", ["data"], limit=100_000) < 2000


def test_a_sweep_that_would_not_be_sent_is_refused(project):
    with pytest.raises(InputError, match="lies outside"):
        entrypoint(Path("/elsewhere/sweep.yaml"), project, "/data")
    words = "python -m orchestration.cli.main run sweep.yaml --address auto --output /data --fresh"
    assert entrypoint(project / "sweep.yaml", project, "/data", ["--fresh"]) == words


def test_no_job_server_is_one_sentence(project, capsys):
    from orchestration.cli.main import main

    sweep = ROOT / "sweeps" / "quickstart.yaml"
    words = ["submit", str(sweep), "--output", "/data", "--working-dir", str(sweep.parent), "--address", "http://127.0.0.1:9"]
    assert main(words) == 2
    assert "the job server at 'http://127.0.0.1:9' did not take the job" in capsys.readouterr().err


SWEEP = """
sweep: sent
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 12}, seed: 0}}
methods: [random, heft]
seeds: [0, 1]
budget: 50
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_sweep_is_sent_to_a_cluster_and_runs_there_from_what_was_sent(tmp_path):
    """The code runs from the upload: a copy of it is changed, and the change shows in what the job prints."""
    copy = tmp_path / "copy"
    for room in ("envs", "methods", "orchestration"):
        shutil.copytree(ROOT / room, copy / room)
    text = (copy / "orchestration" / "driver" / "progress.py").read_text()
    (copy / "orchestration" / "driver" / "progress.py").write_text(text + "\nprint('this is the copy that was sent')\n")
    (copy / "sent.yaml").write_text(SWEEP)
    # One node: several on one machine unpack an upload into one folder, and the second takes it away from under the first.
    with ray_nodes(workers=0, cpus=2, dashboard=True) as nodes:
        command = [sys.executable, "-m", "orchestration.cli.main", "submit", "sent.yaml", "--address", nodes.dashboard]
        environment = {**os.environ, **nodes.environment, "PYTHONPATH": str(ROOT)}
        environment.pop("RAY_AUTH_MODE")  # set by the command itself
        done = subprocess.run(
            [*command, "--output", str(tmp_path / "out")],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "this is the copy that was sent" in done.stdout and "SUCCEEDED" in done.stdout
        wrong = subprocess.run(
            [*command, "--output", str(tmp_path / "out")], cwd=copy, env={**environment, "RAY_AUTH_TOKEN": "0" * 64},
            capture_output=True, text=True, timeout=500, check=False,
        )  # fmt: skip
        assert wrong.returncode == 2 and "did not take the job" in wrong.stderr and "token" in wrong.stderr
    assert sum(r.ok for r in results(tmp_path / "out" / "sent")) == 4
