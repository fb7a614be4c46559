"""``python -m tests.taught_policy``: what GDP's network carries over to a graph of another depth if nothing need be searched for.

The problems and the settings of sweeps/gdp/relatives-small.yaml, three seeds. One 4-layer graph is held out at a time; on each of the other
eight the network is fitted by maximum likelihood to what local search found there, then it places all nine without a measurement. It does
so as the sweep is set and without what makes neighbours agree, by its most probable placement and by that of `DRAWS` draws whose list
schedule ends first; the last also by a network that has learned nothing. No Ray, no ledger: what is printed is all that it makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator
from methods.contract.registry import build
from methods.learning.encoder_placers import EncoderPlacerMethod
from methods.learning.whole_placements import gumbel
from methods.placing.list_scheduling import planned
from methods.placing.twin_devices import Twins
from methods.testing.running import go
from orchestration.definition.sweep import load_sweep
from orchestration.specs.sources import build_problem

SWEEP = Path(__file__).parents[1] / "sweeps/gdp/relatives-small.yaml"
HELD_OUT = ("rnnlm-4", "gnmt-4", "transformer-xl-4")
SEEDS = range(3)
TEACHERS = range(100, 103)
"""Seeds of local search; the best placement of each is taught."""
SEARCHED = 1000
"""Evaluations of a local search."""
STEPS, RATE = 300, 2e-3
"""Of Adam; the rate falls to 0 like a cosine."""
DRAWS = 64
SETTINGS: dict[str, dict[str, Any]] = {"neighbours as they are": {"spread": 0, "agree": 0.0}, "as the sweep is set": {}}


def seconds(problem: Problem, placement: np.ndarray) -> float:
    """What a placement takes, simulated; infinite if it cannot run."""
    return float(Simulator().evaluate(problem, placement[None]).objective[0])


def expert(problem: Problem) -> float:
    """Seconds of the human expert's placement."""
    return seconds(problem, build("round-robin", {"order": "blocks"}, [problem], 0).propose(1)[0].placements[0])


def searched(problem: Problem) -> np.ndarray:
    """What local search places, int16[teachers, V]."""
    found = []
    for seed in TEACHERS:
        run = go(build("local-search", {}, [problem], seed), SEARCHED, ask=64)
        found.append(run.placements[int(np.argmin(run.objective))])
    return np.stack(found)


def teach(method: EncoderPlacerMethod, placements: Sequence[np.ndarray]) -> None:
    """Fit the network to the placements [E, V] of each of its problems, alike devices in one order."""
    targets = []
    for problem, view, placed in zip(method.problems, method.views, placements, strict=True):
        twins = Twins(problem, view.coarse, view.work.numpy().astype(np.float64))
        targets.append(torch.from_numpy(twins.relabel(placed[:, view.coarse.last].astype(np.int64))))
    optimizer = torch.optim.Adam(method.network.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for view, target in zip(method.views, targets, strict=True):
            (-method.network(view, target, None).log_probs.mean() / len(targets)).backward()
        torch.nn.utils.clip_grad_norm_(method.network.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def first_to_end(method: EncoderPlacerMethod, problem: Problem, seed: int) -> np.ndarray:
    """Of `DRAWS` draws from the policy the one whose list schedule ends first, int16[V]."""
    view = method._view(problem)
    with torch.no_grad():
        made = method.network(view, None, gumbel(np.random.default_rng(seed), (DRAWS, view.n, method.devices)))
    placements = method.placements(problem, method._device_of(view, made.actions.numpy()))
    return placements[int(np.argmin([planned(problem, p).finish.max() for p in placements]))]


def slower(ratios: Sequence[float]) -> str:
    """Geometric mean of ratios to the expert's seconds, in percent, and how many cannot run."""
    ran = np.log([r for r in ratios if r < np.inf])
    return f"{100 * (np.exp(ran.mean()) - 1):+.1f} %" + (
        f", {len(ratios) - len(ran)} of {len(ratios)} cannot run" if len(ran) < len(ratios) else ""
    )


def main() -> None:
    """Print for each setting and seed how much slower than the expert the taught graphs and the held-out ones are."""
    torch.set_num_threads(1)
    trials = load_sweep(SWEEP).expand()
    problems = {p.graph_label: build_problem(p) for t in trials if t.stage == "hold-out" for p in t.problems}
    experts = {name: expert(problem) for name, problem in problems.items()}
    taught = {name: searched(problem) for name, problem in problems.items()}
    found = {name: min(seconds(problems[name], p) for p in placed) for name, placed in taught.items()}
    print(f"local search, held-out graphs: {slower([found[h] / experts[h] for h in HELD_OUT])} against the expert", flush=True)
    for label, settings in SETTINGS.items():
        config: Mapping[str, Any] = {**next(t.config for t in trials if t.stage == "hold-out"), **settings}
        for seed in SEEDS:
            own, new, drawn, blank = [], [], [], []
            for held in HELD_OUT:
                names = [n for n in problems if n != held]
                method = build("gdp", config, [problems[n] for n in names], seed)
                assert isinstance(method, EncoderPlacerMethod)
                blank.append(seconds(problems[held], first_to_end(method, problems[held], seed)) / experts[held])
                teach(method, [taught[n] for n in names])
                own += [seconds(problems[n], method.place(problems[n])) / experts[n] for n in names]
                new.append(seconds(problems[held], method.place(problems[held])) / experts[held])
                drawn.append(seconds(problems[held], first_to_end(method, problems[held], seed)) / experts[held])
            each = ", ".join(f"{h} {100 * (r - 1):+.0f} %" for h, r in zip(HELD_OUT, new, strict=True))
            print(f"{label}, seed {seed}: taught graphs {slower(own)}; held out {slower(new)} ({each})", flush=True)
            print(f"  first of {DRAWS} draws to end by plan, held out: {slower(drawn)}; untaught {slower(blank)}", flush=True)


if __name__ == "__main__":
    main()
