"""How foresight's policies are learned: evolution strategies on makespans, then a choice of policies that complement each other.

`evolve` changes one vector of parameters so that the mean of log(makespan / HEFT's) over problems falls: antithetic pairs of perturbed
parameters give a gradient (Salimans, Ho, Chen, Sidor and Sutskever, "Evolution Strategies as a Scalable Alternative to Reinforcement
Learning", 2017), and Adam takes a step along it. `portfolio` perturbs what several runs gave, tries everything on many problems, and keeps
what lowers the best the most, greedily ("Hydra"; see `methods.foresight.experts`).

A simulator is given from outside: `orchestration.commands.train_foresight` is the command.

**The shipped policy** is what ``python -m orchestration.commands.train_foresight --seed 0 --generations 400 --output policy.npz`` wrote.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from envs.problem.measurement import Evaluator
from methods.foresight.decoding import Decoder
from methods.foresight.experts import HEURISTICS, Experts
from methods.foresight.families import LAYERED, Example
from methods.foresight.features import features
from methods.foresight.planning import planned
from methods.foresight.policy import SIZE, guide, initial
from methods.foresight.schedule import guided_schedules
from methods.placing.constraints import fit_memory
from methods.placing.meta_ops import enumerate_meta_ops
from methods.placing.starts import coarse_starts, good_starts
from methods.placing.varied_schedules import KINDS, varied_schedules

TRIES = (1, 2, 5, 10)
"""Numbers of policies whose best placement `left_out`, `held_out` and `planned_first` report."""
CAP = 3.0
"""Makespans count up to this times HEFT's."""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class TrainingSettings:
    """Numbers of a training."""

    generations: int | None = None
    """Of each run; None trains until the time is over, which is not the same twice."""
    seconds: float = 1800.0
    """Wall time of each run, where ``generations`` does not say when to stop."""
    pairs: int = 12
    """Antithetic pairs of parameters per generation."""
    problems: int = 28
    """Drawn per generation."""
    sigma: float = 0.1
    """Standard deviation of the perturbations."""
    rate: float = 0.03
    """Adam's step at the beginning; it falls by a line to ``last_rate``."""
    last_rate: float = 0.006
    decay: float = 0.0003
    """What parameters shrink by in a generation."""
    perturbed: int = 220
    """Policies made from those that were trained, by adding noise of 0.05, 0.1 or 0.2."""
    kept: int = 48
    """Policies that the portfolio keeps; to them come the ``best`` ones of every family."""
    best: int = 3
    report: int = 40
    """Generations between lines of progress."""


class Course:
    """A problem of training, with what HEFT and the other one-go heuristics reach on it."""

    def __init__(self, example: Example, evaluator: Evaluator) -> None:
        self.family, self.problem, self._evaluator = example.family, example.problem, evaluator
        self.features = features(self.problem, self.problem.compute_seconds)
        starts = good_starts(self.problem, 0)
        if (self.problem.graph.meta_op >= 0).any():
            starts = np.concatenate((starts, enumerate_meta_ops(self.problem)[None]))
        given = self._makespans(starts)
        self._plain = self._makespans(np.concatenate((self._list_schedules(), coarse_starts(self.problem, 0))))
        self.best = float(min(given.min(), self._plain.min()))
        self.heft = float(given[0]) if np.isfinite(given[0]) else self.best
        """Seconds by HEFT, or by the best heuristic where HEFT's placement cannot run."""

    def _list_schedules(self) -> np.ndarray:
        return varied_schedules(self.problem, np.ones((KINDS, self.problem.n_nodes, 1)), np.ones(KINDS), np.arange(KINDS))

    def _makespans(self, placements: np.ndarray) -> np.ndarray:
        return self._evaluator.evaluate(self.problem, fit_memory(self.problem, placements)).objective

    def gains(self, thetas: np.ndarray, cap: float = CAP) -> np.ndarray:
        """log(makespan / HEFT's) of the policies ``thetas`` float64[B, SIZE], at most log(cap), float64[B]."""
        believed, alike = self.problem.compute_seconds, np.ones((len(thetas), 1, 1))
        schedules = guided_schedules(self.problem, believed, alike, guide(self.features, thetas))
        return self.gains_of(schedules.placement, cap)

    def gains_of(self, placements: np.ndarray, cap: float = CAP) -> np.ndarray:
        """The same of placements int16[B, V]."""
        return self._relative(self._makespans(placements), cap)

    def all_gains(self, thetas: np.ndarray) -> np.ndarray:
        """The same of the heuristics and then of the policies, float64[HEURISTICS + B]."""
        parts = [self.gains(thetas[i : i + 32]) for i in range(0, len(thetas), 32)]
        return np.concatenate([self._relative(self._plain, CAP), *parts])

    def _relative(self, makespans: np.ndarray, cap: float) -> np.ndarray:
        return np.log(np.minimum(makespans, cap * self.heft) / self.heft)

    @property
    def one_go(self) -> float:
        """log(makespan / HEFT's) of the best of all one-go heuristics."""
        return float(np.log(self.best / self.heft))


