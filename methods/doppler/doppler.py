"""DOPPLER: one policy selects the next operation, another places it (Yao et al., "DOPPLER: Dual-Policy Learning for Device
Assignment in Asynchronous Dataflow Graphs").

An episode goes over all operations: SEL picks one of those whose producers are placed, PLC picks its device, and the finished
assignment is measured. Three stages train one policy: imitation of critical path (`Doppler.pretrain`, equation 2), then
reinforcement learning (equation 3) on a simulator, then the same on the real system, which is only another evaluator.

Differences from the paper:

- Sizes of the networks, the number of message passing iterations and the imitation stage's length and learning rate are not
  given; `DopplerConfig` has ours. Messages go along and against the edges and are averaged, not summed, the graph network has
  residual connections, the FFNNs of Z and Y have a LeakyReLU between their two layers (the paper's formula is linear throughout),
  and sums over paths and devices are divided by constants of the graph, so that graphs of other sizes look alike.
- The paper's costs are FLOPs and 4 x bytes (Appendix D); the default here is seconds by the problem's cost model, of which the
  former is the case of one speed and one bandwidth (``costs="appendix-d"`` gives it literally). Features are divided by the
  work of a node or of a device; computation and communication costs of nodes and edges are shown by their logarithm.
- Stage I makes an update of four episodes, not of one, and its policy explores by a fixed ε.
- Devices are masked that an operation may not use or that lack the memory for it (by what was put there so far).
- The reward is the paper's, minus the mean of all earlier ones, but divided by their standard deviation
  (``standardize``), as the weight of the entropy would otherwise depend on the unit of time.
- Devices of inputs, which are everywhere at no cost (Algorithm 1), get no gradient; they have no influence.
- A failed placement counts as ``failure_factor`` times the worst successful one so far.
- With message passing once a step, nodes also show whether they are placed and their estimated start and finish; the paper
  does not say what changes between the steps' messages.
- Both policies share one graph network and one Z; output layers have no bias; the last layer of Y and the layer over the
  concatenation are one, since nothing stands between them.
- Advantages are clipped to ±10. log π and the entropies are sums over all steps of an episode, so the entropy's weight is per step.
- Each stage has its own schedule of rate and ε (the paper does not say whether those of stage III go on from stage II's).

Options beyond the paper, off by default. With the paper's ε-greedy actions the gradient is that of a softmax which did not choose
them: the best action is pushed up or down with nearly every reward, whatever it is, and training often ends on one device.

- ``exploration="softmax"`` draws actions from the policy, sharpened by ``temperature``; ``baseline="others"`` compares the episodes
  of an update with each other; ``keep_best`` lets the best episodes so far take part in every update; ``baseline_memory`` makes
  the paper's baseline forget.
- ``positions`` shows each node its place in the graph. Shards of one operator are alike in all five of the paper's features.
- ``demonstrate`` makes EnumerativeOptimizer's placement the first episode of reinforcement learning; ``replay`` repeats the best
  placement so far with a few operations placed anew, or with ``replay_moves`` some moved together. Neither kind of episode has a
  gradient of its own, but it has as one of the best.
- With ``keep_best``, a stage begins with the best placement of the stage before, if that had the same problem; a demonstration
  comes after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from envs.problem.errors import InputError
from envs.problem.measurement import Measurements
from envs.problem.problem import Problem
from envs.problem.ranges import Count, CountOrNone, NotNegative, Positive, Share, ShareBelowOne, Width
from methods.contract.method import Proposal
from methods.doppler.episode import BY_RULE, LEARNED, Record, new_record, new_state, play
from methods.doppler.features import Costs, Instance, instance
from methods.doppler.network import DopplerNetwork, Encoded
from methods.learning.baselines import RunningMoments
from methods.learning.learned import LearnedMethod
from methods.learning.reinforce import Learner, LearningConfig, advantages
from methods.placing.meta_ops import enumerate_meta_ops
from methods.placing.moves import Neighbours


@dataclass(frozen=True)
class DopplerConfig:
    """Section 7.1's values, and ours where the paper gives none."""

    episodes: Count = 4000
    """Episodes over which learning rate and ε fall (4,000 for ChainMM and FFNN, 8,000 for the Llama graphs)."""
    learning_rate: NotNegative = 1e-4
    """Of Adam, in stages II and III, at their first episode (section 7.1)."""
    final_learning_rate: NotNegative = 1e-7
    """Reached linearly after ``episodes`` (section 7.1), and kept from then on."""
    epsilon: Share = 0.2
    """Probability of a random action, falling linearly to 0."""
    exploration: Literal["epsilon-greedy", "softmax"] = "epsilon-greedy"
    """How actions are chosen: the policy's best, but with probability ``epsilon`` a random one (section 7.1); or drawn from the policy's
    probabilities (not in the paper)."""
    temperature: Positive = 1.0
    """Logits are divided by it where actions are drawn from the policy: below 1, fewer of them differ from its best."""
    entropy: NotNegative = 1e-2
    """Weight of the entropy of both policies."""
    baseline_memory: Count | None = None
    """Earlier rewards that the baseline and the standard deviation remember, exponentially; None remembers all equally."""
    baseline: Literal["earlier", "others"] = "earlier"
    """What is taken off a reward: the mean of all earlier ones, or that of the other episodes of its update."""
    keep_best: CountOrNone = 0
    """How many of a problem's best episodes so far take part in every update again (with ``baseline="others"``)."""
    replay: ShareBelowOne = 0.0
    """Share of an update's episodes that put operations where the best episode so far has them (with ``keep_best``), ..."""
    replay_anew: Share = 0.01
    """... but for this share of them, which the policy places, ..."""
    replay_moves: bool = False
    """... or but for one move of local search (`methods.placing.moves`), half of them from the critical path as it is estimated."""
    demonstrate: bool = False
    """Whether the first episode is the placement of EnumerativeOptimizer (with ``keep_best``)."""
    standardize: bool = True
    """Divide rewards by their standard deviation: that of earlier ones, or of the update's."""
    failure_factor: Positive = 2.0
    """A placement that failed costs this many times the slowest of its problem that did not."""
    episodes_per_update: Count = 1
    """Episodes (of one problem) whose gradients make one update."""
    select: Literal["learned", "longest-path"] = "learned"
    """``longest-path`` is the ablation DOPPLER-PLC."""
    place: Literal["learned", "earliest-start"] = "learned"
    """``earliest-start`` is the ablation DOPPLER-SEL."""
    message_passing: Literal["episode", "step"] = "episode"
    """Once an episode (section 5.3), or once a step (Appendix H.3)."""
    costs: Costs = "seconds"
    """What the features count: seconds by the problem's cost model, or FLOPs and 4 times the bytes as Appendix D has it."""
    inputs_everywhere: bool = True
    """Whether inputs that cost nothing are taken to be on every device (Algorithm 1)."""
    positions: bool = False
    """Whether nodes also show their place in the graph, which tells shards of one operator apart."""
    hidden: Width = 32
    """Units of the graph network and of both policies' hidden layers; the paper gives none."""
    rounds: Count = 3
    """Iterations of message passing, K."""
    imitation_episodes: Count = 2000
    """Episodes of stage I, over all problems."""
    imitation_episodes_per_update: Count = 4
    """Episodes (of one problem) whose gradients make one update of stage I."""
    imitation_learning_rate: NotNegative = 3e-3
    """Of Adam, in stage I, at its first episode."""
    imitation_final_learning_rate: NotNegative = 1e-4
    """Reached linearly at the end of stage I."""

    def __post_init__(self) -> None:
        if self.keep_best and (self.baseline != "others" or self.message_passing != "episode"):
            raise InputError(f"setting 'keep_best' is {self.keep_best}; it needs 'baseline: others' and 'message_passing: episode'")
        if (self.replay or self.demonstrate) and not self.keep_best:
            raise InputError("settings 'replay' and 'demonstrate' work through the best episodes; set 'keep_best' to 1 or more")
        if self.select != "learned" and self.place != "learned":
            raise InputError("settings 'select' and 'place' are both rules, so nothing would be learned; use method critical-path")


