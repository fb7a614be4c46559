"""One process that runs one command after another, and may be killed. What it is asked and how that ended is judged in ``harness.py``."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from tests.fuzz.cases import Case, make_case, prepare

MEMORY = 6 << 30
"""Bytes that a process may hold: what asks for more gets a MemoryError instead of the machine."""


@dataclass
class Ended:
    """How a case ended."""

    code: int
    said: str
    """Standard output and standard error."""
    escaped: bool
    """Whether an exception came out of the command."""
    seconds: float
    """Of CPU."""
    case: Case
    tables: list[str] = field(default_factory=list)
    """Of `Case.tables`, the files that are not what they were."""


def serve(connection: Connection, home: Path, seed: int) -> None:
    """Run cases by name until told to stop; runs in a process of its own."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.chdir(home)
    os.environ["PLACEWRIGHT_CACHE"] = str(home / "cache")
    with said(home / "prepare.txt"):
        prepare(home)
    connection.send("ready")
    while (asked := connection.recv()) is not None:
        connection.send(perform(home, seed, *asked))


def perform(home: Path, seed: int, kind: str, number: int) -> Ended:
    """Make a case in a folder of its own and run its commands until one does not end with 0."""
    shutil.rmtree(home / "case", ignore_errors=True)
    folder = home / "case" / f"{kind}-{number}".replace(" ", "-")  # another each time: open databases are kept by their path
    folder.mkdir(parents=True)
    with said(home / "making.txt"):
        case = make_case(home, folder, seed, kind, number)
    begin, code, escaped = time.process_time(), 0, False
    with said(home / "said.txt"):
        for command in case.commands:
            code, escaped = call(command)
            if code:
                break
    seconds = time.process_time() - begin
    text = (home / "said.txt").read_bytes().decode("utf-8", "replace")
    changed = [] if code else [str(made) for before, made in case.tables if not made.is_file() or made.read_bytes() != before.read_bytes()]
    return Ended(code, text, escaped, seconds, case, changed)


def call(command: list[str]) -> tuple[int, bool]:
    """Run one command line; its code, and whether an exception came out."""
    from orchestration.cli.main import main

    try:
        return main(command), False
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1, False
    except BaseException:
        traceback.print_exc()
        return 1, True


@contextmanager
def said(path: Path) -> Iterator[None]:
    """All that is printed goes to a file, that of libraries in C too."""
    kept = os.dup(1), os.dup(2)
    with path.open("wb") as file:
        for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
            stream.flush()
            os.dup2(file.fileno(), number)
        try:
            yield
        finally:
            for stream, number, old in ((sys.stdout, 1, kept[0]), (sys.stderr, 2, kept[1])):
                stream.flush()
                os.dup2(old, number)
                os.close(old)