def shares(families: Sequence[str]) -> np.ndarray:
    """Weights of problems, float64[N] with sum 1: a third for all layered graphs, and equal parts of the rest for each other family."""
    names = np.array(families)
    weight = np.array([(0.5 if f == LAYERED else 1.0 / max(1, len(set(families)) - 1)) / (names == f).sum() for f in families])
    return weight / weight.sum()


def gradient(courses: Sequence[Course], theta: np.ndarray, noise: np.ndarray, sigma: float) -> np.ndarray:
    """Direction in which the makespans of ``courses`` rise, from ``theta`` ± ``sigma`` times ``noise`` float64[P, SIZE], float64[SIZE].

    Problems count alike: differences are divided by the standard deviation of the problem's own values.
    """
    both, total = np.concatenate((theta + sigma * noise, theta - sigma * noise)), np.zeros(SIZE)
    for course in courses:
        values = course.gains(both, 2.0)
        if values.std() > 1e-9:
            total += (values[: len(noise)] - values[len(noise) :]) / (values.std() + 0.01) @ noise / len(both)
    return total / len(courses)


def evolve(courses: Sequence[Course], settings: TrainingSettings, seed: int, progress: Progress = print) -> np.ndarray:
    """One run: the running mean of the parameters, and the last ones, float64[2, SIZE]."""
    rng, weight = np.random.default_rng(seed), shares([c.family for c in courses])
    theta = mean = initial(rng)
    first, second = np.zeros(SIZE), np.zeros(SIZE)
    begin, generation, done = time.monotonic(), 0, 0.0
    while done < 1.0:
        generation += 1
        noise = rng.standard_normal((settings.pairs, SIZE))
        drawn = rng.choice(len(courses), min(settings.problems, len(courses)), replace=False, p=weight)
        slope = gradient([courses[i] for i in drawn], theta, noise, settings.sigma)
        first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
        step = first / (1 - 0.9**generation) / (np.sqrt(second / (1 - 0.99**generation)) + 1e-8)
        theta = (theta - (settings.rate * (1 - done) + settings.last_rate * done) * step) * (1 - settings.decay)
        mean = 0.98 * mean + 0.02 * theta if generation > 20 else theta
        elapsed = time.monotonic() - begin
        done = elapsed / settings.seconds if settings.generations is None else generation / settings.generations
        if generation % settings.report == 0 or done >= 1.0:
            now, one_go = float(weight @ _score(courses, mean)), float(weight @ [c.one_go for c in courses])
            evaluations = generation * 2 * settings.pairs * len(drawn)
            progress(
                f"seed {seed}: generation {generation}, {evaluations} evaluations, {elapsed:.0f} s: {_percent(now)} against HEFT "
                f"on training problems (best of all one-go heuristics {_percent(one_go)})"
            )
    return np.stack([mean, theta])


