"""``python -m orchestration.commands.benchmark.adversary``: instances on which one method is far worse than another.

For each pair of methods simulated annealing looks for a small instance that makes the ratio of their objectives large, as PISA does for
schedulers (Coleman and Krishnamachari, "Comparing Task Graph Scheduling Algorithms: An Adversarial Approach", 2024): works, bytes, speeds
and links change, and edges come and go. Every instance is measured again with other seeds at the end, and that is what is reported: the
search's own figure is the luckiest of many.

Differences from PISA: all methods have the same number of evaluations, so searches and learners can be compared; the simulator is that of
GiPH; ratios are annealed as logarithms; the chain is one, from a random layered graph.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator
from envs.sources.files import dump_problem
from methods.contract.registry import build, method_class
from orchestration.analysis.table import Table, terminal

SPAN = (0.1, 10.0)
"""Range of all numbers of an instance: works, bytes, speeds, and rates of links."""
HOT = 0.1
"""Temperature at the beginning, as a difference of logarithms; it falls by a line to 0."""
FRESH = 1000
"""Seeds from here on measure what was found again."""


@dataclass(frozen=True)
class SmallInstance:
    """A small problem as plain arrays."""

    work: np.ndarray
    """float64[V]."""
    bytes: np.ndarray
    """Of the edge from task u to task v > u, float64[V, V]; 0 is no edge."""
    speed: np.ndarray
    """float64[D]."""
    rate: np.ndarray
    """Of links, symmetric float64[D, D]."""

    def problem(self) -> Problem:
        """As everybody else knows it."""
        n, edges = len(self.work), np.argwhere(self.bytes > 0)
        names = tuple(f"t{i}" for i in range(n))
        moved = self.bytes[edges[:, 0], edges[:, 1]]
        graph = ComputationGraph(
            names, ("task",) * n, self.work, self.bytes.max(axis=1), edges, moved, name="adversarial", provenance="made up"
        )  # fmt: skip
        return Problem(
            graph, DeviceNetwork(tuple(f"d{k}" for k in range(len(self.speed))), self.speed, self.rate, np.array(0.0), name="own")
        )


def random_instance(tasks: int, devices: int, rng: np.random.Generator) -> SmallInstance:
    """Numbers log-uniform in `SPAN`; each task but the first reads one or two earlier ones."""
    size = np.zeros((tasks, tasks))
    for v in range(1, tasks):
        for u in rng.choice(v, min(v, int(rng.integers(1, 3))), replace=False):
            size[u, v] = _number(rng)
    rate = np.array([[_number(rng) for _ in range(devices)] for _ in range(devices)])
    rate = np.triu(rate, 1) + np.triu(rate, 1).T + np.eye(devices)
    draws = [np.array([_number(rng) for _ in range(count)]) for count in (tasks, devices)]
    return SmallInstance(draws[0], size, draws[1], rate)


def _number(rng: np.random.Generator) -> float:
    return float(np.exp(rng.uniform(np.log(SPAN[0]), np.log(SPAN[1]))))


def varied(instance: SmallInstance, rng: np.random.Generator) -> SmallInstance:
    """The same with one number changed by a factor of about 2, or one edge more or less."""
    what, n, d = int(rng.integers(6)), len(instance.work), len(instance.speed)
    factor = float(np.exp(0.7 * rng.standard_normal()))
    if what in (0, 1):
        key, i = ("work", "speed")[what], int(rng.integers((n, d)[what]))
        values = getattr(instance, key).copy()
        values[i] = np.clip(values[i] * factor, *SPAN)
        return replace(instance, **{key: values})
    if what == 2 and d > 1:
        rate, (k, j) = instance.rate.copy(), rng.choice(d, 2, replace=False)
        rate[k, j] = rate[j, k] = np.clip(rate[k, j] * factor, *SPAN)
        return replace(instance, rate=rate)
    size, edges = instance.bytes.copy(), np.argwhere(instance.bytes > 0)
    if what == 3 or n < 2:
        u, v = sorted(rng.choice(n, 2, replace=False)) if n > 1 else (0, 0)
        size[u, v] = _number(rng) if n > 1 else 0.0
    elif len(edges):
        u, v = edges[rng.integers(len(edges))]
        size[u, v] = np.clip(size[u, v] * factor, *SPAN) if what == 4 else 0.0
    return replace(instance, bytes=size)


def reached(method: str, problem: Problem, evaluations: int, seeds: Sequence[int]) -> float:
    """Mean logarithm of the best objective of a method within ``evaluations``; infinite where nothing ran."""
    found = []
    for seed in seeds if method_class(method).seeded else seeds[:1]:
        running, best, left = build(method, {}, [problem], np.random.SeedSequence(seed)), np.inf, evaluations
        while left > 0 and (proposals := running.propose(min(left, 32))):
            measured = [Simulator().evaluate(problem, p.placements, trace=running.wants_trace) for p in proposals]
            best = min(best, *(float(m.objective.min()) for m in measured))
            left -= sum(len(m) for m in measured)
            running.update(measured)
        found.append(np.log(best))
    return float(np.mean(found))


def ratio_of(first: str, second: str, problem: Problem, evaluations: int, seeds: Sequence[int]) -> float:
    """Logarithm of the first method's objective over the second's."""
    return reached(first, problem, evaluations, seeds) - reached(second, problem, evaluations, seeds)


@dataclass(frozen=True)
class Adversary:
    """The instance on which ``first`` is worst against ``second``."""

    first: str
    second: str
    ratio: float
    """Geometric mean of the first's objective over the second's, on seeds that the search did not use."""
    instance: SmallInstance


def search(first: str, second: str, *, tasks: int, devices: int, evaluations: int, steps: int, seeds: int, seed: int) -> Adversary:
    """Anneals an instance of ``tasks`` tasks on ``devices`` devices for ``steps`` steps, each measured with ``seeds`` seeds."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, *first.encode(), 0, *second.encode()]))

    def ratio(instance: SmallInstance, numbers: Sequence[int]) -> float:
        return ratio_of(first, second, instance.problem(), evaluations, numbers)

    current = best = random_instance(tasks, devices, rng)
    value = highest = ratio(current, range(seeds))
    for step in range(steps):
        tried = varied(current, rng)
        now = ratio(tried, range(seeds))
        hot = HOT * (1.0 - step / steps)
        if now >= value or rng.random() < np.exp((now - value) / hot):
            current, value = tried, now
        if value > highest:
            best, highest = current, value
    return Adversary(first, second, float(np.exp(ratio(best, range(FRESH, FRESH + seeds)))), best)


