"""The script for SLURM: what it asks for, and that a shell and Ray take it."""

import re
import subprocess
import time

import pytest
from ray.scripts.scripts import start

from envs.problem.errors import InputError
from orchestration.cli.main import main
from orchestration.queueing.slurm import SlurmJob, script
from tests.orchestration.sweeps_for_tests import small_sweep


def options(text):
    return dict(re.findall(r"^#SBATCH (--[\w-]+)=(.*)$", text, re.MULTILINE))


def test_a_script_asks_for_what_the_command_says(tmp_path, capsys):
    path = small_sweep(tmp_path).path
    file = tmp_path / "job.sh"
    words = ["--after", "17", "--after", "18", "--at", "2026-12-01T22:00", "--every", "week", "--user", "lab-a:2", "--priority", "-5"]
    words += ["--stages", "main"]
    assert main(["submit", str(path), "--output", "s3://bucket/lab", "--slurm", str(file), "--nodes", "3", "--hours", "30.5", *words]) == 0
    text = file.read_text()
    assert options(text) == {
        "--job-name": "small", "--nodes": "3", "--ntasks-per-node": "1", "--cpus-per-task": "8", "--time": "1-06:30:00",
        "--signal": "B:TERM@120", "--output": "%x-%j.log", "--open-mode": "append", "--account": "lab-a", "--dependency": "afterok:17:18",
        "--begin": "2026-12-01T22:00:00", "--nice": "5",
    }  # fmt: skip
    assert 'sbatch --begin=now+7days "$0"' in text and "--requeue" in text
    assert f"placewright run {path} --output s3://bucket/lab --stages main --user lab-a:2 --weight 1 --address" in text
    assert "give it to sbatch" in capsys.readouterr().out


def test_a_shell_and_ray_take_it(tmp_path):
    text = script(SlurmJob("it's", 2, 4), ["placewright", "run", "a sweep.yaml"])
    assert subprocess.run(["bash", "-n"], input=text.encode(), check=False).returncode == 0
    known = {name for option in start.params for name in option.opts}
    commands = [line for line in text.replace("\\\n", " ").splitlines() if "ray start" in line]
    used = [word.partition("=")[0] for line in commands for word in re.findall(r"--[\w-]+", line.partition("ray start")[2])]
    assert len(commands) == 2 and set(used) <= known


def test_the_script_runs_the_sweep_on_a_ray_of_the_job_s_nodes(tmp_path):
    """With stand-ins for SLURM's commands, which say how they were called."""
    calls = tmp_path / "calls"
    for name, body in (
        ("srun", f'echo "srun $*" >> {calls}'), ("sleep", ":"),
        ("scontrol", 'echo n1; echo n2; echo n3'), ("sbatch", f'echo "sbatch $*" >> {calls}'),
    ):  # fmt: skip
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job.sh").write_text(script(SlurmJob("s", 3, 4, every="day"), ["placewright", "run", "a sweep.yaml"]))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_ID": "12345"}
    subprocess.run(["bash", str(tmp_path / "job.sh")], env=environment, check=True)
    deadline = time.monotonic() + 20
    while len(lines := sorted(calls.read_text().splitlines())) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)  # the script does not wait for Ray's commands
    assert [line.split()[0] for line in lines] == ["sbatch", "srun", "srun", "srun"]
    assert any(line.endswith("placewright run a sweep.yaml --address n1:22345") for line in lines)
    assert any("--nodes=2" in line and "--exclude=n1" in line and "--address=n1:22345" in line for line in lines)
    assert any("--head --node-ip-address=n1 --port=22345" in line for line in lines)


@pytest.mark.parametrize(
    ("job", "what"), [(SlurmJob("a", after=("other",)), "'other' is no number"), (SlurmJob("a", nodes=0), "at least one node")]
)
def test_what_slurm_would_not_take_is_refused(job, what):
    with pytest.raises(InputError, match=what):
        script(job, ["placewright"])
