"""DOPPLER: one policy selects the next operation, another places it (Yao et al., "DOPPLER: Dual-Policy Learning for Device
Assignment in Asynchronous Dataflow Graphs").

An episode goes over all operations: SEL picks one of those whose producers are placed, PLC picks its device, and the finished
assignment is measured. Three stages train one policy: imitation of critical path (`Doppler.pretrain`, equation 2), then
reinforcement learning (equation 3) on a simulator, then the same on the real system, which is only another evaluator.

Differences from the paper:

- Sizes of the networks, the number of message passing iterations and the imitation stage's length and learning rate are not
  given; `DopplerConfig` has ours. Messages are averaged, not summed, the graph network has residual connections, and sums over
  paths and devices are divided by constants of the graph, so that graphs of other sizes look alike.
- The paper's costs are FLOPs and 4 x bytes (Appendix D); the default here is seconds by the problem's cost model, of which the
  former is the case of one speed and one bandwidth (``costs="appendix-d"`` gives it literally). Features are divided by the
  work of a node or of a device.
- The reward is the paper's, minus the mean of all earlier ones, but divided by their standard deviation
  (``standardize``), as the weight of the entropy would otherwise depend on the unit of time.
- Devices of inputs, which are everywhere at no cost (Algorithm 1), get no gradient; they have no influence.
- With ``baseline_memory`` the baseline forgets, which keeps it near the rewards of a policy that has become much better.
- With ``exploration="softmax"`` actions are drawn from the policy in place of ε-greedy ones. The default is the paper's.
- A failed placement counts as ``failure_factor`` times the worst successful one so far.
- With message passing once a step, nodes also show whether they are placed and their estimated start and finish; the paper
  does not say what changes between the steps' messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from envs.errors import InputError
from envs.measurement import Measurements
from envs.problem import Problem
from methods.common.contract import Method, Proposal
from methods.common.doppler_episode import BY_RULE, LEARNED, Record, new_record, new_state, play
from methods.common.doppler_features import Costs, Instance, instance
from methods.common.doppler_network import DopplerNetwork, Encoded
from methods.common.reinforce import Learner, LearningConfig, seeded_network


@dataclass(frozen=True)
class DopplerConfig:
    """Section 7.1's values, and ours where the paper gives none."""

    episodes: int = 4000
    """Episodes over which learning rate and ε fall (4,000 for ChainMM and FFNN, 8,000 for the Llama graphs)."""
    learning_rate: float = 1e-4
    final_learning_rate: float = 1e-7
    epsilon: float = 0.2
    """Probability of a random action, falling linearly to 0."""
    exploration: Literal["epsilon-greedy", "softmax"] = "epsilon-greedy"
    entropy: float = 1e-2
    """Weight of the entropy of both policies."""
    baseline_memory: int | None = None
    """Earlier rewards that the baseline and the standard deviation remember, exponentially; None remembers all equally."""
    standardize: bool = True
    """Divide rewards by the standard deviation of earlier ones."""
    failure_factor: float = 2.0
    episodes_per_update: int = 1
    """Episodes (of one problem) whose gradients make one update."""
    select: Literal["learned", "longest-path"] = "learned"
    """``longest-path`` is the ablation DOPPLER-PLC."""
    place: Literal["learned", "earliest-start"] = "learned"
    """``earliest-start`` is the ablation DOPPLER-SEL."""
    message_passing: Literal["episode", "step"] = "episode"
    """Once an episode (section 5.3), or once a step (Appendix H.3)."""
    costs: Costs = "seconds"
    inputs_everywhere: bool = True
    """Whether inputs that cost nothing are taken to be on every device (Algorithm 1)."""
    hidden: int = 32
    rounds: int = 3
    """Iterations of message passing, K."""
    imitation_episodes: int = 200
    """Episodes of stage I, over all problems."""
    imitation_learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        for key in ("episodes", "episodes_per_update", "hidden", "rounds", "imitation_episodes", "baseline_memory"):
            if getattr(self, key) is not None and getattr(self, key) < 1:
                raise InputError(f"setting {key!r} is {getattr(self, key)}; doppler needs at least 1")
        if not 0.0 <= self.epsilon <= 1.0:
            raise InputError(f"setting 'epsilon' is {self.epsilon}; a probability is between 0 and 1")
        if self.select != "learned" and self.place != "learned":
            raise InputError("settings 'select' and 'place' are both rules, so nothing would be learned; use method critical-path")


