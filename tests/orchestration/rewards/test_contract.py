"""The contract of evaluators over the wrappers that stand around them."""

from envs.simulators.fifo.evaluator import Simulator
from envs.testing.contract import EvaluatorContract
from orchestration.rewards.wrappers import Cached, Failing, Noisy


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


class TestCached(EvaluatorContract):
    def make(self):
        return Cached(Simulator())

    def others(self):
        return [Cached(Simulator(noise=0.1))]

    def broken(self):
        return Cached(Failing(Simulator(), 0.6))


class TestCachedNoise(EvaluatorContract):
    def make(self):
        return Cached(Noisy(Simulator(), 0.2))
