"""``python -m orchestration.commands.train_foresight``: trains the policies of ``foresight`` again, and says what they are worth.

Run it in the repository, for it reads workflows and networks of ``sweeps/benchmark``. What the shipped policy was trained with stands in
`methods.foresight.training`. To ship what was written, put it in the place of ``methods/foresight/policy.npz``. An output that is a folder
holds a policy that ``placewright place FILE --policy FOLDER`` and sweeps start from.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from envs.problem.errors import InputError
from envs.simulators.fifo.evaluator import Simulator
from methods.foresight.experts import Experts
from methods.foresight.families import Example, examples, layered
from methods.foresight.foresight import Foresight
from methods.foresight.training import TRIES, Course, Progress, TrainingSettings, evolve, held_out, left_out, planned_first, portfolio
from orchestration.specs.canonical import FrozenDict
from orchestration.specs.layout import POLICY
from orchestration.specs.policies import describe_policy
from orchestration.specs.state_files import save_state
from orchestration.specs.trial import Budget, EvaluatorSpec, ProblemSpec, Trial

APART = 1_000_000
"""Between seeds of graphs of training, of the portfolio and of validation, so that no graph is in two."""


def train(settings: TrainingSettings, seed: int, runs: int, graphs: int, benchmark: Path | None, progress: Progress = print) -> Experts:
    """``runs`` trainings with seeds from ``seed`` on, and the portfolio of what they gave.

    Args:
        settings: of every run and of the portfolio.
        seed: of everything that is drawn.
        runs: number of trainings.
        graphs: layered graphs of each training; the portfolio has as many, fresh ones.
        benchmark: the folder ``sweeps/benchmark``; None trains on layered graphs, some of them constrained, only.
        progress: is given lines of progress and, at the end, of validation.
    """
    bases = []
    for run in range(seed, seed + runs):
        courses = _courses(examples(graphs, 10_000 * run + 1000, benchmark))
        progress(f"seed {run}: {len(courses)} training problems")
        bases.append(evolve(courses, settings, run, progress))
    tried = _courses(examples(graphs, APART + 10_000 * seed, benchmark))
    experts = portfolio(np.concatenate(bases), tried, settings, seed, progress)
    fresh = _courses(layered(24, 2 * APART + 10_000 * seed))
    progress(f"kept {len(experts.thetas)} policies. Mean of log(makespan / HEFT's): all one-go heuristics; best of {TRIES} policies")
    _table("left out", tried, left_out(experts, tried), progress)
    _table("never seen", fresh, held_out(experts, fresh), progress)
    plans = Foresight.Config().plans
    progress(f"the same of placements that are planned, with {plans} variations")
    for name, courses in (("planned", tried), ("planned, never seen", fresh)):
        _table(name, courses, planned_first(experts, courses, plans), progress)
    return experts


def write_folder(experts: Experts, folder: Path, seed: int) -> None:
    """Leaves the policies as a trial would that had learned them."""
    folder.mkdir(exist_ok=True)
    config = FrozenDict(asdict(Foresight.Config()))
    problems = ProblemSpec(FrozenDict({}), FrozenDict({}), graph_label="training", network_label="families")
    trial = Trial("foresight", "foresight", config, (problems,), EvaluatorSpec(), Budget(1), seed, kind="pretrain")
    describe_policy(folder, trial)
    save_state(folder / POLICY, experts.state())


def _courses(found: Sequence[Example]) -> list[Course]:
    return [Course(example, Simulator()) for example in found]


def _table(name: str, courses: Sequence[Course], gains: np.ndarray, progress: Progress) -> None:
    families = np.array([c.family for c in courses])
    for family in sorted(set(families)):
        of = families == family
        one_go = np.mean([c.one_go for c in courses if c.family == family])
        values = ", ".join(f"{100 * v:+.2f} %" for v in gains[of].mean(axis=0))
        progress(f"{name}, {of.sum()} {family}: {100 * one_go:+.2f} %; {values}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, report, write."""
    usual = TrainingSettings()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="of the first run and of all that is drawn (0)")
    parser.add_argument("--seconds", type=float, default=usual.seconds, help=f"wall time of each run ({usual.seconds:.0f})")
    parser.add_argument("--generations", type=int, help="of each run, instead of --seconds: the same policies for the same seed")
    parser.add_argument("--runs", type=int, default=2, help="trainings that the portfolio is made of (2)")
    parser.add_argument("--graphs", type=int, default=60, help="layered graphs per training (60)")
    parser.add_argument("--benchmark", type=Path, default=Path("sweeps/benchmark"), metavar="FOLDER", help="sweeps/benchmark")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.npz", help="where to write the policies; without .npz a folder")
    args = parser.parse_args(arguments)
    for name in ("seconds", "generations", "runs", "graphs"):
        if getattr(args, name) is not None and not getattr(args, name) > 0:
            parser.error(f"--{name} is {getattr(args, name)}; it must be above 0")
    if args.seed < 0 or not args.output.parent.is_dir():
        parser.error(f"--seed is {args.seed}; it must be 0 or more" if args.seed < 0 else f"folder {args.output.parent} does not exist")
    settings, begin = TrainingSettings(generations=args.generations, seconds=args.seconds), time.process_time()
    print(f"seed {args.seed}, {args.runs} runs, {args.graphs} layered graphs; {asdict(settings)}", flush=True)
    try:
        experts = train(settings, args.seed, args.runs, args.graphs, args.benchmark, lambda line: print(line, flush=True))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    if args.output.suffix == ".npz":
        experts.save(args.output)
    else:
        write_folder(experts, args.output, args.seed)
    print(f"wrote {args.output} after {time.process_time() - begin:.0f} s of CPU time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