class Doppler(Method):
    """Dual-policy learning over one problem or several in turn."""

    Config = DopplerConfig
    many_problems = True
    toy_config: ClassVar[dict[str, Any]] = {"episodes": 48, "hidden": 8, "rounds": 2, "learning_rate": 1e-2, "imitation_episodes": 3}

    def __init__(self, config: DopplerConfig, problems: Sequence[Problem], seed: np.random.SeedSequence | int) -> None:
        super().__init__(config, problems, seed)
        network_seed, play_seed = np.random.SeedSequence(self.seed.entropy, spawn_key=self.seed.spawn_key).spawn(2)
        self.rng = np.random.default_rng(play_seed)
        self.per_step = config.message_passing == "step"
        self.network: DopplerNetwork = seeded_network(lambda: DopplerNetwork(config.hidden, config.rounds, self.per_step), network_seed)
        self.learner = self._learner()
        self.episodes = 0
        self.turn = 0
        # Of the rewards of each problem so far: how many, mean, variance, slowest success.
        self.rewards = np.zeros((len(problems), 4))
        self._pending: tuple[int, Encoded | None, list[Record], list[Tensor]] | None = None

    def _learner(self) -> Learner:
        c = self.config
        updates = -(-c.episodes // c.episodes_per_update)
        return Learner(
            self.network,
            LearningConfig(
                learning_rate=c.learning_rate, final_learning_rate=c.final_learning_rate, schedule_updates=updates, entropy=c.entropy
            ),
        )

    def _instance(self, problem: Problem) -> Instance:
        return instance(problem, self.config.costs, self.config.inputs_everywhere)

    @property
    def epsilon(self) -> float:
        """The probability of a random action now."""
        return self.config.epsilon * max(0.0, 1.0 - self.episodes / self.config.episodes)

    def propose(self, n: int) -> list[Proposal]:
        self.turn = (self.turn + 1) % len(self.problems)
        inst = self._instance(self.problems[self.turn])
        encoded = None if self.per_step else self.network.encode(inst)
        count = min(n, self.config.episodes_per_update)
        played = [self._play(inst, encoded, self.epsilon, self.config.exploration == "softmax", teach=False) for _ in range(count)]
        self._pending = (self.turn, encoded, [r for r, _, _ in played], [x for _, _, x in played])
        return [Proposal(self.turn, np.stack([p for _, p, _ in played]))]

    def _play(
        self, inst: Instance, encoded: Encoded | None, epsilon: float, softmax: bool, teach: bool
    ) -> tuple[Record, np.ndarray, Tensor]:
        """One episode: its record, the placement int16[V], and what nodes showed at each step (message passing once a step)."""
        c, v = self.config, inst.problem.n_nodes
        state, record, uniforms = new_state(inst, c.hidden), new_record(inst), self.rng.random((v, 4))
        by = (BY_RULE if c.select != "learned" else LEARNED, BY_RULE if c.place != "learned" else LEARNED)
        shown = torch.zeros(v if encoded is None else 0, v, 3)
        if encoded is not None:
            play(inst, (0, v), self.network.scores(encoded), *by, epsilon, softmax, teach, uniforms, state, record)
            return record, state.device.astype(np.int16), shown
        for h in range(v):
            there = state.device >= 0
            shown[h] = torch.from_numpy(np.stack((there, state.start * there, state.finish * there), axis=1)).float()
            with torch.no_grad():
                scores = self.network.scores(self.network.encode(inst, shown[h : h + 1]))
            state.hidden[:] = 0.0
            np.add.at(state.hidden, state.device[there], scores.placed[there])
            play(inst, (h, h + 1), scores, *by, epsilon, softmax, teach, uniforms, state, record)
        return record, state.device.astype(np.int16), shown

    def update(self, results: Sequence[Measurements]) -> None:
        if self._pending is None:
            return
        index, encoded, records, shown = self._pending
        self._pending = None
        inst = self._instance(self.problems[index])
        weights = np.array([self._advantage(index, float(x)) for x in results[0].objective]) / len(records)
        if encoded is None:
            encoded = self.network.encode(inst, torch.cat(shown))
        selected, placed, *entropies = self.network.log_probabilities(encoded, records, teacher=False, free=inst.free)
        parts = []
        for rule, log_p, entropy in zip((self.config.select, self.config.place), (selected, placed), entropies, strict=True):
            if rule == "learned":
                parts.append((log_p, entropy))
        log_probs = torch.stack([p for p, _ in parts]).sum(dim=(0, 2))
        entropy = torch.stack([e for _, e in parts]).sum(dim=(0, 2)) / len(records)
        self.learner.step([(log_probs, weights, entropy)])
        self.episodes += len(records)

    def _advantage(self, index: int, objective: float) -> float:
        """Reward minus the mean of the problem's earlier ones (section 5.1), by their standard deviation; 0 for the first."""
        count, mean, variance, worst = self.rewards[index]
        if np.isfinite(objective):
            worst = max(worst, objective)
        elif worst == 0.0:  # nothing has succeeded yet, so there is nothing to compare a failure with
            return 0.0
        reward = -(objective if np.isfinite(objective) else self.config.failure_factor * worst)
        advantage = reward - mean if count else 0.0
        if self.config.standardize:
            deviation = np.sqrt(variance)
            advantage = advantage / deviation if deviation > 1e-12 * abs(mean) else float(np.sign(advantage))
        memory = self.config.baseline_memory
        share = 1.0 / (count + 1 if memory is None else min(count + 1, memory))
        difference = reward - mean
        self.rewards[index] = (count + 1, mean + share * difference, (1.0 - share) * (variance + share * difference**2), worst)
        return float(np.clip(advantage, -10.0, 10.0))

    def pretrain(self, problems: Sequence[Problem]) -> dict[str, float]:
        """Stage I: the policy acts, and in every state it meets learns what critical path would do (equation 2)."""
        learner = Learner(self.network, LearningConfig(learning_rate=self.config.imitation_learning_rate))
        losses = []
        for episode in range(self.config.imitation_episodes):
            inst = self._instance(problems[episode % len(problems)])
            encoded = None if self.per_step else self.network.encode(inst)
            record, _, shown = self._play(inst, encoded, self.config.epsilon, False, teach=True)
            if encoded is None:
                encoded = self.network.encode(inst, shown)
            selected, placed, _, _ = self.network.log_probabilities(encoded, [record], teacher=True, free=inst.free)
            log_p = (selected * (self.config.select == "learned") + placed * (self.config.place == "learned")).mean(dim=1)
            learner.step([(log_p, np.ones(1), None)])
            losses.append(-float(log_p.detach()))
        tail = losses[-max(1, len(losses) // 10) :]
        return {"imitation_loss_first": losses[0], "imitation_loss": float(np.mean(tail))}

    def place(self, problem: Problem) -> np.ndarray:
        inst = self._instance(problem)
        before = self.rng.bit_generator.state
        with torch.no_grad():
            encoded = None if self.per_step else self.network.encode(inst)
            _, placement, _ = self._play(inst, encoded, 0.0, False, teach=False)
        self.rng.bit_generator.state = before  # a greedy episode draws nothing that matters
        return placement

    def report(self) -> dict[str, float]:
        return {"episodes": float(self.episodes), "epsilon": self.epsilon}

    def state(self) -> dict[str, Any]:
        return {
            "rng": self.rng.bit_generator.state,
            "learner": self.learner.state(),
            "episodes": self.episodes,
            "turn": self.turn,
            "rewards": self.rewards.copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.rng.bit_generator.state = state["rng"]
        self.learner.restore(state["learner"])
        self.episodes, self.turn = int(state["episodes"]), int(state["turn"])
        self.rewards = np.array(state["rewards"], dtype=np.float64)
        self._pending = None

    def policy(self) -> dict[str, Any]:
        return {key: value.clone() for key, value in self.network.state_dict().items()}

    def load_policy(self, policy: dict[str, Any]) -> None:
        known = self.network.state_dict()
        if set(policy) != set(known) or any(policy[k].shape != known[k].shape for k in known):
            raise InputError("the checkpoint's policy has other sizes than this one; use the same hidden, rounds and message_passing")
        self.network.load_state_dict(policy)
