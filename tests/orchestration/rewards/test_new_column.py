"""A value more in every row is a line in its declaration: whatever carries measurements carries it then.

The sources are copied, the line is added to the copy, and what a simulator says in it is looked for at the other end of everything.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from envs.problem.errors import InputError
from envs.problem.measurement import Rows
from orchestration.rewards.measurement_store import MeasurementStore

ROOT = Path(__file__).parents[3]
DECLARED = """    temperature: np.ndarray | None = field(default=None, metadata=column(np.float64, np.nan))
    origins: tuple[str, ...] | None = field(default=None, metadata=column(str))
"""
SAID = "        temperature=placements.sum(axis=1) / 8.0, origins=tuple(str(row) for row in placements),\n"

SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import ray

from envs.problem.measurement import Request, Rows, answer, join_rows
from envs.simulators.fifo.evaluator import Simulator
from orchestration.driver.ray_start import start_ray
from orchestration.rewards.client import ServiceClient
from orchestration.rewards.measurement_store import MeasurementStore
from orchestration.rewards.measurement_table import MeasurementTable
from orchestration.rewards.ray_service import start_service
from orchestration.rewards.retry import measure
from orchestration.rewards.wrappers import Failing, Noisy
from orchestration.specs.sources import build_problem
from orchestration.specs.trial import EvaluatorSpec
from tests.orchestration.sweeps_for_tests import problem_spec

problem = build_problem(problem_spec(10))
batch = np.random.default_rng(0).integers(0, 4, (600, 10)).astype(np.int16)


def right(where, rows, placements=batch):
    assert np.array_equal(rows.temperature, placements.sum(axis=1) / 8.0), (where, rows.temperature)
    assert rows.origins == tuple(str(row) for row in placements), (where, rows.origins)
    print(where)


right("simulator", Simulator().evaluate(problem, batch))
right("wrappers", Failing(Noisy(Simulator(), 0.1), 0.5).evaluate(problem, batch))
table = MeasurementTable()
slots, _ = table.slots("p", batch)
table.fill(slots, Simulator().evaluate(problem, batch))
right("table", table.read(slots))

old = MeasurementStore(Path(sys.argv[1]))
found, rows = old.read(("p",), np.zeros((1, 10), np.int16))
assert found.all() and rows[0].temperature is None and rows[0].seconds[0] == 2.0
old.write(("q",), batch, Simulator().evaluate(problem, batch))
found, rows = old.read(("q",), batch[:5])
right("store", join_rows(rows), batch[:5])
old.close()


class Flaky(Simulator):
    tries = 0

    def evaluate(self, problem, placements, seed=0, *, first=0, trace=False):
        whole = super().evaluate(problem, placements, seed, first=first, trace=trace)
        Flaky.tries += 1
        if Flaky.tries == 1:
            return answer(Rows.unknown(len(placements)), Request(problem, placements, seed, first), self.protocol)
        return whole.put(slice(1, 3), Rows.unknown(2)) if Flaky.tries == 2 else whole


right("retry", measure(Flaky(), [Request(problem, batch[:9], 0, 0)])[0], batch[:9])

assert start_ray(None, 2)
service = start_service(2)
client = ServiceClient(service, EvaluatorSpec(), "trial")
right("client", client.evaluate(problem, batch))
right("client, traced", client.evaluate(problem, batch[:3], trace=True), batch[:3])
right("client, from the cache", measure(client, [Request(problem, batch, 0, 0)])[0])
ray.shutdown()
print("everywhere")
"""


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{path.name} has {text.count(old)} times {old!r}"
    path.write_text(text.replace(old, new))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_new_column_comes_through_everything(tmp_path):
    tree, stored = tmp_path / "tree", tmp_path / "measurements.sqlite"
    shutil.copytree(ROOT / "envs", tree / "envs")  # with the compiled kernels beside them
    for name in ("methods", "orchestration", "tests"):
        (tree / name).symlink_to(ROOT / name)
    first = "    start: np.ndarray | None = field("
    edited(tree / "envs" / "problem" / "measurement.py", first, DECLARED + first)
    last = "        finish=finish if trace else None,\n"
    edited(tree / "envs" / "simulators" / "fifo" / "evaluator.py", last, last + SAID)
    store = MeasurementStore(stored)
    store.write(("p",), np.zeros((1, 10), np.int16), Rows(np.zeros(1, np.int8), np.full(1, 2.0), np.full(1, 2.0), "h"))
    store.close()
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(stored)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.endswith("everywhere\n"), done.stdout + done.stderr
    with pytest.raises(InputError, match="has a column 'temperature' that this version does not know; use the version that wrote it"):
        MeasurementStore(stored)
