"""Asks a worker process for one case after another, and judges how each ended. A worker that hangs or dies is replaced."""

from __future__ import annotations

import math
import multiprocessing
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.fuzz.cases import KINDS
from tests.fuzz.worker import Ended, serve

CPU_LIMIT, WALL_LIMIT, PREPARE_LIMIT = 10.0, 300.0, 3600.0
"""Seconds: of CPU and by the clock a case, and by the clock until a worker is ready."""
GOOD = ("accepted", "refused", "named")
BAD = ("traceback", "unexpected", "crash", "hang", "another table", "unnamed", "failed")
"""accepted: code 0; refused: code 2, naming the file or the value; named: code 1, with the file named. unnamed: refused, but not
why; failed: code 1 without that; another table: code 0 and other results, without a word."""


@dataclass(frozen=True)
class Verdict:
    """How a case ended."""

    kind: str
    number: int
    verdict: str
    seconds: float
    what: str
    """Commands and what was said; the beginning of it."""

    def __str__(self) -> str:
        return f"{self.verdict}: {self.kind}:{self.number} ({self.seconds:.1f} s of CPU): {self.what}"


def cases(count: int) -> list[tuple[str, int]]:
    """``count`` cases, shared out among the kinds by their weights."""
    total = sum(kind.weight for kind in KINDS.values())
    numbers = {name: math.ceil(count * kind.weight / total) for name, kind in KINDS.items()}
    return [(name, i) for name, number in numbers.items() for i in range(number)]


class Worker:
    """A process that runs cases."""

    def __init__(self, home: Path, seed: int) -> None:
        context = multiprocessing.get_context("fork")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, home, seed), daemon=False)
        self._process.start()
        theirs.close()
        if not self._connection.poll(PREPARE_LIMIT):
            self.close()
            raise TimeoutError(f"no worker after {PREPARE_LIMIT:.0f} s; see {home / 'prepare.txt'}")
        self._connection.recv()

    def run(self, kind: str, number: int) -> Ended | str:
        """How it ended, or "hang", or "crash" with the process's code; after these the worker is no more."""
        self._connection.send((kind, number))
        begin, cpu = time.monotonic(), self._cpu()
        try:
            while not self._connection.poll(0.1):
                if self._cpu() - cpu > CPU_LIMIT or time.monotonic() - begin > WALL_LIMIT:
                    self.close()
                    return "hang"
            ended: Ended = self._connection.recv()
            return ended
        except EOFError:
            self._process.join()
            return f"crash {self._process.exitcode}"

    def _cpu(self) -> float:
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return float(times.user + times.system)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def judge(kind: str, number: int, ended: Ended | str) -> Verdict:
    """What is to be thought of it."""
    if isinstance(ended, str):
        return Verdict(kind, number, ended.split()[0], CPU_LIMIT, ended)
    text = "\n".join(line for line in ended.said.splitlines() if line.startswith("placewright: ")) or ended.said[-1000:]
    what = f"{' ; '.join(' '.join(c) for c in ended.case.commands)}: {text}"[:1500].encode("utf-8", "replace").decode()
    return Verdict(kind, number, _verdict(ended), ended.seconds, what)


def _verdict(ended: Ended) -> str:
    if ended.escaped or "Traceback (most recent call last)" in ended.said:
        return "traceback"
    if "please report" in ended.said:
        return "unexpected"
    if ended.seconds > CPU_LIMIT:
        return "hang"
    named = any(name in ended.said for name in ended.case.names)
    if ended.code == 0:
        return "another table" if ended.tables and not named else "accepted"
    if ended.code == 2:
        return "refused" if named or _quotes(ended) else "unnamed"
    return "named" if named else "failed"


def _quotes(ended: Ended) -> bool:
    """Whether the refusal quotes a word or number that stands in the input."""
    last = ended.said.splitlines()[-1:] or [""]
    found = re.findall(r"'([^']+)'|\"([^\"]+)\"|(?<![\w.])(-?\d[\w.+-]*)", last[0])
    return any(word and word in ended.case.content for group in found for word in group)


def fuzz(home: Path, seed: int, asked: Iterable[tuple[str, int]], tell: Callable[[Verdict], None] = lambda _: None) -> list[Verdict]:
    """Run cases in order, in ``home``, which may hold what an earlier run prepared."""
    verdicts, worker = [], None
    try:
        for kind, number in asked:
            worker = worker or Worker(home, seed)
            ended = worker.run(kind, number)
            if isinstance(ended, str):
                worker = None
            verdict = judge(kind, number, ended)
            verdicts.append(verdict)
            tell(verdict)
    finally:
        if worker is not None:
            worker.close()
    return verdicts


def table(verdicts: list[Verdict]) -> str:
    """Counts by kind and verdict, in Markdown."""
    counts = Counter((v.kind, v.verdict) for v in verdicts)
    columns = [name for name in (*GOOD, *BAD) if name in GOOD or any(v.verdict == name for v in verdicts)]
    kinds = [kind for kind in KINDS if any(v.kind == kind for v in verdicts)]
    rows = [[kind, *(counts[kind, c] for c in columns)] for kind in kinds]
    rows.append(["all", *(sum(counts[kind, c] for kind in kinds) for c in columns)])
    lines = [["kind", "inputs", *columns], ["---"] * (len(columns) + 2), *([r[0], sum(map(int, r[1:])), *r[1:]] for r in rows)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
