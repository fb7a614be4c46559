"""The queue of studies as a detached, named actor of a Ray cluster, and the drivers that wait there for their turn. The rules belong to
``orchestration/queueing/study_queue.py``."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import ray

from envs.problem.errors import InputError
from orchestration.queueing.study_queue import StudyQueue, Wish

NAME, NAMESPACE = "queue of studies", "placewright"
POLL_SECONDS = 2.0
CANCELLED = 130
"""Exit code of a study that was cancelled before its turn, as of one that was stopped."""
ACTIONS = ("move", "pause", "resume", "cancel", "allow", "listing")


class QueueActor:
    """A `StudyQueue` in a process of its own; what it refuses comes back as text. If the process dies, those that wait enter again."""

    def __init__(self) -> None:
        self._queue = StudyQueue()

    def enter(self, wish: Wish, token: str, again: bool) -> str | None:
        """See `StudyQueue.enter`."""
        return self._refusal(lambda: self._queue.enter(wish, token, again))

    def poll(self, name: str, token: str) -> str:
        """See `StudyQueue.poll`."""
        return self._queue.poll(name, token)

    def left(self, name: str, token: str, state: str) -> None:
        """See `StudyQueue.left`."""
        self._queue.left(name, token, state)

    def act(self, action: str, *arguments: Any) -> tuple[Any, str | None]:
        """One of `ACTIONS`: what it gives, and why it was refused."""
        found: list[Any] = [None]

        def call() -> None:
            found[0] = getattr(self._queue, action)(*arguments)

        refusal = self._refusal(call) if action in ACTIONS else f"no action {action!r}"
        return found[0], refusal

    @staticmethod
    def _refusal(call: Callable[[], None]) -> str | None:
        try:
            call()
        except InputError as error:
            return str(error)
        return None


def queue_actor() -> Any:
    """The handle of the cluster's queue, started if need be."""
    remote: Any = ray.remote
    return remote(num_cpus=0, max_restarts=-1)(QueueActor).options(
        name=NAME, namespace=NAMESPACE, get_if_exists=True, lifetime="detached"
    ).remote()  # fmt: skip


def act(action: str, *arguments: Any) -> Any:
    """Ask the cluster's queue; InputError if it refuses."""
    found, refusal = ray.get(queue_actor().act.remote(action, *arguments))
    if refusal:
        raise InputError(refusal)
    return found


class Waiter:
    """A driver in the queue."""

    def __init__(self, wish: Wish) -> None:
        self._wish, self._token = wish, uuid.uuid4().hex
        self._enter(again=False)

    def _enter(self, again: bool) -> None:
        self._queue = queue_actor()
        if refusal := ray.get(self._queue.enter.remote(self._wish, self._token, again)):
            raise InputError(refusal)

    def poll(self) -> str:
        """``wait``, ``run`` or ``cancel``; a queue whose process died is entered again."""
        with contextlib.suppress(ray.exceptions.RayError):
            answer: str = ray.get(self._queue.poll.remote(self._wish.name, self._token))
            if answer != "unknown":
                return answer
        with contextlib.suppress(ray.exceptions.RayError):
            self._enter(again=True)
        return "wait"

    def left(self, state: str) -> None:
        """Say how the run ended."""
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._queue.left.remote(self._wish.name, self._token, state))

    @contextlib.contextmanager
    def watched(self) -> Any:
        """While the block runs, the queue hears that this driver lives, and stops it as Ctrl-C does if it is cancelled."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(POLL_SECONDS):
                if self.poll() == "cancel":
                    os.kill(os.getpid(), signal.SIGTERM)
                    return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(10)


def in_turn(wish: Wish, run: Callable[[bool], int], say: Callable[[str], object]) -> int:
    """Wait for this study's turn, run it, and again if it recurs; the last exit code.

    Args:
        run: does it; told whether it is to begin anew, since it has run before.

    Raises:
        InputError: if the queue refuses it.
    """
    waiter, runs = Waiter(wish), 0
    say(f"{wish.name} is in the queue; `placewright queue` shows it")
    while True:
        try:
            while (answer := waiter.poll()) == "wait":
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            waiter.left("cancelled")
            raise
        if answer == "cancel":
            say(f"{wish.name} was cancelled in the queue")
            return CANCELLED
        state = "failed"
        try:
            with waiter.watched():
                code = run(runs > 0)
            state, runs = "failed" if code else "finished", runs + 1
        except KeyboardInterrupt:
            state = "cancelled"
            raise
        finally:
            waiter.left(state)
        if not wish.every:
            return code
