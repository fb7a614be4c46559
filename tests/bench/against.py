"""CPU time of an evaluation, of learners and searches with all that they do, at this commit and at an earlier one, in turns on one core.

The earlier commit is checked out beside and runs this very file, so what stands in `once` must exist in both.
"""

from __future__ import annotations

import base64
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[2]
TURNS = 2
SKIPPED = 1
"""Rounds of a learner before the time counts: they load compiled code, and not every learner learns after its first."""


class Case(NamedTuple):
    """A method on a graph of its paper."""

    sweep: str
    label: str
    """Of the method in that sweep."""
    graph: str
    stage: str
    rounds: int
    """Of proposing, measuring and learning."""
    size: int
    """Placements in a round."""
    settings: dict[str, Any]
    """Whose defaults were others once."""
    whole: bool = False
    """The time of a whole trial, compiled code loaded and simulator included, instead of what is between a learner's rounds."""


CASES = (
    Case("hsdag/table2", "hsdag", "bert-base", "placements", 8, 20, {"levels": 0}),
    Case("hsdag/table2", "rnn", "bert-base", "rnn", 16, 4, {}),
    Case("mars/table2", "mars", "bert", "search", 4, 10, {}),
    Case("gdp/table1", "gdp", "gnmt-2", "two", 5, 10, {}),
    Case("gdp/table1", "hdp", "gnmt-2", "two", 12, 4, {}),
    Case("hsdag/table2", "local-search", "bert-base", "placements", 250, 20, {}, whole=True),
    Case("hsdag/table2", "local-search", "bert-base", "placements", 1000, 20, {}, whole=True),
    Case("hsdag/table2", "local-search", "inception-v3", "placements", 250, 20, {}, whole=True),
    Case("doppler/table2", "local-search", "llama-block", "classical", 79, 64, {}, whole=True),
    Case("doppler/table2", "placeto", "llama-block", "learned-baselines", 34, 64, {}, whole=True),
)


def once(case: Case) -> dict[str, Any]:
    """CPU milliseconds an evaluation of one short trial on one core, and all that it proposed."""
    import torch

    from envs.problem.measurement import Wrapper
    from orchestration.definition.sweep import load_sweep
    from orchestration.rewards.evaluators import build_evaluator
    from orchestration.specs.sources import build_problem
    from orchestration.specs.trial import Budget, Trial
    from orchestration.trials.run_trial import run_trial

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    found = load_sweep(Path.cwd() / "sweeps" / f"{case.sweep}.yaml").expand()
    mine = (t for t in found if (t.label, t.stage, t.problems[0].label.split("@")[0]) == (case.label, case.stage, case.graph))
    spec = next(mine).to_json()
    spec |= {"config": {**spec["config"], **case.settings}, "parent": None, "kind": "search"}
    trial = Trial.from_json(spec)
    build_problem(trial.problems[0])
    inner = build_evaluator(trial.evaluator)
    begun, counts, proposed = list[float](), list[int](), list[bytes]()

    class Watched(Wrapper):
        """The simulator; notes when it is asked and for what."""

        def __init__(self) -> None:
            self.inner = inner

        def evaluate(self, problem, placements, seed=0, *, first=0, trace=False):  # type: ignore[no-untyped-def]
            return inner.evaluate(problem, placements, seed, first=first, trace=trace)

        def evaluate_many(self, requests: Any) -> Any:
            begun.append(time.process_time())
            counts.append(sum(len(r.placements) for r in requests))
            proposed.extend(r.placements.astype("uint8").tobytes() for r in requests)
            return inner.evaluate_many(requests)

    limited = Trial.from_json({**spec, "budget": Budget(evaluations=case.rounds * case.size).to_json()})
    if case.whole:
        run_trial(limited, inner)
        before = time.process_time()
        run_trial(limited, inner)
        took = (time.process_time() - before) / (case.rounds * case.size)
    run_trial(limited, Watched())
    if not case.whole:
        took = (begun[-1] - begun[SKIPPED]) / sum(counts[SKIPPED:-1])
    return {
        "ms": took * 1e3,
        "proposed": base64.b64encode(zlib.compress(b"".join(proposed))).decode(),
    }


def table(commit: str, only: str = "") -> list[str]:
    """Lines of markdown: a row a method."""
    git = ["git", "-C", str(ROOT)]
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        subprocess.run([*git, "worktree", "add", "--detach", str(old), commit], check=True, capture_output=True)
        try:
            return _compared(old, commit, only)
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(old)], check=True)


def _compared(old: Path, commit: str, only: str) -> list[str]:
    now = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    head = f"| method, graph, evaluations | {commit}, ms an evaluation | {now} | ratio, by turn | decisions that are the same |"
    lines = [head, "|---|---|---|---|---|"]
    for k, case in enumerate(CASES):
        if only not in f"{case.sweep} {case.label}":
            continue
        found = [[_child(tree, k) for tree in (old, ROOT)] for _ in range(TURNS)]
        before, after = (statistics.mean(turn[i]["ms"] for turn in found) for i in (0, 1))
        ratios = ", ".join(f"{turn[0]['ms'] / turn[1]['ms']:.2f} ×" for turn in found)
        a, b = (np.frombuffer(zlib.decompress(base64.b64decode(turn["proposed"])), np.uint8) for turn in found[0])
        same = f"{np.mean(a == b):.4%}"
        count = case.rounds * case.size
        lines.append(f"| {case.label}, {case.graph} ({case.sweep}), {count:,} | {before:.3g} | {after:.3g} | {ratios} | {same} |")
        print(lines[-1], flush=True)
    return lines


def _child(tree: Path, case: int) -> dict[str, Any]:
    env = {**os.environ, "PYTHONPATH": str(tree)}
    run = subprocess.run([sys.executable, "-P", __file__, str(case)], cwd=tree, env=env, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    print(json.dumps(once(CASES[int(sys.argv[1])])))
