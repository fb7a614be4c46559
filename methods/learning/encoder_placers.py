"""Encoder-placers: a graph network embeds operations, a placer turns embeddings into devices (GDP Figure 1, Mars Figure 2b).

Both parts are exchangeable. How they are trained does not belong here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from envs.problem.measurement import Measurements
from envs.problem.problem import Problem
from methods.contract.method import Proposal
from methods.learning.elites import Elites, SearchConfig
from methods.learning.whole_placements import Sample, SampledMethod, gumbel
from methods.nets.decisions import BLOCKED, Decisions, decide
from methods.nets.op_features import OpGraph, op_graph
from methods.nets.products import Linear
from methods.nets.seq2seq import Seq2Seq
from methods.placing.list_scheduling import planned_chain
from methods.placing.regions import Regions
from methods.placing.starts import good_starts
from methods.placing.twin_devices import Twins

Encoder = TypeVar("Encoder", bound=nn.Module)

KEPT = 0.1
"""Share of its own logits that a unit keeps in every round of `spread_logits`."""
AGREEING = 20
"""Rounds of `agreed`."""


class EncoderPlacer(nn.Module, Generic[Encoder]):
    """Devices of all units of an `OpGraph`.

    Args:
        encoder: from an `OpGraph` to embeddings [N, H].
        placer: a `Seq2Seq`, or a module from embeddings to logits [N, D] of independent decisions.
        train_encoder: whether the encoder learns with the placer or stays as it is.
        standardize: give each number of the embeddings mean 0 and deviation 1 over the units of the graph. An untrained graph network
            makes units nearly alike, and so are then their devices.
        spread: rounds of `spread_logits`; of independent decisions only.
        speed: what the devices' log speeds (`OpGraph.log_speed`) count in the logits; likewise.
    """

    def __init__(
        self,
        encoder: Encoder,
        placer: nn.Module,
        train_encoder: bool = True,
        standardize: bool = False,
        spread: int = 0,
        speed: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder, self.placer, self.standardize, self.spread, self.speed = encoder, placer, standardize, spread, speed
        self._kept: tuple[OpGraph, list[int], Tensor] | None = None
        encoder.requires_grad_(train_encoder)

    def embedding(self, view: OpGraph) -> Tensor:
        """What the placer is given of every unit, [N, H]."""
        h: Tensor = self.encoder(view)
        if self.standardize:
            h = h - h.mean(dim=0)
            h = h / (h.square().mean(dim=0).sqrt() + 1e-5)
        return h

    def forward(self, view: OpGraph, actions: Tensor | None, noise: Tensor | None, keep: bool = False) -> Decisions:
        """Decisions on all units, as `methods.nets.decisions.decide` has them.

        Where they are independent, ``keep`` keeps their logits and what their gradient needs until the weights change, so that drawing
        again and the first step of learning need not work them out anew.
        """
        allowed = view.allowed[None]
        if isinstance(self.placer, Seq2Seq):
            made: Decisions = self.placer(self.embedding(view)[None], allowed, actions, noise)
            return made
        return decide(self._logits_now(view, keep)[None], allowed, actions, noise)

    def _logits_now(self, view: OpGraph, keep: bool) -> Tensor:
        """The kept logits of this graph and these weights, or new ones; a kept gradient serves once."""
        versions = [p._version for p in self.parameters()]
        kept, self._kept = self._kept, None
        if kept is None or kept[0] is not view or kept[1] != versions:
            with torch.set_grad_enabled(keep or torch.is_grad_enabled()):
                kept = (view, versions, self._logits(view, self.embedding(view)))
        if torch.is_grad_enabled():
            return kept[2]
        self._kept = kept if keep else None
        return kept[2].detach()

    def _logits(self, view: OpGraph, embedding: Tensor) -> Tensor:
        """Scores of the devices of each unit, [N, D], where decisions are independent; with ``spread`` and ``speed``."""
        logits = spread_logits(view, self.placer(embedding), self.spread)
        return logits + self.speed * view.log_speed if self.speed else logits

    def agreed(self, view: OpGraph, weight: float) -> Tensor:
        """Decisions int64[1, N] that are probable and agree with their neighbours'.

        The mean field of a distribution in which each pair of neighbours on one device counts ``weight`` times their pull (`OpGraph.pulls`)
        beside log π: q_v ∝ π_v exp(weight Σ_u W_vu q_u), from q = π on. Only for independent decisions.
        """
        with torch.no_grad():
            logits = self._logits(view, self.embedding(view)).masked_fill(~view.allowed, BLOCKED)
            q = torch.softmax(logits, dim=1)
            for _ in range(AGREEING):
                q = torch.softmax(logits + weight * torch.sparse.mm(view.pulls, q), dim=1)
        return q.masked_fill(~view.allowed, -1.0).argmax(dim=1)[None]


def spread_logits(view: OpGraph, logits: Tensor, rounds: int) -> Tensor:
    """Logits [N, D] mixed with those of neighbours, z ← (1 - a) D^-1/2 W D^-1/2 z + a z0 with W the pulls (Gasteiger et al. 2019)."""
    mixed = logits
    for _ in range(rounds):
        mixed = (1 - KEPT) * view.root_degree * torch.sparse.mm(view.pulls, view.root_degree * mixed) + KEPT * logits
    return mixed


class EncoderPlacerMethod(SampledMethod[OpGraph]):
    """What GDP and Mars share: ``config.features`` says what is known of an operation, ``config.search`` what is done beyond the papers."""

    many_problems = True
    network: EncoderPlacer[Any]

    def __init__(self, config: Any, problems: Sequence[Problem], seed: np.random.SeedSequence | int) -> None:
        super().__init__(config, problems, seed)
        search: SearchConfig = config.search
        self.elites = [Elites(search.keep, view.n) for view in self.views]
        self._paths: dict[tuple[int, bytes], np.ndarray] = {}  # of kept placements; nothing that cannot be worked out again
        self._starts: dict[int, np.ndarray] = {}
        pairs = zip(problems, self.views, strict=True)
        self.twins = [Twins(p, view.coarse, view.work.numpy().astype(np.float64)) for p, view in pairs] if search.relabel else []
        near = search.regions > 0 or search.vary > 0
        self.regions = [Regions(p, view.coarse) for p, view in zip(problems, self.views, strict=True)] if near else []

    def _view(self, problem: Problem) -> OpGraph:
        return op_graph(problem, self.config.features, self.devices)

    def _noise(self, view: OpGraph, count: int) -> Tensor:
        return gumbel(self.sampling, (count, view.n, self.devices))

    def _device_of(self, view: OpGraph, actions: np.ndarray) -> np.ndarray:
        return actions[:, view.coarse.group].astype(np.int16)

    def _draw(self, problem: int, count: int) -> Proposal:
        """As the policy says, or a kept placement that the policy varies in one region; first what is to be demonstrated."""
        search, view, elites = self.config.search, self.views[problem], self.elites[problem]
        varied = round(search.vary * count) if len(elites.rewards) else 0
        picked = elites.pick(varied, self.sampling)
        given = np.full((count, view.n), -1)
        for row, which in zip(given, picked.tolist(), strict=False):
            critical = self._critical_units(problem, elites.actions[which]) if self.sampling.random() < search.critical else None
            kept = elites.actions[which]
            row[:] = np.where(self.regions[problem].around(self.sampling, kept, critical), -1, kept)
        drawn = given < 0
        shown = self._demonstrations(problem, count - varied)
        given[varied : varied + len(shown)] = shown
        made = self._decided(problem, given, self._regional_noise(problem, varied, count))
        for scale in (2.0, 4.0, 8.0, 8.0, 8.0) if varied else ():  # what repeats a kept placement is drawn again, more evenly
            same = np.flatnonzero((made.actions.numpy()[:varied] == elites.actions[picked]).all(axis=1))
            if not len(same):
                break
            again = self._decided(problem, given[same], scale * self._regional_noise(problem, len(same), len(same)))
            for part, new in zip(made, again, strict=True):
                part[same] = new
        actions, log_probs = made.actions.numpy().astype(np.int32), made.log_probs.numpy().astype(np.float32)
        samples = [Sample(problem, a, p) for a, p in zip(actions, log_probs, strict=True)]
        for sample, mask, which in zip(samples, drawn, picked.tolist(), strict=False):
            sample.drawn, sample.reference = mask, float(elites.rewards[which])
        for sample in samples[varied : varied + len(shown)]:
            sample.drawn = np.zeros(view.n, dtype=bool)
        self._asked.append(samples)
        return Proposal(problem, self.placements(self.problems[problem], self._device_of(view, actions)))

    def _demonstrations(self, problem: int, most: int) -> np.ndarray:
        """Decisions [S, N] of the placements to demonstrate that have not been yet, at most ``most``."""
        if not self.config.search.demonstrate:
            return np.zeros((0, self.views[problem].n), dtype=np.int64)
        if problem not in self._starts:
            found = good_starts(self.problems[problem], int(self.seed.generate_state(1)[0] >> 1))
            self._starts[problem] = found[:, self.views[problem].coarse.last].astype(np.int64)
        begin = self.baselines[problem].count
        return self._starts[problem][begin : begin + most]

    def _critical_units(self, problem: int, actions: np.ndarray) -> np.ndarray:
        """Units on the critical path of decisions [N], as far as a schedule without a measurement tells, int64[K]."""
        key = (problem, actions.tobytes())
        if key not in self._paths:
            self._paths = dict(list(self._paths.items())[-64:])
            whole, view = self.problems[problem], self.views[problem]
            placement = self.placements(whole, self._device_of(view, actions[None]))[0]
            self._paths[key] = np.unique(view.coarse.group[planned_chain(whole, placement)])
        return self._paths[key]

    def _regional_noise(self, problem: int, varied: int, count: int) -> Tensor:
        """Noise for ``count`` placements, the first ``varied`` of which are drawn in one region alone."""
        noise, most = self._noise(self.views[problem], count), self.config.search.regions
        if most:
            noise[:varied] = noise[:varied, :1]
            for row in range(varied, count):
                noise[row] = noise[row][torch.from_numpy(self.regions[problem].partition(self.sampling, most))]
        return noise

    def _decided(self, problem: int, given: np.ndarray, noise: Tensor) -> Decisions:
        """What the policy draws for the decisions of ``given`` [B, N] that are below 0, alike devices in order if that is asked for."""
        view = self.views[problem]
        with torch.no_grad():
            keep = len(self.problems) == 1  # of several, all would be in memory at once
            made: Decisions = self.network(view, torch.from_numpy(given), noise, keep)
            if self.twins:
                actions = torch.from_numpy(self.twins[problem].relabel(made.actions.numpy()))
                made = made if torch.equal(actions, made.actions) else self.network(view, actions, None, keep)
        return Decisions(*(part.clone() for part in made))

    def _measured(self, asked: list[Sample], result: Measurements) -> None:
        good = np.flatnonzero(result.ok)
        if self.config.search.keep and len(good):
            self.elites[asked[0].problem].add(np.stack([asked[i].actions for i in good]), np.array([asked[i].reward for i in good]))

    def _imitated(self, problem: int) -> tuple[np.ndarray, float]:
        kept = self.elites[problem].actions if self.config.search.imitate else self.elites[problem].actions[:0]
        return kept, self.config.search.imitate / len(self.problems)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "elites": [e.state() for e in self.elites]}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        for elites, saved in zip(self.elites, state["elites"], strict=True):
            elites.restore(saved)


def perceptron(size: int, hidden: int, devices: int) -> nn.Sequential:
    """The simplest placer: two layers on each embedding alone (Mars section 3.3)."""
    return nn.Sequential(Linear(size, hidden), nn.ReLU(), Linear(hidden, devices))
