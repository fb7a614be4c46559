"""PPO and REINFORCE: the clipped objective and the baselines against their definitions, and both on problems with a known optimum."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn

from envs.problem.errors import InputError
from envs.problem.measurement import Outcome
from envs.simulators.fifo.evaluator import Simulator
from methods.contract.config import make_config
from methods.learning.baselines import RunningBaseline
from methods.learning.ppo import PolicyGradientConfig, minibatches, root_rewards, surrogate_weights
from methods.learning.whole_placements import SampledMethod, gumbel
from methods.nets.decisions import decide
from methods.testing.problems import brute_force, toy
from methods.testing.running import go


@pytest.mark.parametrize("ratio", ["decision", "placement"])
def test_the_weights_give_the_gradient_of_the_clipped_objective(ratio):
    rng = torch.Generator().manual_seed(1)
    new = (torch.randn(6, 4, generator=rng) * 0.3).requires_grad_()
    old, advantage = torch.randn(6, 4, generator=rng) * 0.3, torch.randn(6, generator=rng)
    config = PolicyGradientConfig(ratio=ratio)
    r = (new - old).exp() if ratio == "decision" else (new - old).sum(dim=1, keepdim=True).exp()
    a = advantage[:, None]
    torch.minimum(r * a, r.clamp(0.8, 1.2) * a).sum().backward()
    weights = surrogate_weights(new, old, advantage, config)
    torch.testing.assert_close(weights, new.grad)
    assert (weights == 0).any()
    assert (weights != 0).any()


def test_at_the_old_policy_ppo_is_reinforce():
    log_p, advantage = torch.log(torch.rand(3, 5)), torch.tensor([1.0, -2.0, 0.5])
    weights = surrogate_weights(log_p, log_p, advantage, PolicyGradientConfig())
    torch.testing.assert_close(weights, advantage[:, None].expand(3, 5))


def test_the_moving_average_follows_equation_7_of_mars():
    rewards = np.array([-3.0, -1.0, -2.0, -5.0])
    b, expected = -3.0, [0.0]
    for r in rewards[1:]:
        b = 0.01 * r + 0.99 * b
        expected.append(r - b)
    whole = RunningBaseline("ema", PolicyGradientConfig().decay)
    np.testing.assert_allclose(whole.advantages(rewards), expected)
    parts = RunningBaseline("ema", PolicyGradientConfig().decay)
    first = parts.advantages(rewards[:2])
    resumed = RunningBaseline("ema", PolicyGradientConfig().decay)
    resumed.restore(parts.state())
    np.testing.assert_allclose(np.concatenate((first, resumed.advantages(rewards[2:]))), expected)


def test_the_average_baseline_is_the_mean_of_all_earlier_rewards():
    rewards = np.array([-3.0, -1.0, -2.0, -5.0])
    found = RunningBaseline("average", 0.99).advantages(rewards)
    np.testing.assert_allclose(found, [0.0, -1.0 + 3.0, -2.0 + 2.0, -5.0 + 2.0])


def test_rewards_of_what_ran_failed_and_was_slow():
    measured = Simulator().evaluate(toy(), np.zeros((4, 9), dtype=np.int16), 0)
    measured.objective[:] = [4.0, np.inf, 30.0, np.inf]
    measured.outcome[:] = [Outcome.OK, Outcome.OUT_OF_MEMORY, Outcome.OK, Outcome.TOO_SLOW]
    np.testing.assert_allclose(root_rewards(measured, PolicyGradientConfig()), [-2, -10, -np.sqrt(30), -10])
    limited = PolicyGradientConfig(slow_seconds=20.0)
    np.testing.assert_allclose(root_rewards(measured, limited), [-2, -10, -np.sqrt(20), -np.sqrt(20)])


def test_every_epoch_shows_every_sample_once():
    rows = list(minibatches(20, PolicyGradientConfig(), np.random.default_rng(0)))
    assert [len(r) for r in rows] == [5] * 12
    for epoch in range(3):
        assert sorted(np.concatenate(rows[4 * epoch : 4 * epoch + 4]).tolist()) == list(range(20))


def test_refuses_what_makes_no_sense():
    with pytest.raises(InputError, match=r"'samples' needs .* not 0"):
        make_config(PolicyGradientConfig, {"samples": 0})
    with pytest.raises(InputError, match="'decay'"):
        make_config(PolicyGradientConfig, {"decay": 1.0})


@dataclass(frozen=True)
class TableConfig:
    learning: PolicyGradientConfig = field(default_factory=PolicyGradientConfig)
    repair: bool = True


class Table(nn.Module):
    """A policy without a network: a logit for every operation and device."""

    def __init__(self, n, d):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(1, n, d))

    def forward(self, view, actions, noise):
        return decide(self.logits, None, actions, noise)


class TableMethod(SampledMethod):
    def _view(self, problem):
        return problem

    def _build(self):
        return Table(self.problem.n_nodes, self.devices)

    def _noise(self, view, count):
        return gumbel(self.sampling, (count, view.n_nodes, view.n_devices))

    def _device_of(self, view, actions):
        return actions.astype(np.int16)


@pytest.mark.parametrize(
    ("learning", "budget"),
    [
        ({"learning_rate": 0.05, "decay": 0.9}, 800),
        ({"algorithm": "reinforce", "samples": 16, "window": 16, "learning_rate": 0.1, "decay": 0.9}, 1600),
    ],
    ids=["ppo", "reinforce"],
)
def test_learns_the_best_of_512_placements(learning, budget):
    problem = toy()
    best, mean = brute_force(problem)
    method = TableMethod(make_config(TableConfig, {"learning": learning}), [problem], 3)
    run = go(method, budget)
    placed = Simulator().evaluate(problem, method.place(problem)[None], 0).objective[0]
    assert placed <= best + 0.1 * (mean - best)
    assert np.mean(run.objective[-100:]) <= best + 0.3 * (mean - best)
    assert np.mean(run.objective[:20]) > best + 0.6 * (mean - best)
