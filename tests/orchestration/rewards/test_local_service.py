"""Real measurements without the reward service: kept, not repeated, one at a time on a machine."""

import itertools
import threading
import time

import numpy as np

from envs.simulators.fifo.evaluator import Simulator
from orchestration.rewards import local_service as local_host
from orchestration.rewards.local_service import LocalHost
from orchestration.rewards.machine_lock import MachineLock
from orchestration.rewards.measurement_store import MeasurementStore
from orchestration.specs.layout import STORE
from orchestration.specs.sources import build_problem
from orchestration.specs.trial import EvaluatorSpec
from tests.orchestration.sweeps_for_tests import problem_spec


class Counting(Simulator):
    """Pretends to be hardware."""

    calls = 0

    def evaluate(self, *args, **kwargs):
        Counting.calls += 1
        return super().evaluate(*args, **kwargs)


def test_a_placement_is_measured_once_even_after_a_restart(tmp_path, monkeypatch):
    monkeypatch.setattr(local_host, "build_evaluator", lambda spec: Counting())
    problem = build_problem(problem_spec(10))
    batch = np.random.default_rng(0).integers(0, 4, (3, 10)).astype(np.int16)
    expected = Simulator().evaluate(problem, batch)
    calls = []
    for options in ({}, {}, {"cache": False}):
        store = MeasurementStore(tmp_path / STORE)
        Counting.calls = 0
        found = LocalHost(EvaluatorSpec("dataflow", options), store).evaluate(problem, batch, seed=len(calls))
        np.testing.assert_array_equal(found.seconds, expected.seconds)
        calls.append(Counting.calls)
        store.close()
    assert calls == [3, 0, 3]


def test_what_another_protocol_measured_is_not_taken(tmp_path, monkeypatch):
    problem, store, batch = build_problem(problem_spec(10)), MeasurementStore(tmp_path / STORE), np.repeat([[0], [1]], 10, axis=1)
    for name, calls in (("once", 2), ("twice", 2), ("once", 0)):
        monkeypatch.setattr(Counting, "protocol", name, raising=False)
        monkeypatch.setattr(local_host, "build_evaluator", lambda spec: Counting())
        Counting.calls = 0
        LocalHost(EvaluatorSpec("dataflow", {}), store).evaluate(problem, batch)
        assert Counting.calls == calls, name


def test_what_a_trace_measured_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(local_host, "build_evaluator", lambda spec: Counting())
    problem, store = build_problem(problem_spec(10)), MeasurementStore(tmp_path / STORE)
    host, batch = LocalHost(EvaluatorSpec("dataflow", {}), store), np.zeros((2, 10), dtype=np.int16)
    assert host.evaluate(problem, batch, trace=True).start is not None
    Counting.calls = 0
    host.evaluate(problem, batch)
    assert Counting.calls == 0


def test_a_machine_measures_one_thing_at_a_time(tmp_path):
    spans = []

    def measure():
        lock = MachineLock(tmp_path / "lock")
        for _ in range(3):
            with lock.held():
                begin = time.monotonic()
                time.sleep(0.01)
                spans.append((begin, time.monotonic()))

    threads = [threading.Thread(target=measure) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spans.sort()
    assert len(spans) == 9 and all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