def table(found: Sequence[Adversary]) -> str:
    """Ratios of row over column, for a terminal."""
    names = list(dict.fromkeys(name for f in found for name in (f.first, f.second)))
    ratios = {(f.first, f.second): f"{f.ratio:.2f}" for f in found}
    rows = tuple((a, *(ratios.get((a, b), "–") for b in names)) for a in names)
    note = "Each figure: the objective of the row's method over the column's, on the instance found for that pair."
    return terminal([Table("How much worse at worst", ("method", *names), rows, (note,))])


def main(arguments: Sequence[str] | None = None) -> int:
    """Search for every ordered pair; print the ratios, and write the instances."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("methods", nargs="+", metavar="METHOD", help="two or more")
    parser.add_argument("--tasks", type=int, default=12, help="tasks of an instance (12)")
    parser.add_argument("--devices", type=int, default=4, help="devices of an instance (4)")
    parser.add_argument("--evaluations", type=int, default=50, help="of every method on every instance (50)")
    parser.add_argument("--steps", type=int, default=200, help="instances tried for a pair (200)")
    parser.add_argument("--seeds", type=int, default=3, help="of every method on every instance (3)")
    parser.add_argument("--seed", type=int, default=0, help="of the search (0)")
    parser.add_argument("--output", type=Path, metavar="FILE.jsonl", help="a line for every pair, with its problem in our format")
    args = parser.parse_args(arguments)
    for name in ("tasks", "devices", "evaluations", "steps", "seeds"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} is {getattr(args, name)}; it must be 1 or more")
    if len(set(args.methods)) < 2 or args.seed < 0:
        parser.error("name two different methods, and a seed from 0")
    numbers = {key: getattr(args, key) for key in ("tasks", "devices", "evaluations", "steps", "seeds", "seed")}
    found = []
    try:
        for first, second in itertools.permutations(dict.fromkeys(args.methods), 2):
            found.append(search(first, second, **numbers))
            print(f"{first} / {second}: {found[-1].ratio:.3f}", file=sys.stderr, flush=True)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(table(found), end="")
    if args.output:
        lines = [
            {"first": f.first, "second": f.second, "ratio": f.ratio, **numbers, "problem": dump_problem(f.instance.problem())}
            for f in found
        ]
        args.output.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
