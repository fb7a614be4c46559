"""Placeto: visit every node once and choose its device (Addanki et al. 2019), as GiPH section 5 and Appendix B.7 compare with it.

An episode starts from a placement and visits the operations in topological order; at each, the policy chooses a device among
those it may use, from an embedding of the whole graph: message passing along the edges and against them, then the visited node's
embedding beside the means over its ancestors, its descendants and all that runs in parallel. The policy knows devices by their
number only, so it fits networks of at most ``devices`` devices, and what it learned of one network says little of another.

Trained by REINFORCE on one problem or many; with ``learn: false`` it searches. A traversal needs no measurement, so `place` is
zero-shot. `pretrain` is the stage that DOPPLER gives Placeto for comparison (its Appendix H.4): imitation of critical path.

Differences from the paper:

- Placeto's own paper leaves the order of visits open and trains on measured run times; here the order is topological, rewards are the
  decrease of the objective by each step, relative to the objective of the episode's start, and the learner is that of GiPH.
- Features follow GiPH's Appendix B.7: mean compute time over feasible devices and mean bytes of the out-edges, scaled to [-1, 1] in each
  problem; the present device as its number scaled to [-1, 1]; visited now; visited before.
- Pools are means. Each direction has its own node transform. Infeasible devices have probability 0.
- A co-location group is visited once, at its first task, and moves as one.
- With ``exploration`` a share of devices is drawn at random, falling to nothing over the updates of the learning rate's schedule, as
  DOPPLER trains it (section 7.1, from 0.5); otherwise, and in the rest, devices are drawn from the policy.
- GiPH's discount (γ = 0.97, of the gradient too) is the default: late visits of a long episode hardly count. DOPPLER's sweeps set 1.
- DOPPLER does not say how it pre-trains Placeto; here critical path's own schedule is taught, from random first placements, in the
  states that following it leads to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from envs.problem.errors import InputError
from envs.problem.problem import Problem
from envs.problem.ranges import Count, CountOrNone, NotNegative, Share, Width
from methods.learning.reinforce import Learner, LearningConfig
from methods.learning.stepwise import Episode, EpisodeConfig, EpisodeMethod, Steps
from methods.nets.gpnet import GpNets, make_layout
from methods.nets.gpnet_messages import MessagePassing
from methods.placing.constraints import fit_memory, random_placements, units
from methods.placing.list_scheduling import critical_path

FEATURES = 5
RELATIONS = 4
"""Itself, ancestor, descendant, parallel."""


@dataclass(frozen=True)
class PlacetoConfig(EpisodeConfig):
    """Settings of Placeto; defaults as in GiPH's section 5 and Table 5."""

    rounds: Count = 8
    """k, rounds of message passing."""
    hidden: Width = 32
    """Hidden units of the policy."""
    devices: CountOrNone = 0
    """Devices that the policy can choose among; 0 takes the largest network of the problems."""
    passes: Count = 1
    """Traversals of an episode; a later one goes on from where the one before ended."""
    exploration: Share = 0.0
    """Probability of a random device, falling linearly to 0 over ``learning.schedule_updates``."""
    imitation_episodes: CountOrNone = 0
    """Traversals of `pretrain`, over all problems; each is an update."""
    imitation_learning_rate: NotNegative = 1e-3
    """Of Adam, in `pretrain`."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.exploration <= 1.0:
            raise InputError(f"setting 'exploration' is {self.exploration}; a probability is between 0 and 1")
        if self.exploration and not self.learning.schedule_updates:
            raise InputError("setting 'exploration' falls over 'learning.schedule_updates'; set that to 1 or more")


class PlacetoNetwork(nn.Module):
    """Embedding and policy (Tables 4 and 5: 5 features, embeddings of 5 in each direction, summary of 40)."""

    def __init__(self, rounds: int, hidden: int, devices: int) -> None:
        super().__init__()
        n = FEATURES
        self.transform = nn.ModuleList(nn.Sequential(nn.Linear(n, n), nn.ReLU(), nn.Linear(n, n)) for _ in range(2))
        self.passes = nn.ModuleList(MessagePassing(n, n, edge_features=False, rounds=rounds, reverse=bool(r)) for r in range(2))
        self.policy = nn.Sequential(nn.Linear(2 * n * RELATIONS, hidden), nn.ReLU(), nn.Linear(hidden, devices))

    def forward(self, features: np.ndarray, nets: GpNets, relation: np.ndarray, allowed: np.ndarray) -> Tensor:
        """Log-probabilities of the devices [S, devices] for the visited node of each state.

        Args:
            features: of all tasks of all states, float32[N, 5].
            nets: the task graphs.
            relation: of each task to the one visited in its state, int[N].
            allowed: devices the visited task may use, bool[S, devices].
        """
        x = torch.from_numpy(features)
        x = torch.cat([p(t(x), nets) for t, p in zip(self.transform, self.passes, strict=True)], dim=1)
        n_states = len(allowed)
        of = np.repeat(np.arange(n_states), np.diff(nets.states.task_at))
        group = torch.from_numpy(of * RELATIONS + relation)
        sums = torch.zeros(n_states * RELATIONS, x.shape[1]).index_add(0, group, x)
        counts = torch.bincount(group, minlength=len(sums)).clamp(min=1)
        summary = (sums / counts[:, None]).reshape(n_states, -1)
        return torch.log_softmax(self.policy(summary).masked_fill(torch.from_numpy(~allowed), -torch.inf), dim=1)


class _Tasks:
    """What Placeto sees of one problem: the order of visits, fixed features, and how tasks relate."""

    def __init__(self, problem: Problem, devices: int) -> None:
        self.problem = problem
        graph = problem.graph
        heads = units(problem)
        self.order = graph.topological_order[np.isin(graph.topological_order, heads)]
        """Tasks visited (the first of each co-location group), int64[U]."""
        turn = np.empty(problem.n_nodes, dtype=np.int64)
        turn[self.order] = np.arange(len(self.order))
        self.turn = turn[problem.leaders]
        """When each task's group is visited, int64[V]."""
        compute = (problem.compute_seconds * problem.feasible).sum(axis=1) / problem.feasible.sum(axis=1)
        count = np.maximum(np.bincount(graph.edges[:, 0], minlength=problem.n_nodes), 1)
        output = np.bincount(graph.edges[:, 0], weights=graph.edge_bytes, minlength=problem.n_nodes) / count
        self.fixed = np.stack([_scaled(compute), _scaled(output)], axis=1)
        """Mean compute time and mean output bytes, scaled to [-1, 1], float64[V, 2]."""
        self.allowed = np.zeros((problem.n_nodes, devices), dtype=bool)
        self.allowed[:, : problem.n_devices] = problem.feasible
        self.relation = _relations(problem)

    def features(self, placement: np.ndarray, turn: np.ndarray) -> np.ndarray:
        """The five features of Appendix B.7 for placements [S, V] in which visit ``turn`` [S] is next, float32[S, V, 5]."""
        out = np.empty((*placement.shape, FEATURES), dtype=np.float32)
        out[..., :2] = self.fixed
        out[..., 2] = 2 * placement / max(self.allowed.shape[1] - 1, 1) - 1
        out[..., 3] = self.turn == turn[:, None]
        out[..., 4] = self.turn < turn[:, None]
        return out