class Doppler(LearnedMethod):
    """Dual-policy learning over one problem or several in turn."""

    Config = DopplerConfig
    many_problems = True
    network: DopplerNetwork
    toy_config: ClassVar[dict[str, Any]] = {"episodes": 48, "hidden": 8, "rounds": 2, "learning_rate": 1e-2, "imitation_episodes": 3}

    def __init__(self, config: DopplerConfig, problems: Sequence[Problem], seed: np.random.SeedSequence | int) -> None:
        super().__init__(config, problems, seed)
        self.rng = np.random.default_rng(self.stream(1))
        self.per_step = config.message_passing == "step"
        self.learn_with(
            self._build,
            LearningConfig(
                learning_rate=config.learning_rate,
                final_learning_rate=config.final_learning_rate,
                schedule_updates=-(-config.episodes // config.episodes_per_update),
                entropy=config.entropy,
            ),
        )
        self.episodes = 0
        self.turn = 0
        self.rewards = RunningMoments(len(problems), config.baseline_memory, config.failure_factor, config.standardize)
        self.best: list[list[tuple[float, Record]]] = [[] for _ in problems]
        self.inherited: dict[str, Any] = {}
        self.neighbours: dict[int, Neighbours] = {}
        self._pending: tuple[int, Encoded | None, list[Record], list[Tensor], int] | None = None

    def _build(self) -> DopplerNetwork:
        return DopplerNetwork(self.config.hidden, self.config.rounds, self.per_step, self.config.positions)

    def _instance(self, problem: Problem) -> Instance:
        return instance(problem, self.config.costs, self.config.inputs_everywhere, self.config.positions)

    @property
    def epsilon(self) -> float:
        """The probability of a random action now."""
        return self.config.epsilon * max(0.0, 1.0 - self.episodes / self.config.episodes)

    def propose(self, n: int) -> list[Proposal]:
        self.turn = (self.turn + 1) % len(self.problems)
        inst = self._instance(self.problems[self.turn])
        encoded = None if self.per_step else self.network.encode(inst)
        count = min(n, self.config.episodes_per_update)
        softmax, guides = self.config.exploration == "softmax", self._guides(count)
        guided = [*guides, *[None] * (count - len(guides))]
        played = [self._play(inst, encoded, epsilon=self.epsilon, softmax=softmax, guide=guide) for guide in guided]
        self._pending = (self.turn, encoded, [r for r, _, _ in played], [x for _, _, x in played], len(guides))
        return [Proposal(self.turn, np.stack([p for _, p, _ in played]))]

    def _guides(self, count: int) -> list[np.ndarray]:
        """Where the first of an update's episodes put operations, int64[V] each; -1 leaves one to the policy."""
        c, problem = self.config, self.problems[self.turn]
        if not self.best[self.turn]:
            if self.rewards.rows[self.turn, 0]:
                return []
            known = [self.inherited[problem.content_hash]] if problem.content_hash in self.inherited else []
            known += [enumerate_meta_ops(problem, c.inputs_everywhere)] if c.demonstrate else []
            return [np.asarray(placement, dtype=np.int64) for placement in known[:count]]
        if c.place != "learned":  # a rule goes nowhere else
            return []
        best, repeated = _devices(self.best[self.turn][0][1]), round(count * c.replay)
        if c.replay_moves:
            if self.turn not in self.neighbours:
                self.neighbours[self.turn] = Neighbours(problem, ~self._instance(problem).free)
            return [self.neighbours[self.turn].draw(best, self.rng) for _ in range(repeated)]
        return [np.where(self.rng.random(len(best)) < c.replay_anew, -1, best) for _ in range(repeated)]

    def _play(
        self,
        inst: Instance,
        encoded: Encoded | None,
        *,
        epsilon: float = 0.0,
        softmax: bool = False,
        teach: bool = False,
        guide: np.ndarray | None = None,
    ) -> tuple[Record, np.ndarray, Tensor]:
        """One episode: its record, the placement int16[V], and what nodes showed at each step (message passing once a step).

        Args:
            inst: the problem.
            encoded: its embedding, or None to pass messages anew at every step.
            epsilon: probability of a random action.
            softmax: draw actions from the policy instead of taking its best.
            teach: record what critical path would do in every state.
            guide: where operations are put, int64[V]; -1 leaves one to the policy, None all.
        """
        c, v = self.config, inst.problem.n_nodes
        state, record, uniforms = new_state(inst, c.hidden), new_record(inst), self.rng.random((v, 4))
        by = (BY_RULE if c.select != "learned" else LEARNED, BY_RULE if c.place != "learned" else LEARNED)
        shown = torch.zeros(v if encoded is None else 0, v, 3)
        if encoded is not None:
            scores = self.network.scores(encoded, c.temperature if softmax else 1.0)
            play(inst, (0, v), scores, *by, epsilon, softmax, teach, uniforms, state, record, guide)
            return record, state.device.astype(np.int16), shown
        for h in range(v):
            there = state.device >= 0
            shown[h] = torch.from_numpy(np.stack((there, state.start * there, state.finish * there), axis=1)).float()
            with torch.no_grad():
                scores = self.network.scores(self.network.encode(inst, shown[h : h + 1]), c.temperature if softmax else 1.0)
            state.hidden[:] = 0.0
            np.add.at(state.hidden, state.device[there], scores.placed[there])
            play(inst, (h, h + 1), scores, *by, epsilon, softmax, teach, uniforms, state, record, guide)
        return record, state.device.astype(np.int16), shown

    def update(self, results: Sequence[Measurements]) -> None:
        if self._pending is None:
            return
        index, encoded, records, shown, guided = self._pending
        self._pending = None
        inst = self._instance(self.problems[index])
        cost = results[0].objective
        gains = np.array([self.rewards.advantage(index, float(x)) for x in cost])
        if self.config.baseline == "others":
            records, cost = self._with_best(index, records, cost, guided)
            gains = self._against_others(index, cost)
        self.episodes += len(results[0])
        if not records:
            return
        weights = gains / len(records)
        if encoded is None:
            encoded = self.network.encode(inst, torch.cat(shown))
        selected, placed, *entropies = self.network.log_probabilities(
            encoded, records, teacher=False, free=inst.free, temperature=self.config.temperature
        )
        parts = []
        for rule, log_p, entropy in zip((self.config.select, self.config.place), (selected, placed), entropies, strict=True):
            if rule == "learned":
                parts.append((log_p, entropy))
        log_probs = torch.stack([p for p, _ in parts]).sum(dim=(0, 2))
        entropy = torch.stack([e for _, e in parts]).sum(dim=(0, 2)) / len(records)
        self.learner.step([(log_probs, weights, entropy)])

    def _with_best(self, index: int, records: list[Record], cost: np.ndarray, guided: int) -> tuple[list[Record], np.ndarray]:
        """The update's episodes but for the first ``guided`` and the best before it, which are then the best of all."""
        before = self.best[index]
        everything = [*zip(cost.tolist(), records, strict=True), *before]
        chosen: list[tuple[float, Record]] = []
        for one in sorted(everything, key=lambda x: x[0]):
            if len(chosen) == self.config.keep_best or not np.isfinite(one[0]):
                break
            if all(one[0] != other[0] for other in chosen):  # the same time is most likely the same placement
                chosen.append(one)
        self.best[index] = chosen
        return [*records[guided:], *(r for _, r in before)], np.concatenate((cost[guided:], [c for c, _ in before]))

    def _against_others(self, index: int, objective: np.ndarray) -> np.ndarray:
        """Each reward of an update minus the mean of the others', float64[B]; 0 for a single one."""
        worst = self.rewards.rows[index, 3]
        cost = np.where(np.isfinite(objective), objective, self.config.failure_factor * worst)
        config = LearningConfig(discount=1.0, baseline="others", normalize=self.config.standardize)
        return np.array(advantages([np.array([-c]) for c in cost], config))[:, 0]

    def pretrain(self, problems: Sequence[Problem]) -> dict[str, float]:
        """Stage I: the policy acts, and in every state it meets learns what critical path would do (equation 2)."""
        c = self.config
        updates = -(-c.imitation_episodes // c.imitation_episodes_per_update)
        learner = Learner(
            self.network,
            LearningConfig(
                learning_rate=c.imitation_learning_rate, final_learning_rate=c.imitation_final_learning_rate, schedule_updates=updates
            ),
        )
        losses = []
        for update in range(updates):
            inst = self._instance(problems[update % len(problems)])
            count = min(c.imitation_episodes_per_update, c.imitation_episodes - update * c.imitation_episodes_per_update)
            encoded = None if self.per_step else self.network.encode(inst)
            played = [self._play(inst, encoded, epsilon=c.epsilon, teach=True) for _ in range(count)]
            if encoded is None:
                encoded = self.network.encode(inst, torch.cat([shown for _, _, shown in played]))
            selected, placed, _, _ = self.network.log_probabilities(encoded, [r for r, _, _ in played], teacher=True, free=inst.free)
            log_p = (selected * (c.select == "learned") + placed * (c.place == "learned")).mean(dim=1)
            learner.step([(log_p, np.full(count, 1.0 / count), None)])
            losses.append(-float(log_p.detach().mean()))
        tail = losses[-max(1, len(losses) // 10) :]
        return {"imitation_loss_first": losses[0], "imitation_loss": float(np.mean(tail))}

    def place(self, problem: Problem) -> np.ndarray:
        inst = self._instance(problem)
        before = self.rng.bit_generator.state
        with torch.no_grad():
            encoded = None if self.per_step else self.network.encode(inst)
            _, placement, _ = self._play(inst, encoded)
        self.rng.bit_generator.state = before  # a greedy episode draws nothing that matters
        return placement

    def report(self) -> dict[str, float]:
        return {"episodes": float(self.episodes), "epsilon": self.epsilon}

    def state(self) -> dict[str, Any]:
        return {
            **super().state(),
            "episodes": self.episodes,
            "turn": self.turn,
            "rewards": self.rewards.rows.copy(),
            "best": {str(i): {str(k): _kept(*one) for k, one in enumerate(best)} for i, best in enumerate(self.best)},
            "inherited": dict(self.inherited),
        }

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.episodes, self.turn = int(state["episodes"]), int(state["turn"])
        self.rewards.rows = np.array(state["rewards"], dtype=np.float64)
        self.best = [
            [_restored(self._instance(p), state["best"][str(i)][key]) for key in sorted(state["best"][str(i)], key=int)]
            for i, p in enumerate(self.problems)
        ]
        self.inherited = dict(state["inherited"])
        self._pending = None

    def policy(self) -> dict[str, Any]:
        found = {p.content_hash: torch.from_numpy(_devices(best[0][1])) for p, best in zip(self.problems, self.best, strict=True) if best}
        return {**super().policy(), "best": {**self.inherited, **found}}

    def load_policy(self, policy: dict[str, Any]) -> None:
        super().load_policy(policy)
        self.inherited = dict(policy.get("best", {})) if self.config.keep_best else {}


_KEPT = ("candidates", "node", "device", "features", "open")
"""What learning from an episode once more needs of its record."""


def _devices(record: Record) -> np.ndarray:
    """The placement of an episode, int64[V]."""
    placement = np.empty(len(record.node), dtype=np.int64)
    placement[record.node] = record.device
    return placement


def _kept(cost: float, record: Record) -> dict[str, Any]:
    return {"cost": cost, **{key: getattr(record, key).copy() for key in _KEPT}}


def _restored(inst: Instance, kept: dict[str, Any]) -> tuple[float, Record]:
    return float(kept["cost"]), new_record(inst)._replace(**{key: np.array(kept[key]) for key in _KEPT})
