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
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import pytest

from tests.mutation.mutate import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
SURVIVORS = Path(__file__).with_name("survivors.md")
SUBJECTS: dict[str, list[str]] = {
    "orchestration/specs/canonical.py": ["tests/orchestration/specs/test_trial.py"],
    "orchestration/specs/trial.py": ["tests/orchestration/specs/test_trial.py"],
    "orchestration/analysis/statistics.py": ["tests/orchestration/analysis/test_statistics.py"],
}
"""What is broken, and the tests that must notice."""
OPTIONS = ["-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile", "mutants"]
PATIENCE = 10.0
"""Times as long as sound code that a wrong version may take; whatever takes longer never ends, and is noticed by that."""


def own(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] in ("envs", "methods", "orchestration", "tests")


def start(path: str, mutant: Mutant | None, tests: list[str], log: Path) -> int:
    """Run the tests in a process of their own on a wrong version (None: on the sound one); its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 3
    try:
        os.setpgid(0, 0)
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        if mutant is not None:
            sound = importlib.machinery.SourceFileLoader.get_code

            def get_code(loader: importlib.machinery.SourceFileLoader, name: str) -> object:
                return mutant.code if loader.path == str(ROOT / path) else sound(loader, name)

            importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]
        code = int(pytest.main([*OPTIONS, *tests]))
        if mutant is None and not code:
            log.write_text("\n".join(name for name in sys.modules if not own(name)))
    finally:
        os._exit(code)


def survivors(path: str, tests: list[str], jobs: int, folder: Path) -> tuple[list[str], int]:
    """The names of the wrong versions of a module that its tests do not notice, and how many versions there are.

    Raises:
        RuntimeError: if the tests fail on the sound module.
    """
    log, begin = folder / "sound", time.monotonic()
    for _ in range(2):  # the second time with all libraries loaded, as every wrong version will run
        begin = time.monotonic()
        if os.waitpid(start(path, None, tests, log), 0)[1]:
            raise RuntimeError(f"the tests of {path} fail without any change: {log.read_text()[-2000:]}")
        for name in log.read_text().splitlines():
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    limit = max(20.0, PATIENCE * (time.monotonic() - begin))
    todo = mutants((ROOT / path).read_text(), str(ROOT / path))
    waiting, running, alive = iter(todo), {}, []
    while True:
        while len(running) < jobs and (mutant := next(waiting, None)) is not None:
            running[start(path, mutant, tests, folder / f"{len(running)}")] = (mutant, time.monotonic())
        if not running:
            return [m.name for m in todo if m.name in set(alive)], len(todo)
        for pid, (mutant, since) in list(running.items()):
            if time.monotonic() - since > limit:
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
    args = parser.parse_args()
    os.chdir(ROOT)
    expected, unknown = set(known()), 0
    for path in args.modules or SUBJECTS:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            alive, count = survivors(path, SUBJECTS[path], args.jobs, Path(folder))
        seconds = time.monotonic() - begin
        print(f"{path}: {count - len(alive)} of {count} noticed ({1 - len(alive) / count:.1%}), {seconds:.0f} s", flush=True)
        for name in alive:
            if (path, name) not in expected:
                unknown += 1
                print(f"  nobody notices: {name}", flush=True)
        for module, name in sorted(expected):
            if module == path and name not in alive:
                print(f"  noticed by now, so strike it from {SURVIVORS.name}: {name}", flush=True)
    return int(unknown > 0)


if __name__ == "__main__":
    sys.exit(main())
