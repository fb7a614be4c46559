"""Search by episodes of single steps, over many problems at once: what GiPH and Placeto share. No networks belong here.

An episode starts from a placement, changes it step by step by the policy, and is rewarded for what each step takes off the
objective (GiPH section 4.1). A batch of episodes runs in lockstep, one proposal each, and is learned from when all have ended.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor, nn

from envs.problem.errors import InputError
from envs.problem.measurement import Measurements
from envs.problem.problem import Problem
from envs.problem.ranges import Count, CountOrNone
from envs.simulators.relocation import placement_in_force
from methods.contract.method import Proposal
from methods.learning.learned import LearnedMethod
from methods.learning.reinforce import LearningConfig, step_weights
from methods.placing.constraints import first_placement, fit_memory, random_placements, units
from methods.placing.list_scheduling import planned

FAILED = 2.0
"""A placement that cannot run counts as this many times the worst objective of the episode so far."""

OPTIONS_AT_ONCE = 100_000
"""Choices that one part of an update covers, which bounds its memory."""


@dataclass(frozen=True)
class EpisodeConfig:
    """How episodes run. Defaults are GiPH's (section 5)."""

    batch: Count = 1
    """Episodes in lockstep, and between updates."""
    repeats: Count = 1
    """How many episodes of a batch share a problem and a first placement when learning (for the baseline ``others``)."""
    episodes: CountOrNone = 0
    """Episodes in all; 0 goes on until the budget is spent."""
    learn: bool = True
    """False searches with a loaded policy, one problem after another, and changes no weights."""
    greedy: bool = False
    """Take the most probable step instead of drawing one."""
    start: Literal["random", "previous", "in-force"] = "random"
    """First placement of a search: random; the best one found for the problem before with the same graph, devices that are gone replaced at
    random (a network that changes; one problem after another); or the one that relocations are counted from."""
    reward: Literal["change", "best"] = "change"
    """Of a step: what it takes off the objective (section 4.1), or what it takes off the best so far, so that a detour costs nothing."""
    learning: LearningConfig = field(default_factory=LearningConfig)


class Episode:
    """One search: the placement before every step, its measurement, and the choice made.

    Args:
        problem: index into the method's problems.
        first: the placement to start from, int16[V].
        steps: T, how many steps follow.
        keep: whether all steps are kept to learn from, or only the present one.
        timed: whether it matters when tasks run; estimated where a measurement has no trace.
    """

    def __init__(self, problem: int, first: np.ndarray, steps: int, keep: bool, timed: bool = True) -> None:
        rows = steps + 1 if keep else 1
        self.problem, self.steps, self.keep, self.timed = problem, steps, keep, timed
        self.placement = np.zeros((rows, len(first)), dtype=np.int16)
        self.start, self.finish = np.zeros((2, rows if timed else 0, len(first)))
        self.action = np.full(steps + 1 if keep else 1, -1, dtype=np.int64)
        """What step t chose, int64[T + 1] (the last is none)."""
        self.last = np.full(rows, -1, dtype=np.int64)
        """What was moved before step t, -1 at first."""
        self.reward = np.zeros(steps)
        self.step = -1
        """Steps taken and measured; -1 before the start is measured."""
        self.value = self.scale = self.worst = self.best = np.nan
        self.next = np.asarray(first, dtype=np.int16)
        self.next_last = -1

    @property
    def over(self) -> bool:
        """Whether the last step has been taken and measured."""
        return self.step >= self.steps

    def row(self, step: int) -> int:
        """Where ``step`` is kept."""
        return step if self.keep else 0

    @property
    def now(self) -> int:
        """Where the present step is kept."""
        return self.row(max(self.step, 0))

    def choose(self, action: int, placement: np.ndarray, moved: int) -> None:
        """Note the choice of the present step, where it leads, and what it moves."""
        self.action[self.now] = action
        self.next, self.next_last = placement, moved

    def record(self, problem: Problem, result: Measurements, against_best: bool = False) -> None:
        """Take in the measurement of `next`, rewarded against the best objective so far or the one before."""
        value = float(result.objective[0])
        finite = np.isfinite(value)
        if finite:
            self.worst = np.fmax(self.worst, value)
            self.scale = value if np.isnan(self.scale) else self.scale
        else:
            value = FAILED * self.worst
        if self.step >= 0:
            gain = ((self.best if against_best else self.value) - value) / (self.scale or 1.0)
            gain = gain if np.isfinite(gain) else float(finite)
            self.reward[self.step] = max(gain, 0.0) if against_best else gain
        self.best = np.fmin(self.best, value)
        self.step += 1
        self.value = value
        row = self.now
        self.placement[row], self.last[row] = self.next, self.next_last
        if not self.timed:
            return
        if finite and result.start is not None and result.finish is not None:
            self.start[row], self.finish[row] = result.start[0], result.finish[0]
        else:
            schedule = planned(problem, self.next)
            self.start[row], self.finish[row] = schedule.start, schedule.finish

    def state(self) -> dict[str, Any]:
        return {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in self.__dict__.items()}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Episode:
        """The inverse of `state`: an episode that goes on where that one stood."""
        self = cls.__new__(cls)
        for key, value in state.items():
            setattr(self, key, value.copy() if isinstance(value, np.ndarray) else value)
        return self


