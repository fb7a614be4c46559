"""The contract of evaluators over the wrappers that stand around them, and over both ways to a machine that measures."""

import os

import pytest

from envs.simulators.fifo.evaluator import Simulator
from envs.testing.contract import EvaluatorContract
from orchestration.rewards.client import ServiceClient
from orchestration.rewards.local_service import LocalHost
from orchestration.rewards.measurement_store import MeasurementStore
from orchestration.rewards.ray_service import start_service
from orchestration.rewards.wrappers import Failing, Noisy
from orchestration.specs.layout import STORE
from orchestration.specs.trial import EvaluatorSpec
from tests.envs.hosts.test_engine import problem_of


class TestNoisy(EvaluatorContract):
    def make(self):
        return Noisy(Simulator(), 0.2)

    def others(self):
        return [Noisy(Simulator(), 0.3), Noisy(Simulator(noise=0.1), 0.2), Simulator()]


class TestFailing(EvaluatorContract):
    def make(self):
        return Failing(Simulator(), 0.3)

    def broken(self):
        return Failing(Simulator(), 0.6)


class TestFailingNoise(EvaluatorContract):
    def make(self):
        return Failing(Noisy(Simulator(), 0.2), 0.3)


class TestLocalHost(EvaluatorContract):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def store(cls, tmp_path_factory):
        cls.kept = MeasurementStore(tmp_path_factory.mktemp("store") / STORE)
        yield
        cls.kept.close()

    def make(self, **options):
        return LocalHost(EvaluatorSpec("simulator", options), self.kept)

    def others(self):
        return [self.make(noise=0.1), self.make(measurement_noise=0.1)]

    def broken(self):
        return self.make(fail=0.6)


@pytest.mark.slow
class TestLocalHostThatMeasures(TestLocalHost):
    """For real; what was measured comes from the store."""

    rows = 3

    def make(self, **options):
        core = f"cpu:{min(os.sched_getaffinity(0))}"
        return LocalHost(EvaluatorSpec("dataflow", {"devices": [core, core], "measuring": {"repetitions": 2}, **options}), self.kept)

    def others(self):
        return [self.make(emulate_links=False)]

    def broken(self):
        return None

    def problem(self):
        return problem_of("ffnn", 2)


@pytest.mark.slow
class TestServiceClient(EvaluatorContract):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def service(cls, ray_session):
        cls.serving = start_service(2)
        yield
        ray_session.kill(cls.serving)

    def make(self, **options):
        return ServiceClient(self.serving, EvaluatorSpec("simulator", options), "trial")

    def others(self):
        return [self.make(noise=0.1)]

    def broken(self):
        return self.make(fail=0.6)


class TestServiceClientOfNoise(TestServiceClient):
    def make(self, **options):
        return super().make(noise=0.2, **options)

    def others(self):
        return []