def portfolio(bases: np.ndarray, courses: Sequence[Course], settings: TrainingSettings, seed: int, progress: Progress = print) -> Experts:
    """Policies that complement each other on ``courses``, of ``bases`` float64[B, SIZE] and perturbations of them."""
    rng = np.random.default_rng(seed)
    drawn = bases[rng.integers(len(bases), size=settings.perturbed)]
    noise = rng.choice([0.05, 0.1, 0.2], size=(settings.perturbed, 1)) * rng.standard_normal(drawn.shape)
    thetas = np.concatenate((bases, drawn + noise)).astype(np.float32).astype(np.float64)
    gains = np.stack([c.all_gains(thetas) for c in courses])
    progress(f"tried {gains.shape[1]} policies on {len(courses)} problems ({gains.size} evaluations)")
    kept = choose(gains[:, HEURISTICS:], [c.family for c in courses], settings.kept, settings.best)
    columns = np.concatenate((np.arange(HEURISTICS), HEURISTICS + kept))
    return Experts(thetas[kept], np.stack([c.features.graph for c in courses]), gains[:, columns])


def choose(gains: np.ndarray, families: Sequence[str], kept: int, best: int) -> np.ndarray:
    """Indices of policies: ``kept`` that lower the best of those before the most, and the ``best`` ones of every family.

    Args:
        gains: log(makespan / HEFT's) of each problem by each policy, float64[N, K].
        families: of the problems, N; they weigh as `shares` says.
    """
    weight, chosen, reached = shares(families), list[int](), np.full(len(gains), 1e3)
    for _ in range(min(kept, gains.shape[1])):
        value = weight @ np.minimum(gains, reached[:, None])
        value[chosen] = np.inf
        chosen.append(int(value.argmin()))
        reached = np.minimum(reached, gains[:, chosen[-1]])
    for family in sorted(set(families)):
        mean = gains[np.array(families) == family].mean(axis=0)
        chosen += [int(k) for k in np.argsort(mean, kind="stable")[:best] if k not in chosen]
    return np.array(chosen, dtype=np.int64)


def left_out(experts: Experts, courses: Sequence[Course]) -> np.ndarray:
    """Gains of the best of the first `TRIES` policies on each of the portfolio's own problems, float64[N, len(TRIES)].

    Each problem is left out of the experience that orders the policies, but not of their training and choice: an optimistic figure.
    """
    found = []
    for i, course in enumerate(courses):
        others = np.arange(len(courses)) != i
        order = Experts(experts.thetas, experts.graphs[others], experts.gains[others]).order(course.features.graph, max(TRIES))
        found.append(_bests(experts.gains[i][order]))
    return np.array(found)


def held_out(experts: Experts, courses: Sequence[Course]) -> np.ndarray:
    """The same on problems that neither training nor choice has seen."""
    return np.array([_bests(c.all_gains(experts.thetas)[experts.order(c.features.graph, max(TRIES))]) for c in courses])


def planned_first(experts: Experts, courses: Sequence[Course], plans: int) -> np.ndarray:
    """Gains of the best of the first `TRIES` placements that are planned with ``plans`` variations, float64[N, len(TRIES)]."""
    found = []
    for course in courses:
        points = planned(Decoder(course.problem, experts), plans, np.random.default_rng(0))
        found.append(_bests(np.append(course.gains_of(points.placement), np.log(CAP))))  # nothing may fit
    return np.array(found)


def _bests(gains: np.ndarray) -> list[float]:
    return [float(gains[:n].min()) for n in TRIES]


def _score(courses: Sequence[Course], theta: np.ndarray) -> np.ndarray:
    return np.array([c.gains(theta[None])[0] for c in courses])


def _percent(logarithm: float) -> str:
    return f"{100 * logarithm:+.2f} %"
