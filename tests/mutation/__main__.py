"""``python -m tests.mutation [MODULE …]``: break each module in many small ways and see whether its own tests notice.

Each wrong version runs in a process forked from one that has all libraries loaded, where it takes the module's place as that is imported.
What survives must stand, with the reason, in ``tests/mutation/survivors.md``; any other survivor fails the run.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.machinery
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
os.environ["NUMBA_DISABLE_JIT"] = "1"  # kernels run as the Python that they are written in: nothing is compiled for one wrong version

import pytest

from tests.mutation.mutate import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
SURVIVORS = Path(__file__).with_name("survivors.md")


class Subject(NamedTuple):
    """What must notice that a module is wrong."""

    tests: list[str]
    """Files, or single tests; those that notice most come first."""
    choice: str = ""
    """Which of them, as pytest's ``-k`` wants it."""


def _in(folder: str, *names: str) -> list[str]:
    return [f"tests/{folder}/{name}" for name in names]


_DRAWN = "full_of_ties or (not agree and not published and not uniform and not lawful and not mean_one and not files)"
"""Without the tests that draw examples: they take ten times as long as those of the same comparison with fixed seeds."""
SUBJECTS: dict[str, Subject] = {
    "orchestration/specs/canonical.py": Subject(_in("orchestration/specs", "test_trial.py")),
    "orchestration/specs/trial.py": Subject(_in("orchestration/specs", "test_trial.py")),
    "orchestration/analysis/statistics.py": Subject(_in("orchestration/analysis", "test_statistics.py")),
    "orchestration/rewards/measurement_table.py": Subject(_in("orchestration/rewards", "test_measurement_table.py")),
    "orchestration/rewards/measurement_store.py": Subject(
        _in("orchestration/rewards", "test_measurement_store.py"), "not dies_with and not lease"
    ),
    "orchestration/rewards/wrappers.py": Subject(_in("orchestration/rewards", "test_wrappers.py", "test_contract.py")),
    "orchestration/rewards/fair_queue.py": Subject(_in("orchestration/rewards", "test_fair_queue.py")),
    "orchestration/rewards/service.py": Subject(
        _in("orchestration/rewards", "test_service_rules.py", "test_service.py"), "not on_ray and not keeps_its_cpu"
    ),
    "orchestration/folder/ledger.py": Subject(_in("orchestration/folder", "test_ledger.py")),
    "envs/simulators/bounds.py": Subject(_in("envs/simulators", "test_bounds.py"), "not large_problems and not no_placement"),
    "envs/simulators/fifo/kernel.py": Subject(_in("envs/simulators", "test_simulators.py", "test_live_memory.py"), _DRAWN),
    "envs/simulators/live_memory.py": Subject(_in("envs/simulators", "test_live_memory.py"), _DRAWN),
    "envs/simulators/work_conserving/kernel.py": Subject(_in("envs/simulators", "test_work_conserving.py"), _DRAWN),
}
"""What is broken, and the tests that must notice."""
OPTIONS = ["-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile", "mutants", "-W", "ignore"]
PATIENCE = 5.0
"""Times as much of the processor as sound code that a wrong version may take; whatever takes more never ends, and is noticed by that."""
SAMPLE = 150
"""Of a module with more wrong versions so many are drawn, the same ones every time (``--all`` takes all)."""


def own(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] in ("envs", "methods", "orchestration", "tests")


def start(path: str, mutant: Mutant | None, subject: Subject, log: Path, seconds: int = 600) -> int:
    """Run the tests in a process of their own on a wrong version (None: on the sound one); its id.

    It ends when it has used the processor for ``seconds``.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 3
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        if mutant is not None:
            sound = importlib.machinery.SourceFileLoader.get_code

            def get_code(loader: importlib.machinery.SourceFileLoader, name: str) -> object:
                return mutant.code if loader.path == str(ROOT / path) else sound(loader, name)

            importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]
        code = int(pytest.main([*OPTIONS, *(["-k", subject.choice] if subject.choice else []), *subject.tests]))
        if mutant is None and not code:
            log.write_text("\n".join(name for name in sys.modules if not own(name)))
    finally:
        os._exit(code)


def sound(path: str, subject: Subject, log: Path) -> tuple[float, float]:
    """Seconds of the processor and of the clock that the tests take of the sound module, with all libraries loaded.

    Raises:
        RuntimeError: if they fail.
    """
    used = begin = 0.0
    for _ in range(2):  # the second time with all libraries loaded, as every wrong version will run
        begin = time.monotonic()
        _, status, usage = os.wait4(start(path, None, subject, log), 0)
        used = usage.ru_utime + usage.ru_stime
        if status:
            raise RuntimeError(f"the tests of {path} fail without any change: {log.read_text()[-2000:]}")
        for name in log.read_text().splitlines():
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    return used, time.monotonic() - begin


def survivors(path: str, subject: Subject, jobs: int, folder: Path, most: int | None) -> tuple[list[str], list[str]]:
    """The names of the wrong versions of a module that its tests do not notice, and of all that were tried: at most ``most``.

    Raises:
        RuntimeError: if the tests fail on the sound module.
    """
    used, took = sound(path, subject, folder / "sound")
    limit, wait = int(PATIENCE * used) + 5, 2 * PATIENCE * took + 60
    todo = mutants((ROOT / path).read_text(), str(ROOT / path))
    if most is not None and len(todo) > most:
        todo = [todo[i] for i in sorted(random.Random(0).sample(range(len(todo)), most))]
    waiting, running, alive = iter(todo), {}, []
    while True:
        while len(running) < jobs and (mutant := next(waiting, None)) is not None:
            running[start(path, mutant, subject, folder / f"{len(running)}", limit)] = (mutant, time.monotonic())
        if not running:
            return [m.name for m in todo if m.name in set(alive)], [m.name for m in todo]
        for pid, (mutant, since) in list(running.items()):
            if time.monotonic() - since > wait:  # it sleeps for ever
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del running[pid]
                if status == 0:
                    alive.append(mutant.name)
        time.sleep(0.01)


def known() -> Iterator[tuple[str, str]]:
    """Module and name of each survivor that has a reason."""
    module = ""
    for line in SURVIVORS.read_text().splitlines():
        if line.startswith("## "):
            module = line.removeprefix("## ")
        elif line.startswith("- `"):
            yield module, line[3:].rpartition("`: ")[0]


def main() -> int:
    """Break, test, say what survived; 1 if that was not expected."""
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"one of {', '.join(SUBJECTS)}; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="versions tested side by side (2)")
    parser.add_argument("--all", action="store_true", help=f"every wrong version, not a sample of {SAMPLE} where there are more")
    args = parser.parse_args()
    os.chdir(ROOT)
    expected, unknown = set(known()), 0
    for path in args.modules or SUBJECTS:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            alive, tried = survivors(path, SUBJECTS[path], args.jobs, Path(folder), None if args.all else SAMPLE)
        noticed, seconds = len(tried) - len(alive), time.monotonic() - begin
        print(f"{path}: {noticed} of {len(tried)} noticed ({noticed / len(tried):.1%}), {seconds:.0f} s", flush=True)
        for name in alive:
            if (path, name) not in expected:
                unknown += 1
                print(f"  nobody notices: {name}", flush=True)
        for module, name in sorted(expected):
            if module == path and name in tried and name not in alive:
                print(f"  noticed by now, so strike it from {SURVIVORS.name}: {name}", flush=True)
    return int(unknown > 0)


if __name__ == "__main__":
    sys.exit(main())
