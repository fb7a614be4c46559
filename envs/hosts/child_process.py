"""A measuring process of one's own that can be killed, and the loop that answers in it. What is measured is not known here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from envs.problem.errors import InputError


class Fault(RuntimeError):
    """The measuring process did not answer."""

    def __init__(self, late: bool, text: str, exit_code: int | None = None) -> None:
        super().__init__(text)
        self.late = late
        """Whether it ran out of time; otherwise it died or raised."""
        self.exit_code = exit_code
        """Of a process that died, negative for a signal."""


class ChildProcess:
    """``python -m module FD`` and the connection to it.

    Args:
        module: a module whose main block calls `serve` with the descriptor.
        environment: variables to set in addition to this process's own.
    """

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        here, there = socket.socketpair()
        self.connection = Connection(here.detach())
        with there:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", module, str(there.fileno())],
                pass_fds=(there.fileno(),),
                stdin=subprocess.DEVNULL,
                cwd=Path(__file__).parents[2],
                env={**os.environ, **environment},
            )

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.popen.poll() is None

    def ask(self, limit: float, command: str, *arguments: Any) -> Any:
        """The answer to a command within ``limit`` seconds.

        Raises:
            InputError: as raised in the process.
            Fault: if there is no answer (the process is dead then), or another error was raised in it.
        """
        try:
            self.connection.send((command, *arguments))
            if not self.connection.poll(limit):
                self.kill()
                raise Fault(True, f"no answer within {limit:g} s, so the measuring process was killed")
            kind, result = self.connection.recv()
        except (EOFError, OSError):
            self.kill()
            code = self.popen.returncode
            raise Fault(False, f"the measuring process died with exit code {code}", code) from None
        if kind == "input":
            raise InputError(result)
        if kind == "error":
            raise Fault(False, result)
        return result

    def kill(self) -> None:
        """End the process at once; harmless if it has ended."""
        self.popen.kill()
        self.popen.wait()
        self.connection.close()


def serve(descriptor: int, make: Callable[..., Any], context: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
    """Answer ``(command, *arguments)`` by ``("ok", result)``, ``("input", message)`` or ``("error", traceback)`` until the parent hangs up.

    ``open`` makes the object of ``make(*arguments)``; any other command is a method of it, called within ``context()``.
    """
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    connection, child = Connection(descriptor), None
    while True:
        try:
            command, *arguments = connection.recv()
        except EOFError:
            return
        try:
            with context():
                if command == "open":
                    child, result = make(*arguments), None
                else:
                    result = getattr(child, command)(*arguments)
            connection.send(("ok", result))
        except InputError as error:
            connection.send(("input", str(error)))
        except Exception:
            connection.send(("error", traceback.format_exc()))


def _end_with(parent: int) -> None:
    """End this process once its parent has died, even in the middle of a measurement that nobody waits for any more."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
