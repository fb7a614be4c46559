"""The contract of evaluators over this project's simulators and the example's evaluator; and that it notices what is wrong."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from envs.problem.measurement import Outcome
from envs.simulators.fifo.evaluator import ReferenceSimulator, Simulator
from envs.simulators.relocation import Relocating
from envs.simulators.work_conserving.discipline import Discipline
from envs.simulators.work_conserving.evaluator import ReferenceWorkConservingSimulator, WorkConservingSimulator
from envs.testing.contract import EvaluatorContract
from envs.testing.problems import mixed_placements

EXAMPLE = Path(__file__).parents[3] / "examples" / "plugin"


class TestSimulator(EvaluatorContract):
    def make(self):
        return Simulator()

    def others(self):
        return [Simulator(noise=0.1), Simulator(noise=0.2)]


class TestNoisySimulator(EvaluatorContract):
    def make(self):
        return Simulator(noise=0.2, threads=2)


class TestEnergy(TestSimulator):
    def problem(self):
        problem = super().problem()
        return replace(problem, network=replace(problem.network, power=[3.0, 2.0, 5.0], idle_power=0.5), objective="energy")


class TestThroughput(TestNoisySimulator):
    def problem(self):
        return replace(super().problem(), objective="throughput")


class TestReferenceSimulator(EvaluatorContract):
    def make(self):
        return ReferenceSimulator(noise=0.2)


class TestWorkConservingSimulator(EvaluatorContract):
    def make(self):
        return WorkConservingSimulator()

    def others(self):
        disciplines = (Discipline(channels=2), Discipline(sharing="bus"), Discipline(synchronous=True), Discipline("longest-path"))
        others = [WorkConservingSimulator(d) for d in disciplines]
        return [*others, WorkConservingSimulator(noise=0.1), WorkConservingSimulator(inputs_everywhere=False)]


class TestSampledWorkConservingSimulator(EvaluatorContract):
    def make(self):
        return WorkConservingSimulator(noise=0.2, samples=3)

    def others(self):
        return [WorkConservingSimulator(noise=0.2, samples=2)]


class TestReferenceWorkConservingSimulator(EvaluatorContract):
    def make(self):
        return ReferenceWorkConservingSimulator(noise=0.2)


class TestRelocating(EvaluatorContract):
    def make(self):
        return Relocating(Simulator(noise=0.1), 10.0)

    def others(self):
        return [Relocating(Simulator(noise=0.1), 1.0), Relocating(Simulator(), 10.0), Relocating(Simulator(noise=0.1), 10.0, static=True)]


def test_an_outside_evaluator_passes_the_contract(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [EXAMPLE.parents[1], EXAMPLE]))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests" / "test_busiest_device.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("." * 13 + "s "), "it cannot fail for reasons of infrastructure, so that is skipped"


@dataclass(frozen=True)
class Wrong(Simulator):
    """A simulator with one mistake."""

    mistake: str = ""

    @property
    def protocol(self):
        return "wrong" if self.mistake == "protocol" else super().protocol

    @property
    def deterministic(self):
        return self.mistake == "seed" or super().deterministic

    @property
    def traces(self):
        return self.mistake != "trace"

    def evaluate(self, problem, placements, seed=0, *, first=0, trace=False):
        m = super().evaluate(problem, placements, seed, first=0 if self.mistake == "first" else first, trace=trace)
        changes = {
            "type": {"seconds": m.seconds.astype(np.float32)},
            "penalty": {"objective": np.where(m.ok, m.objective, 1e9)},
            "invalid": {"outcome": np.where(m.outcome == Outcome.INVALID, np.int8(Outcome.OUT_OF_MEMORY), m.outcome)},
            "host": {"host": "elsewhere"},
            "first": {"first": first},
        }
        return replace(m, **changes.get(self.mistake, {}))


@pytest.mark.parametrize(
    ("mistake", "noticed"),
    [
        ("protocol", "test_the_protocol_says_how_it_measures"),
        ("seed", "test_the_seed_matters_just_where_the_evaluator_says_so"),
        ("first", "test_a_row_does_not_depend_on_its_batch"),
        ("trace", "test_a_trace_is_made_on_request_alone"),
        ("invalid", "test_what_cannot_run_is_an_outcome"),
        ("host", "test_many_requests_are_answered_as_each_alone"),
        ("type", "test_every_column_has_its_shape_and_type"),
        ("penalty", "test_every_column_has_its_shape_and_type"),
    ],
)
def test_a_mistake_is_noticed(mistake, noticed):
    class Suite(EvaluatorContract):
        def make(self):
            return Wrong(noise=0.2, mistake=mistake)

        def others(self):
            return [Wrong(noise=0.3, mistake=mistake)]

    suite = Suite()
    arguments = [suite.make()]
    if mistake != "protocol":
        arguments.append(mixed_placements(suite.problem(), suite.rows))
    if "column" in noticed:
        arguments.append(False)
    with pytest.raises(AssertionError):
        getattr(suite, noticed)(*arguments)