def _scaled(values: np.ndarray) -> np.ndarray:
    width = np.ptp(values)
    return (values - values.min()) * (2 / width) - 1 if width > 0 else np.zeros_like(values)


def _relations(problem: Problem) -> np.ndarray:
    """How every task (column) relates to every task (row): itself 0, ancestor 1, descendant 2, parallel 3; int8[V, V]."""
    n, graph = problem.n_nodes, problem.graph
    pointer, ids = graph.in_edges
    above = np.zeros((n, n), dtype=bool)
    for v in graph.topological_order:
        parents = graph.edges[ids[pointer[v] : pointer[v + 1]], 0]
        above[v] = above[parents].any(axis=0)
        above[v, parents] = True
    relation = np.full((n, n), 3, dtype=np.int8)
    relation[above], relation[above.T] = 1, 2
    np.fill_diagonal(relation, 0)
    return relation


def _critical_path(problem: Problem) -> np.ndarray:
    """Critical path's placement with the lowest index among equals, int64[V]."""
    schedule = critical_path(problem, entries_everywhere=True)
    return fit_memory(problem, schedule.device[None, :].astype(np.int16))[0].astype(np.int64)


class Placeto(EpisodeMethod):
    """Device by device through the graph, from a learned policy."""

    Config = PlacetoConfig
    wants_trace = False
    config: PlacetoConfig

    def __init__(self, config: Any, problems: Sequence[Problem], seed: np.random.SeedSequence | int) -> None:
        largest = max((p.n_devices for p in problems), default=1)
        self.devices = config.devices or largest
        if largest > self.devices:
            raise InputError(f"setting 'devices' is {config.devices}, but a network has {largest}; raise it")
        super().__init__(config, problems, seed)
        self.tasks = [_Tasks(p, self.devices) for p in problems]
        self.layout = make_layout(problems, single=True)
        self._live: tuple[list[Episode], GpNets] | None = None

    def _build(self) -> nn.Module:
        return PlacetoNetwork(self.config.rounds, self.config.hidden, self.devices)

    @classmethod
    def episode_steps(cls, config: Any, problem: Problem) -> int:
        return len(units(problem)) * int(config.passes)

    def _choices(self, problem: int) -> int:
        return self.problems[problem].n_nodes * self.config.rounds

    def _nets(self, parts: list[Steps]) -> GpNets:
        of = np.repeat([s.episode.problem for s in parts], [s.stop - s.begin for s in parts])
        return GpNets(self.layout, of, np.concatenate([s.episode.placement[s.rows].ravel() for s in parts]))

    def _policy(self, parts: list[Steps], visits: list[np.ndarray], nets: GpNets) -> Tensor:
        """Log-probabilities [S, devices] at the ``visits`` (counted through the episode) of the steps."""
        features, relation, allowed = [], [], []
        for steps, visit in zip(parts, visits, strict=True):
            tasks = self.tasks[steps.episode.problem]
            turn = visit % len(tasks.order)
            features.append(tasks.features(steps.episode.placement[steps.rows], turn).reshape(-1, FEATURES))
            relation.append(tasks.relation[tasks.order[turn]].ravel())
            allowed.append(tasks.allowed[tasks.order[turn]])
        result: Tensor = self.network(np.concatenate(features), nets, np.concatenate(relation), np.concatenate(allowed))
        return result

    def _move(self, episodes: list[Episode]) -> None:
        parts = [Steps(e, e.now, e.now + 1) for e in episodes]
        if self._live is None or self._live[0] != episodes:
            self._live = (episodes, self._nets(parts))  # the graphs alone count here, and they stay as they are
        with torch.no_grad():
            values = self._policy(parts, [np.array([e.step]) for e in episodes], self._live[1]).numpy().astype(np.float64)
        if not self.config.greedy:
            values += self.steps_rng.gumbel(size=values.shape)
        explore = self.config.exploration * max(0.0, 1.0 - self.learner.updates / max(self.config.learning.schedule_updates, 1))
        if explore and self.config.learn:
            anew = self.steps_rng.random(len(values)) < explore
            values[anew] = np.where(np.isfinite(values[anew]), self.steps_rng.random((int(anew.sum()), values.shape[1])), -np.inf)
        for e, device in zip(episodes, values.argmax(axis=1).tolist(), strict=True):
            tasks = self.tasks[e.problem]
            task = int(tasks.order[e.step % len(tasks.order)])
            placement = e.placement[e.now].copy()
            placement[tasks.problem.leaders == task] = device
            e.choose(device, placement, task)

    def _log_probs(self, parts: list[Steps]) -> tuple[Tensor, Tensor]:
        log_p = self._policy(parts, [np.arange(s.begin, s.stop) for s in parts], self._nets(parts))
        actions = torch.from_numpy(np.concatenate([s.episode.action[s.rows] for s in parts]))
        entropy = -(log_p.exp() * log_p.clamp(min=-1e9)).sum(dim=1)
        return log_p.gather(1, actions[:, None]).squeeze(1), entropy

    def pretrain(self, problems: Sequence[Problem]) -> dict[str, float]:
        """Cross-entropy with the devices of critical path, visit by visit (DOPPLER, Appendix H.4 and equation 2)."""
        learner = Learner(self.network, LearningConfig(learning_rate=self.config.imitation_learning_rate))
        rng, losses = np.random.default_rng(self.stream(3)), []
        for episode in range(self.config.imitation_episodes):
            k = episode % len(problems)
            tasks, taught = self.tasks[k], _critical_path(self.problems[k])
            turn = np.arange(len(tasks.order))
            start = random_placements(tasks.problem, 1, rng)[0].astype(np.int64)
            placement = np.where(tasks.turn < turn[:, None], taught, start)
            nets = GpNets(self.layout, np.full(len(turn), k), placement.ravel())
            features = tasks.features(placement, turn).reshape(-1, FEATURES)
            log_p = self.network(features, nets, tasks.relation[tasks.order].ravel(), tasks.allowed[tasks.order])
            wanted = log_p.gather(1, torch.from_numpy(taught[tasks.order])[:, None]).squeeze(1)
            learner.step([(wanted, np.full(len(turn), 1.0 / len(turn)), None)])
            losses.append(-float(wanted.detach().mean()))
        return {"imitation_loss_first": losses[0], "imitation_loss": losses[-1]} if losses else {}

    def place(self, problem: Problem) -> np.ndarray:
        """The most probable devices in one traversal from a random placement."""
        if problem.n_devices > self.devices:
            raise InputError(
                f"this policy chooses among {self.devices} devices, but network {problem.network.name!r} has {problem.n_devices}; "
                f"train with 'devices: {problem.n_devices}'"
            )
        tasks, layout = _Tasks(problem, self.devices), make_layout([problem], single=True)
        placement = random_placements(problem, 1, np.random.default_rng(self.stream(2)))[0].astype(np.int64)
        nets = GpNets(layout, np.zeros(1), placement)
        for turn, task in enumerate(tasks.order):
            with torch.no_grad():
                features = tasks.features(placement[None, :], np.array([turn]))[0]
                log_p = self.network(features, nets, tasks.relation[task], tasks.allowed[[task]])
            placement[problem.leaders == task] = int(log_p.argmax())
        return fit_memory(problem, placement[None, :].astype(np.int16))[0]
