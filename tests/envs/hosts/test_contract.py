"""The contract of evaluators over what measures for real."""

import os

import pytest

from envs.hosts.engine.host import Engine
from envs.hosts.measuring import Measuring
from envs.hosts.openvino.choice import ToolkitChoice
from envs.testing.contract import EvaluatorContract
from tests.envs.hosts.test_engine import problem_of as sharded_problem
from tests.envs.hosts.test_openvino_host import host_of, write_model
from tests.envs.hosts.test_openvino_host import problem_of as captured_problem

CORE = f"cpu:{min(os.sched_getaffinity(0))}"
NEVER = 1e-9
"""Seconds in which no process has prepared anything."""


@pytest.mark.slow
class TestEngine(EvaluatorContract):
    rows = 3

    def make(self, **options):
        return Engine((CORE, CORE), **{"measuring": Measuring(0, 2, average_last=1), **options})

    def others(self):
        return [self.make(emulate_links=False), self.make(measuring=Measuring(0, 3, average_last=1)), Engine((CORE,))]

    def problem(self):
        return sharded_problem("ffnn", 2)

    def broken(self):
        return self.make(prepare_limit=NEVER)

    def repair(self, evaluator):
        evaluator.prepare_limit = 60.0


@pytest.mark.slow
class TestOpenVinoHost(EvaluatorContract):
    rows = 3

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def model(cls, tmp_path_factory):
        cls.path = tmp_path_factory.mktemp("model") / "small.xml"
        write_model(cls.path)

    def make(self, **options):
        return host_of(self.path, **options)

    def others(self):
        return [self.make(mode="overlapped"), self.make(tolerance=0.1), ToolkitChoice(self.make(), "AUTO")]

    def problem(self):
        return captured_problem(self.path)

    def broken(self):
        return self.make(prepare_limit=NEVER)

    def repair(self, evaluator):
        evaluator.prepare_limit = 60.0
