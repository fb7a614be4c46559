"""A script for SLURM that starts a Ray of the job's nodes, runs a sweep there, and ends it. What a sweep is does not belong here."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from envs.problem.errors import InputError

AGAIN = {"hour": "now+1hour", "day": "now+1day", "week": "now+7days"}


@dataclass(frozen=True)
class SlurmJob:
    """What `script` asks SLURM for."""

    name: str
    nodes: int = 1
    cpus: int = 8
    """Of each node."""
    hours: float = 24.0
    account: str = ""
    after: tuple[str, ...] = ()
    """Numbers of jobs that must have succeeded before."""
    at: float = 0.0
    """Not before this time, seconds since 1970."""
    every: str = ""
    """``hour``, ``day`` or ``week``: the script submits itself again."""
    nice: int = 0
    """Lower goes first; less than 0 is for operators of the cluster."""


def script(job: SlurmJob, run: Sequence[str]) -> str:
    """The text of the script; ``run`` is the words of ``placewright run`` without an address.

    Raises:
        InputError: for what SLURM would not take.
    """
    if job.nodes < 1 or job.cpus < 1 or not 0 < job.hours <= 10_000:
        raise InputError(f"a job has at least one node and CPU and some hours, not {job.nodes}, {job.cpus} and {job.hours:g}")
    if wrong := next((number for number in job.after if not number.isdigit()), None):
        raise InputError(f"--after {wrong!r} is no number of a SLURM job; `squeue` shows them")
    minutes = max(1, round(job.hours * 60))
    options = [
        f"--job-name={shlex.quote(job.name)}", f"--nodes={job.nodes}", "--ntasks-per-node=1", f"--cpus-per-task={job.cpus}",
        f"--time={minutes // 1440}-{minutes // 60 % 24:02d}:{minutes % 60:02d}:00", "--requeue", "--signal=B:TERM@120",
        "--output=%x-%j.log", "--open-mode=append",
        *([f"--account={shlex.quote(job.account)}"] if job.account else []),
        *(["--dependency=afterok:" + ":".join(job.after)] if job.after else []),
        *([f"--begin={datetime.datetime.fromtimestamp(job.at):%Y-%m-%dT%H:%M:%S}"] if job.at else []),
        *([f"--nice={job.nice}"] if job.nice else []),
    ]  # fmt: skip
    again = f'sbatch --begin={AGAIN[job.every]} "$0"\n' if job.every else ""
    header = "\n".join(f"#SBATCH {option}" for option in options)
    return _TEXT.format(header=header, again=again, cpus=job.cpus, run=shlex.join(run))


_TEXT = """#!/bin/bash
{header}
# Two minutes before its time is over, or when a node is taken away, the sweep is stopped; the job is requeued and goes on where it was.
set -euo pipefail
{again}export RAY_AUTH_MODE=token RAY_AUTH_TOKEN="$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n')"
export RAY_USAGE_STATS_ENABLED=0 OMP_NUM_THREADS=1
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head=${{nodes[0]}}
port=$((20000 + SLURM_JOB_ID % 10000))
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \\
    ray start --head --node-ip-address="$head" --port="$port" --num-cpus={cpus} --include-dashboard=false --block &
sleep 20
if ((${{#nodes[@]}} > 1)); then
    srun --overlap --nodes=$((${{#nodes[@]}} - 1)) --ntasks-per-node=1 --exclude="$head" \\
        ray start --address="$head:$port" --num-cpus={cpus} --block &
    sleep 10
fi
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" {run} --address "$head:$port" &
driver=$!
trap 'kill -TERM "$driver"; wait "$driver" || true; scontrol requeue "$SLURM_JOB_ID"; exit 0' TERM
wait "$driver"
"""
