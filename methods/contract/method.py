"""The contract of every method: propose, update, state, restore. No method and no scoring belongs here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from envs.problem.errors import InputError
from envs.problem.measurement import Measurements
from envs.problem.problem import Problem


@dataclass(frozen=True)
class Proposal:
    """Placements of one of the method's problems that the method wants scored."""

    problem: int
    """Index into the method's problems."""
    placements: np.ndarray
    """int16[B, V]."""


@dataclass(frozen=True)
class NoConfig:
    """For methods without hyperparameters."""


class Method(ABC):
    """Proposes placements and learns from their measurements.

    The runner calls ``propose`` and ``update`` in turn until the budget is spent or ``propose`` returns nothing.
    ``state`` is taken only between an ``update`` and the next ``propose``; a restored method goes on bit for bit.

    Args:
        config: the method's frozen dataclass of hyperparameters.
        problems: one problem, or several if ``many_problems``.
        seed: every random stream of the method derives from it.
    """

    Config: ClassVar[type] = NoConfig
    """Frozen dataclass declaring the hyperparameters once, with the paper's values as defaults."""
    many_problems: ClassVar[bool] = False
    """Whether one instance may train on several problems at once."""
    wants_trace: ClassVar[bool] = False
    """Whether measurements should carry start and finish times."""
    seeded: ClassVar[bool] = True
    """Whether the seed matters; False for heuristics that have nothing to draw, which repeat themselves under every seed."""
    toy_config: ClassVar[dict[str, Any]] = {}
    """Overrides that make the method quick enough for tests on toy problems; a sweep never uses them."""

    def __init__(self, config: Any, problems: Sequence[Problem], seed: np.random.SeedSequence | int) -> None:
        if not problems:
            raise InputError(f"method {type(self).__name__} was given no problem")
        if len(problems) > 1 and not self.many_problems:
            raise InputError(f"method {type(self).__name__} places one problem at a time, but {len(problems)} were given")
        self.config = config
        self.problems = tuple(problems)
        self.seed = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        self.rng = np.random.default_rng(self.seed)

    def stream(self, k: int) -> np.random.SeedSequence:
        """A random stream of its own; unlike ``spawn`` it is the same for every object made from one seed."""
        return np.random.SeedSequence(self.seed.entropy, spawn_key=(*self.seed.spawn_key, k))

    @classmethod
    def wanted_evaluations(cls, config: Any, problems: Callable[[], Sequence[Problem]]) -> int | None:
        """How many placements a method with this ``config`` proposes before it ends of itself; None if only the budget ends it.

        For plans: where chance or measurements decide, about how many is enough.

        Args:
            problems: gives the problems that it would be made for; asked only if the number depends on them, for building them takes time.
        """
        return None

    @classmethod
    def effort(cls, config: Any) -> float:
        """How long an evaluation takes this method with this ``config``, in units of the default settings; for plans."""
        return 1.0

    @property
    def problem(self) -> Problem:
        """The problem of a method that has one."""
        return self.problems[0]

    @abstractmethod
    def propose(self, n: int) -> list[Proposal]:
        """At most ``n`` placements in all (n >= 1); an empty list says that the method has nothing more to try."""

    def update(self, results: Sequence[Measurements]) -> None:  # noqa: B027 (heuristics learn nothing)
        """Learn from the measurements of the last proposals, one batch a proposal, in the same order."""

    def state(self) -> dict[str, Any]:
        """All that is needed to go on: nested dicts of JSON values, NumPy arrays and torch tensors."""
        return {"rng": self.rng.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a ``state`` of a method made with the same config, problems and seed."""
        self.rng.bit_generator.state = state["rng"]

    def report(self) -> dict[str, float]:
        """Extra numbers to record at the end of a trial (e.g. a proven lower bound); booleans as 0 or 1."""
        return {}

    def pretrain(self, problems: Sequence[Problem]) -> dict[str, float]:
        """Training that needs no reward (contrastive, imitation); returns what to report. Most methods have none."""
        return {}

    def policy(self) -> dict[str, Any]:
        """What transfers to other problems (the weights), in the form of ``state``; empty for methods that do not learn."""
        return {}

    def load_policy(self, policy: dict[str, Any]) -> None:
        """Start from the ``policy`` of another trial; raises InputError if this method does not learn."""
        raise InputError(f"method {type(self).__name__} does not learn, so it cannot start from another trial's checkpoint")

    def place(self, problem: Problem) -> np.ndarray:
        """Zero-shot placement int16[V] of any problem by the current policy, without a measurement."""
        raise InputError(f"method {type(self).__name__} has no zero-shot placement")
