"""Evaluators from their description, and what goes wrong with them. Queues, hosts and Ray belong to the service."""

from __future__ import annotations

from collections.abc import Iterable

from envs.problem.errors import InputError
from envs.problem.measurement import BaseEvaluator, Evaluator
from orchestration.rewards.kinds import EVALUATORS
from orchestration.specs.trial import EvaluatorSpec


class InfrastructureError(RuntimeError):
    """Nothing is known about the placement: a host, a worker or a connection failed. Retried, never a reward."""


class EvaluationError(RuntimeError):
    """An evaluator raised over a request; the message is its traceback, from the process in which it ran."""


def build_evaluator(spec: EvaluatorSpec) -> BaseEvaluator:
    """The evaluator that measures in this process.

    Raises:
        InputError: for an unknown kind or option, naming the nearest known one, a value out of range, or a device that this machine does
            not have.
    """
    if spec.kind not in EVALUATORS:
        raise InputError(f"this process cannot measure {spec.key!r}; ask a host that serves that key")
    evaluator = EVALUATORS[spec.kind].build(spec.options)
    if "host" not in spec.options:  # a named host's devices are its own affair
        evaluator.check_machine()
    return evaluator


def close_evaluators(evaluators: Iterable[Evaluator]) -> None:
    """End the processes of those that have some."""
    for evaluator in evaluators:
        evaluator.close()


def measures_for_real(kind: str) -> bool:
    """Whether ``kind`` is one that measures for real; False for one that simulates, or that nobody knows."""
    return kind in EVALUATORS and EVALUATORS[kind].real


def simulates(kind: str) -> bool:
    """Whether ``kind`` is one that simulates, which any process can; False for one that measures for real, or that nobody knows."""
    return kind in EVALUATORS and not EVALUATORS[kind].real


def remembered(spec: EvaluatorSpec) -> bool:
    """Whether a real measurement stands for later ones: it is as good for one seed as for another, unless the sweep says otherwise."""
    return measures_for_real(spec.kind) and bool(spec.options.get("cache", True))


def in_worker(spec: EvaluatorSpec) -> bool:
    """Whether a trial measures inside its own worker instead of asking the service."""
    return simulates(spec.kind) and bool(spec.options.get("local", False))