@dataclass(frozen=True)
class Steps:
    """Some consecutive steps of one finished episode, to be learned from."""

    episode: Episode
    begin: int
    stop: int

    @property
    def rows(self) -> slice:
        """These steps as a slice of the episode's arrays."""
        return slice(self.begin, self.stop)


class EpisodeMethod(LearnedMethod):
    """Runs episodes in lockstep and learns by REINFORCE. Subclasses say what the network is and what a step does."""

    Config: ClassVar[type] = EpisodeConfig
    many_problems = True
    wants_trace = True

    def __init__(self, config: Any, problems: Sequence[Problem], seed: np.random.SeedSequence | int) -> None:
        super().__init__(config, problems, seed)
        if config.batch < 1:
            raise InputError(f"setting 'batch' is {config.batch}; at least one episode runs at a time")
        if config.start == "previous" and config.batch > 1:
            raise InputError(f"setting 'start' is 'previous', so one problem is searched after another; set batch to 1, not {config.batch}")
        self.learn_with(self._build, config.learning)
        # self.rng draws nothing but the first placements of training; those of searches are `first_placement`'s
        self.steps_rng = np.random.default_rng(self.stream(1))
        self.lanes: list[Episode] = []
        self._asked: list[Episode] = []
        self._queue: list[int] = []
        self._found: dict[int, tuple[float, np.ndarray]] = {}
        self.begun = 0

    @abstractmethod
    def _build(self) -> nn.Module:
        """The network, freshly initialised by torch's random stream."""

    @abstractmethod
    def _move(self, episodes: list[Episode]) -> None:
        """`Episode.choose` the next step of each."""

    @abstractmethod
    def _log_probs(self, parts: list[Steps]) -> tuple[Tensor, Tensor]:
        """Differentiable log π of the steps' choices and entropies of the policy there, both [steps in all]."""

    @abstractmethod
    def _choices(self, problem: int) -> int:
        """How many choices the policy weighs in one step, for the memory of an update."""

    @classmethod
    def wanted_evaluations(cls, config: Any, problems: Callable[[], Sequence[Problem]]) -> int | None:
        """The first placement and the steps of every episode; all problems have their turn before any comes again."""
        if not config.episodes:
            return None
        given = problems()
        steps = [cls.episode_steps(config, p) if _movable(p) else 0 for p in given]
        episodes = config.episodes if any(steps) else min(config.episodes, len(given))
        rounds, rest = divmod(episodes, len(given))
        more = sum(steps[:rest]) if not config.learn else round(rest * sum(steps) / len(steps))
        return int(episodes + rounds * sum(steps) + more)

    @classmethod
    def episode_steps(cls, config: Any, problem: Problem) -> int:
        """Steps of an episode on a problem where there is a choice: two for every unit that moves as one."""
        return 2 * len(units(problem))

    def _first(self, problem: int, before: int) -> np.ndarray:
        """Where an episode starts that so many others went before."""
        here, start = self.problems[problem], self.config.start
        if start == "in-force":
            return placement_in_force(here)
        if self.config.learn:
            drawn = random_placements(here, 1, self.rng)[0]
        else:
            drawn = first_placement(here, self.seed, before // len(self.problems))
        if start == "previous" and problem - 1 in self._found and self.problems[problem - 1].graph.content_hash == here.graph.content_hash:
            index = {name: k for k, name in enumerate(here.network.names)}
            names = self.problems[problem - 1].network.names
            kept = np.array([index.get(names[d], -1) for d in self._found[problem - 1][1]])
            usable = (kept >= 0) & here.feasible[np.arange(len(kept)), kept]
            drawn = fit_memory(here, here.colocate(np.where(usable, kept, drawn))[None, :])[0]
        return drawn

    def propose(self, n: int) -> list[Proposal]:
        if not self.lanes:
            self._begin()
        self._asked = [e for e in self.lanes if not e.over][:n]
        moving = [e for e in self._asked if e.step >= 0]
        if moving:
            self._move(moving)
        return [Proposal(e.problem, e.next[None, :]) for e in self._asked]

    def update(self, results: Sequence[Measurements]) -> None:
        for episode, result in zip(self._asked, results, strict=True):
            episode.record(self.problems[episode.problem], result, self.config.reward == "best")
            if self.config.start == "previous":
                value = float(result.objective[0])
                if value < self._found.get(episode.problem, (np.inf,))[0]:
                    self._found[episode.problem] = (value, result.placements[0].copy())
        if self.lanes and all(e.over for e in self.lanes):
            if self.config.learn:
                self._learn([e for e in self.lanes if e.steps > 0])
            self.lanes = []

    def _begin(self) -> None:
        count = self.config.batch
        if self.config.episodes:
            count = min(count, self.config.episodes - self.begun)
        if not any(map(_movable, self.problems)):
            count = min(count, len(self.problems) - self.begun)  # one look at each is all there is
        repeats = min(self.config.repeats, count) if self.config.learn else 1
        before = self.begun
        self.begun += max(count, 0)
        for k in range(count):
            if k % repeats:
                same = self.lanes[-1]
                self.lanes.append(Episode(same.problem, same.next, same.steps, self.config.learn, self.wants_trace))
                continue
            if not self._queue:
                everything = np.arange(len(self.problems))
                self._queue = (self.steps_rng.permutation(everything) if self.config.learn else everything).tolist()
            problem = self._queue.pop(0)
            steps = self.episode_steps(self.config, self.problems[problem]) if _movable(self.problems[problem]) else 0
            self.lanes.append(Episode(problem, self._first(problem, before + k), steps, self.config.learn, self.wants_trace))

    def _learn(self, episodes: list[Episode]) -> None:
        if not episodes:
            return
        groups = [k for k, e in enumerate(self.lanes) if e.steps > 0]
        groups = [k // self.config.repeats if self.config.repeats > 1 else 0 for k in groups]
        weights = step_weights([e.reward for e in episodes], self.config.learning, groups)

        def parts() -> Iterator[tuple[Tensor, np.ndarray, Tensor | None]]:
            for part in self._parts(episodes):
                log_probs, entropies = self._log_probs([steps for _, steps in part])
                chosen = np.concatenate([weights[k][steps.rows] for k, steps in part])
                yield log_probs, chosen, entropies / len(episodes) if self.config.learning.entropy else None

        self.learner.step(parts())

    def _parts(self, episodes: list[Episode]) -> Iterator[list[tuple[int, Steps]]]:
        """All steps of the episodes (with their indices) in parts of at most `OPTIONS_AT_ONCE` choices, or one step."""
        part: list[tuple[int, Steps]] = []
        room = OPTIONS_AT_ONCE
        for k, episode in enumerate(episodes):
            cost, begin = self._choices(episode.problem), 0
            while begin < episode.steps:
                stop = min(episode.steps, begin + max(room // cost, 0 if part else 1))
                if stop > begin:
                    part.append((k, Steps(episode, begin, stop)))
                    room -= (stop - begin) * cost
                    begin = stop
                if begin < episode.steps:
                    yield part
                    part, room = [], OPTIONS_AT_ONCE
        if part:
            yield part

    def state(self) -> dict[str, Any]:
        return {
            **super().state(),
            "steps_rng": self.steps_rng.bit_generator.state,
            "lanes": [e.state() for e in self.lanes],
            "queue": list(self._queue),
            "begun": self.begun,
            "found": {str(k): {"value": value, "placement": placement} for k, (value, placement) in self._found.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.steps_rng.bit_generator.state = state["steps_rng"]
        self.lanes = [Episode.of_state(s) for s in state["lanes"]]
        self._queue, self.begun = list(state["queue"]), int(state["begun"])
        self._found = {int(k): (float(f["value"]), np.array(f["placement"])) for k, f in state["found"].items()}


def _movable(problem: Problem) -> bool:
    """Whether some operation has a choice of devices."""
    return bool((problem.feasible.sum(axis=1) > 1).any())
