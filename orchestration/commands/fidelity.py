"""How well one evaluator stands for another: the same placements scored by both. What is done about a poor match is not decided here."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.stats

from envs.problem.errors import InputError, nearest
from envs.problem.measurement import Evaluator
from envs.problem.problem import Problem
from methods.placing.constraints import make_feasible
from orchestration.analysis.table import Table, terminal
from orchestration.definition.sweep import load_sweep
from orchestration.plots import style
from orchestration.rewards.evaluators import build_evaluator, close_evaluators, simulates
from orchestration.rewards.kinds import EVALUATORS
from orchestration.specs.sources import build_problem, costs_source
from orchestration.specs.trial import EvaluatorSpec, ProblemSpec

if TYPE_CHECKING:
    from orchestration.definition.sweep import Sweep

COUNT = 40
"""Placements a problem."""
MIXED = "mixed"


@dataclass(frozen=True)
class Fidelity:
    """Scores of both evaluators, and how they agree."""

    problem: str
    simulated: np.ndarray
    """Seconds of the placements that both could run, float64[N]."""
    measured: np.ndarray
    """Seconds by the other evaluator, float64[N]."""
    kinds: tuple[str, ...]
    """What each placement is: the device that has everything, or ``mixed``."""
    asked: int
    """Placements scored, those that could not run included."""
    protocols: tuple[str, str]
    notes: tuple[str, ...] = ()
    """Why placements could not run, each reason once."""

    @property
    def pearson(self) -> float:
        """Linear correlation; NaN for less than three placements or without any spread."""
        return self._correlation("pearsonr")

    @property
    def spearman(self) -> float:
        """Rank correlation; NaN as above. What a search needs most: whether better in one is better in the other."""
        return self._correlation("spearmanr")

    def _correlation(self, name: str) -> float:
        if len(self.simulated) < 3 or not np.ptp(self.simulated) or not np.ptp(self.measured):
            return float("nan")
        return float(getattr(scipy.stats, name)(self.simulated, self.measured).statistic)

    @property
    def ratio(self) -> float:
        """Median of simulated / measured seconds."""
        return float(np.median(self.simulated / self.measured)) if len(self.measured) else float("nan")


def run_fidelity(
    sweep: Path,
    folder: Path,
    simulator: str | None = None,
    host: str | None = None,
    costs: str | None = None,
    graphs: Sequence[str] | None = None,
    count: int = COUNT,
    seed: int = 0,
) -> str:
    """Compare two evaluators on the problems of a sweep; leaves a plot and a CSV file a problem, returns a table.

    Args:
        sweep: the YAML file.
        folder: where files go.
        simulator: a stage of the sweep, whose evaluator to take, or a kind of evaluator; None takes the plain simulator.
        host: likewise; None takes the evaluator of the first stage that measures.
        costs: cost model of the simulated problems, a name or JSON; None leaves the sweep's.
        graphs: labels of graphs; None takes all.
        count: placements a problem.
        seed: of the placements.

    Raises:
        InputError: for names that do not exist, and where nothing runs on both.
    """

    read = load_sweep(sweep)
    specs = _chosen(read, graphs)
    one, other = build_evaluator(_evaluator(read, simulator, False)), build_evaluator(_evaluator(read, host, True))
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    try:
        for spec in specs:
            problem = build_problem(spec)
            placements = sample_placements(problem, count, seed)
            found.append(compare(problem, one, other, placements, seed, _with_costs(spec, costs)))
            stem = folder / re.sub(r"[^\w.-]+", "-", spec.label)
            draw(found[-1], stem)
            _write(found[-1], folder / f"{stem.name}.csv")
    finally:
        close_evaluators((one, other))
    return summary(found)


def _chosen(sweep: Sweep, graphs: Sequence[str] | None) -> list[ProblemSpec]:
    known = list(dict.fromkeys(p.graph_label for p in sweep.problems))
    for name in graphs or ():
        if name not in known:
            raise InputError(f"sweep {sweep.name!r} has no graph {name!r}{nearest(name, known)}")
    return [p for p in sweep.problems if not graphs or p.graph_label in graphs]


def _evaluator(sweep: Sweep, given: str | None, measures: bool) -> EvaluatorSpec:
    """The evaluator of a stage, or of a kind by its name."""
    stages = {stage.name: stage.shared.evaluator for stage in sweep.stages}
    if given is None and not measures:
        return EvaluatorSpec()
    if given is None:
        found = next((spec for spec in stages.values() if not simulates(spec.kind)), None)
        if found is None:
            raise InputError(f"no stage of sweep {sweep.name!r} measures; name an evaluator, as --host work-conserving")
        return found
    if given not in stages and given not in EVALUATORS:
        raise InputError(f"{given!r} is neither a stage of sweep {sweep.name!r} nor an evaluator{nearest(given, [*stages, *EVALUATORS])}")
    return stages[given] if given in stages else EvaluatorSpec(given)


def _with_costs(spec: ProblemSpec, costs: str | None) -> Problem:

    if costs is None:
        return build_problem(spec)
    try:
        value = json.loads(costs) if costs.lstrip().startswith("{") else costs
    except ValueError as error:
        raise InputError(f"costs {costs!r} are not JSON ({error}); write --costs roofline or a mapping in JSON") from None
    return build_problem(dataclasses.replace(spec, costs=costs_source(value, Path.cwd(), Path.cwd())))


def _write(found: Fidelity, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("placement", "simulated_seconds", "measured_seconds"))
        writer.writerows(zip(found.kinds, found.simulated.tolist(), found.measured.tolist(), strict=True))


def sample_placements(problem: Problem, count: int, seed: int) -> np.ndarray:
    """Every device alone, then placements in blocks of the topological order, int16[count, V].

    The number of blocks is log-uniform from 2 to V, so that there are coarse and fine ones; each block's device is drawn evenly.

    Raises:
        InputError: for less than one, or a negative seed.
    """
    if count < 1 or seed < 0:
        raise InputError(f"{count} placements of seed {seed} cannot be compared; give at least one placement and a seed from 0")
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    nodes, devices = problem.n_nodes, problem.n_devices
    single = np.repeat(np.arange(devices)[:, None], nodes, axis=1)
    mixed = max(0, count - devices)
    blocks = np.exp(rng.uniform(np.log(2), np.log(max(nodes, 3)), size=mixed))
    starts = rng.random((mixed, nodes)) < (blocks / nodes)[:, None]
    block = np.cumsum(starts, axis=1, dtype=np.int64)
    drawn = rng.integers(0, devices, size=(mixed, nodes + 1))
    position = np.empty(nodes, dtype=np.int64)
    position[problem.graph.topological_order] = np.arange(nodes)
    placements = np.concatenate((single, np.take_along_axis(drawn, block, axis=1)[:, position]))[:count]
    return make_feasible(problem, placements.astype(np.int16))


def compare(
    problem: Problem, simulator: Evaluator, host: Evaluator, placements: np.ndarray, seed: int = 0, simulated: Problem | None = None
) -> Fidelity:
    """Score ``placements`` int16[N, V] with both; ``simulated`` is the same problem with the simulator's own cost model.

    Raises:
        InputError: if not one of them runs on both.
    """
    one, other = simulator.evaluate(simulated or problem, placements, seed), host.evaluate(problem, placements, seed)
    ok = one.ok & other.ok
    if not ok.any():
        reason = next((note for m in (other, one) for note in m.notes or () if note), "no reason is given")
        raise InputError(f"none of {len(placements)} placements of {problem.name} runs on both evaluators: {reason}")
    names = problem.network.names
    single = [names[row[0]] if (row == row[0]).all() else MIXED for row in placements[ok]]
    notes = dict.fromkeys(note for m in (one, other) for note in m.notes or () if note)
    return Fidelity(
        problem.name, one.seconds[ok], other.seconds[ok], tuple(single), len(placements), (one.protocol, other.protocol), (*notes,)
    )


def draw(found: Fidelity, stem: Path) -> list[Path]:
    """A scatter plot of both times as ``stem.png`` and ``stem.svg``; the line is where they would be equal."""
    figure = style.new_figure(4.6, 4.2)
    axes = figure.add_subplot()
    kinds = list(dict.fromkeys(found.kinds))
    for kind, (colour, _, marker) in style.method_styles(kinds).items():
        chosen = np.array([k == kind for k in found.kinds])
        times = 1e3 * found.simulated[chosen], 1e3 * found.measured[chosen]
        axes.scatter(*times, s=18 if kind == MIXED else 40, color=colour, marker=marker, label=kind, linewidths=0)
    low, high = 1e3 * min(found.simulated.min(), found.measured.min()), 1e3 * max(found.simulated.max(), found.measured.max())
    axes.plot([low, high], [low, high], color=style.SOFT, linewidth=0.8, zorder=0)
    scale = "log" if high > 10 * low else "linear"
    axes.set(
        xscale=scale, yscale=scale, xlabel="simulated [ms]", ylabel="measured [ms]",
        title=f"{found.problem}: r = {found.pearson:.2f}, ρ = {found.spearman:.2f}",
    )  # fmt: skip
    axes.legend(frameon=False, fontsize=8)
    style.quiet(axes, grid="both")
    figure.tight_layout()
    return style.save(figure, stem)


def summary(found: Sequence[Fidelity]) -> str:
    """A table for the terminal."""

    rows = tuple((f.problem, f"{len(f.simulated)}/{f.asked}", f"{f.pearson:.3f}", f"{f.spearman:.3f}", f"{f.ratio:.2f}") for f in found)
    columns = ("problem", "placements", "Pearson", "Spearman", "simulated / measured")
    notes = [f"{name}: {text}" for name, text in zip(("simulated", "measured"), found[0].protocols, strict=True)]
    return terminal([Table("Fidelity", columns, rows, tuple([*notes, *(n for f in found for n in f.notes[:3])]))])
