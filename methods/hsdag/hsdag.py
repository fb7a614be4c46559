"""HSDAG: a structure-aware framework for learning device placements on computation graphs (Duan et al., NeurIPS 2024).

Chains of operations are merged (Appendix G), every group gets features of its type, degrees, fractal dimension, position and
output shape (section 2.3), a GCN embeds them (equation 6), edges are scored (7), the graph is parsed into as many groups as its
dominant edges leave (8-10) and pooled (11), and an MLP draws a device for every group. After every step the embedding of its
group is added to each node's (state renewal). Twenty steps make an episode, from which REINFORCE learns (14).

The steps of an episode do not depend on what is measured meanwhile, so all of them are proposed at once.

Differences from the paper:

- Where the paper leaves something open: the discount is 0.95 and layers have residuals and layer normalisation (as in the authors'
  code), neighbours are those in both directions (equation 15), types are one-hot over those of the one graph, the fractal dimension
  counts other nodes at directed distances, output shapes are on a log scale, and Algorithm 2, which loops without saying for how long,
  parses what was pooled again until no edge is left, as the authors' code does; ``levels: 1`` parses once a step.
- A group's embedding is the mean of its members' times the mean score of its inner edges: parsing (9, 10) is not random and has no
  gradient, so this is the way in which edge scores learn. Equation 8 only explains the scores; nothing is drawn from it.
- State renewal adds a group's embedding to what enters the GCN (after the input MLP), where the sizes agree. The K_epochs updates
  of an episode reuse its groups and devices, without importance weights.
- Of the two edge dropouts of Table 6, ``dropout_network`` drops edges from the whole step (GCN, scores, parsing) and
  ``dropout_parsing`` only from what parsing may merge. Both are drawn anew every step and kept for the update.
- The features of past groups that state renewal adds are taken as observed: the gradient does not pass from step to step.
- A co-location group of the problem is always one node. Captured models have a group for every operation with the weights that only it
  reads, which the paper places one by one; so after merging the chains of Appendix G there are 127, 228 and 392 instead of 237, 435 and 784
  nodes on ResNet-50, Inception-V3 and BERT. ``coarsen: units`` merges chains of such groups: 37, 66 and 109.
- Degrees, fractal dimension and position are those of groups; a group's output shape is its last member's.
- Devices are drawn only among those that all members of a group may use; what still breaks a constraint is repaired before it is
  proposed, and learned from as it was drawn.
- A placement that fails has reward 0. Placements on a single device are rewarded like all others (the authors' code gives them 0).
- Beyond the paper, and off by default: ``baseline``, ``normalize``, ``ranks``, ``entropy``, ``clip``, ``greedy_step``, ``explore``,
  ``imitate``, and ``renewal`` to turn state renewal off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from envs.problem.measurement import Measurements
from envs.problem.problem import Problem
from envs.problem.ranges import Count, CountOrNone, NotNegative, Positive, Share, ShareBelowOne, Width
from methods.contract.method import Proposal
from methods.hsdag.policy import (
    HsdagNetwork,
    Level,
    Step,
    entropies,
    log_policy,
    majority,
    masked_log_softmax,
    of_choice,
    side_by_side,
)
from methods.learning.baselines import RunningMean, spread
from methods.learning.learned import LearnedMethod
from methods.learning.reinforce import LearningConfig
from methods.nets.node_features import FeatureConfig, node_features
from methods.placing.coarsening import Chains, coarsen
from methods.placing.constraints import make_feasible
from methods.placing.graph_parsing import adjacency, parse, pool, undirected


@dataclass(frozen=True)
class HsdagConfig:
    """Settings of HSDAG; defaults are those of Table 6."""

    features: FeatureConfig = field(default_factory=FeatureConfig)
    coarsen: Chains = "operations"
    """Chains to merge before anything else (Appendix G; `methods.placing.coarsening.coarsen`)."""
    hidden_channel: Width = 128
    """Units of every hidden layer, and length of the embeddings."""
    layer_trans: Count = 2
    """Layers of the MLP before the GCN."""
    layer_gnn: Count = 2
    """Layers of the GCN (equation 6)."""
    layer_parsingnet: Count = 2
    """Layers of the MLP φ of the edge scores."""
    activation_final: bool = True
    """Whether a ReLU follows the GCN's last layer."""
    dropout_network: ShareBelowOne = 0.2
    """Share of edges left out of a step."""
    dropout_parsing: ShareBelowOne = 0.0
    """Share of the remaining edges that parsing may not merge."""
    levels: CountOrNone = 0
    """How often the graph is parsed in a step; 0 goes on until no edge is left."""
    learning_rate: NotNegative = 1e-4
    """Learning rate of Adam (Table 6)."""
    max_episodes: CountOrNone = 100
    """0 goes on until the budget is spent."""
    update_timestep: Count = 20
    """Steps of an episode."""
    K_epochs: Count = 4
    """Updates from each episode."""
    discount: Share = 0.95
    """γ of equation 14."""
    baseline: Literal["none", "episode", "average"] = "none"
    """Taken off the rewards: nothing, their mean over the episode, or their moving average over earlier episodes too."""
    normalize: bool = False
    """Divide rewards less the baseline by their standard deviation over the episode."""
    ranks: bool = False
    """Take the rank of each reward in its episode, from −1 to 1, for the reward; then one very slow placement does not drown out
    what little the others differ."""
    discount_steps: bool = True
    """Weigh step i by γ^i; off weighs all steps alike."""
    entropy: NotNegative = 0.0
    """Weight of the policy's entropy in the objective."""
    explore: NotNegative = 0.0
    """Groups a step, on average, whose device is drawn evenly among those allowed instead of by the policy; the update still
    follows ∇ log p, so that a good device is learned however rarely the policy would draw it."""
    imitate: NotNegative = 0.0
    """Weight of log p of the best placement so far, in every step's groups, beside the objective of equation 14."""
    renewal: bool = True
    """Add the embedding of its group to each node after a step (state renewal)."""
    clip: Positive | None = None
    """Largest norm of the gradient."""
    greedy_step: bool = False
    """Take the most probable devices in the last step of an episode instead of drawing them."""


class Hsdag(LearnedMethod):
    """Groups and places jointly, by graph parsing and REINFORCE."""

    Config = HsdagConfig
    config: HsdagConfig
    network: HsdagNetwork

    def __init__(self, config: Any, problems: Sequence[Problem], seed: np.random.SeedSequence | int) -> None:
        super().__init__(config, problems, seed)
        problem = self.problem
        self.coarse = coarsen(problem, config.coarsen)
        self.edges = undirected(self.coarse.edges, self.coarse.n_nodes)
        self.features = torch.from_numpy(node_features(problem.graph, self.coarse, config.features))
        self.allowed = self.coarse.allowed(problem.feasible)
        c = config
        self.learn_with(self._build, LearningConfig(learning_rate=c.learning_rate, entropy=c.entropy, clip=c.clip))
        self.steps: list[Step] = []
        self.rewards: list[float] = []
        self.memory = self._no_memory()
        self.average = RunningMean(keep=0.9, share=0.1)
        self.episode = 0
        self.best = float("inf")
        self.best_devices = np.zeros(self.coarse.n_nodes, dtype=np.int64)

    def _build(self) -> HsdagNetwork:
        c = self.config
        return HsdagNetwork(
            self.features.shape[1], self.problem.n_devices, c.hidden_channel, c.layer_trans, c.layer_gnn, c.layer_parsingnet,
            c.activation_final,
        )  # fmt: skip

    def _no_memory(self) -> Tensor:
        return torch.zeros(self.coarse.n_nodes, self.config.hidden_channel)

    @classmethod
    def wanted_evaluations(cls, config: Any, problems: Callable[[], Sequence[Problem]]) -> int | None:
        return config.max_episodes * config.update_timestep or None

    def propose(self, n: int) -> list[Proposal]:
        """The next steps of the present episode, at most ``n``."""
        c = self.config
        if c.max_episodes and self.episode >= c.max_episodes:
            return []
        begin = len(self.steps)
        with torch.no_grad():
            inputs = self.network.input(self.features)
            while len(self.steps) < min(begin + n, c.update_timestep):
                greedy = c.greedy_step and len(self.steps) + 1 == c.update_timestep
                self.steps.append(self._step(inputs, greedy))
        devices = np.stack([s.choice[s.final_group][self.coarse.group] for s in self.steps[begin:]])
        return [Proposal(0, make_feasible(self.problem, devices.astype(np.int16)))]

    def _step(self, inputs: Tensor, greedy: bool) -> Step:
        """Encode, parse and pool until the groups are final, draw their devices, and renew the state."""
        c = self.config
        edges = self.edges[self.rng.random(len(self.edges)) >= c.dropout_network]
        x, levels = inputs + self.memory, []
        while True:
            z = self.network.embed(x, adjacency(len(x), edges))
            scores = self.network.score(z, edges)
            may = self.rng.random(len(edges)) >= c.dropout_parsing if c.dropout_parsing else slice(None)
            labels = parse(len(x), edges[may], scores.numpy()[may])
            level = Level(edges, labels, int(labels.max()) + 1)
            levels.append(level)
            x = self.network.pool(z, scores, level)
            edges = pool(edges, labels, level.groups)
            if len(levels) == c.levels or not len(edges):
                break
        step = Step(self.memory, levels, np.empty((0, 0), dtype=bool), np.empty(0, dtype=np.int64))
        group = step.final_group
        step.allowed = self._shared(group, len(x))
        log_p = masked_log_softmax(self.network.placer(x), step.allowed).numpy()
        step.choice = self._drawn(log_p, greedy)
        if c.renewal:
            self.memory = self.memory + x[torch.from_numpy(group)]
        return step

    def _drawn(self, log_p: np.ndarray, greedy: bool) -> np.ndarray:
        """A device for every group from log π [C, D], or the most probable ones, int64[C]."""
        if greedy:
            return np.argmax(log_p, axis=1)
        if self.config.explore:
            even = self.rng.random(len(log_p)) < self.config.explore / len(log_p)
            log_p = np.where(even[:, None] & np.isfinite(log_p), 0.0, log_p)
        return np.argmax(log_p + self.rng.gumbel(size=log_p.shape), axis=1)

    def _shared(self, group: np.ndarray, n: int) -> np.ndarray:
        """Devices that all members of each final group may use, bool[n, D]; all devices where there is none (repaired later)."""
        if self.allowed.all():
            return np.ones((n, self.problem.n_devices), dtype=bool)
        refused = np.zeros((n, self.problem.n_devices), dtype=bool)
        np.logical_or.at(refused, group, ~self.allowed)
        return ~refused | refused.all(axis=1, keepdims=True)

    def update(self, results: Sequence[Measurements]) -> None:
        for result in results:
            objective = np.maximum(result.objective, np.finfo(np.float64).tiny)
            self.rewards += (1.0 / objective).tolist()
            if len(objective) and objective.min() < self.best:
                self.best = float(objective.min())
                self.best_devices = result.placements[int(objective.argmin())][self.coarse.last].astype(np.int64)
        if len(self.rewards) >= self.config.update_timestep:
            self._learn()
            self.episode += 1
            self.steps, self.rewards, self.memory = [], [], self._no_memory()

    def weights(self, rewards: np.ndarray) -> np.ndarray:
        """What ∇ log p of every step is multiplied by: γ^i r_i for i = 1 … x (equation 14), float64[x]."""
        c = self.config
        value = 2.0 * (rankdata(rewards) - 1.0) / max(len(rewards) - 1, 1) - 1.0 if c.ranks else rewards
        if c.baseline != "none":
            mean = float(value.mean())
            average = self.average.add(mean)
            value = value - (mean if c.baseline == "episode" else average)
        if c.normalize:
            value = value / spread(value)
        return value * c.discount ** np.arange(1, len(rewards) + 1) if c.discount_steps else value

    def _learn(self) -> None:
        c, count = self.config, len(self.steps)
        weights = self.weights(np.array(self.rewards))
        together = side_by_side(self.steps)
        imitates = c.imitate > 0 and np.isfinite(self.best)
        if imitates:
            best = majority(self.steps, self.best_devices, self.problem.n_devices)
            weights = np.concatenate((weights, np.full(count, c.imitate)))
        for _ in range(c.K_epochs):
            log_pi = log_policy(self.network, self.features, together, count)
            log_p = of_choice(log_pi, together, together.choice, count)
            if imitates:
                log_p = torch.cat((log_p, of_choice(log_pi, together, best, count)))
            self.learner.step([(log_p, weights, entropies(log_pi, together, count) if c.entropy else None)])

    def state(self) -> dict[str, Any]:
        return {
            **super().state(),
            "steps": [_written(s) for s in self.steps],
            "rewards": list(self.rewards),
            "memory": self.memory.clone(),
            "average": self.average.value,
            "episode": self.episode,
            "best": self.best,
            "best_devices": self.best_devices.copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.steps = [_read(s) for s in state["steps"]]
        self.rewards, self.memory = list(state["rewards"]), state["memory"].clone()
        self.episode = int(state["episode"])
        self.average.restore({"count": self.episode, "value": state["average"]})
        self.best, self.best_devices = float(state["best"]), np.array(state["best_devices"])

    def report(self) -> dict[str, float]:
        """Nodes after coarsening, episodes and updates so far."""
        return {"groups": float(self.coarse.n_nodes), "episodes": float(self.episode), **super().report()}


def _written(step: Step) -> dict[str, Any]:
    levels = [{"edges": level.edges.copy(), "labels": level.labels.copy(), "groups": level.groups} for level in step.levels]
    return {"memory": step.memory.clone(), "levels": levels, "allowed": step.allowed.copy(), "choice": step.choice.copy()}


def _read(state: dict[str, Any]) -> Step:
    levels = [Level(level["edges"], level["labels"], int(level["groups"])) for level in state["levels"]]
    return Step(state["memory"].clone(), levels, state["allowed"], state["choice"])
