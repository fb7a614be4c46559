"""``python -m tests.relocation_counts``: GiPH's Figure 7 (b), how often a search of 2 |V| steps moves each task of a deep learning graph.

Trained as sweeps/giph/fig7.yaml says (200 episodes on the training graphs, three seeds), on its first test graph of each of the ten cells.
No Ray, no ledger: what is printed is all that it makes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from methods.contract.method import Method
from methods.contract.registry import build
from methods.testing.running import go
from orchestration.definition.sweep import load_sweep
from orchestration.specs.sources import build_problem

ROOT = Path(__file__).parents[1]
SEEDS = range(3)


def moves(method: Method) -> np.ndarray:
    """How often a search of 2 |V| steps moves each task of the method's one problem, int64[V]."""
    placements = np.stack(go(method, 2 * method.problem.n_nodes + 1).placements)
    return (placements[1:] != placements[:-1]).sum(axis=0)


def main() -> None:
    """Print the share of tasks by how often they are moved, of GiPH and Placeto, over all graphs and seeds."""
    trials = load_sweep(ROOT / "sweeps/giph/fig7.yaml").expand()
    training = next(t for t in trials if t.stage == "train").problems
    tests = {p.graph_label: p for t in trials if t.stage == "search" for p in t.problems}
    chosen = [build_problem(tests[name]) for name in sorted(tests) if name.endswith(",15")]
    for name in ("giph", "placeto"):
        counts = []
        for seed in SEEDS:
            learner = build(name, {"episodes": 200}, [build_problem(p) for p in training], seed)
            go(learner, 10**7, ask=64)
            for problem in chosen:
                search = build(name, {"learn": False, "episodes": 0, "batch": 1}, [problem], seed)
                search.load_policy(learner.policy())
                counts.append(moves(search))
        moved = np.concatenate(counts)
        often = np.sort(moved)[::-1]
        tenth = often[: max(1, len(often) // 10)].sum() / max(1, often.sum())
        print(f"\n{name}: {len(chosen)} graphs, {len(SEEDS)} seeds, {len(moved)} tasks, {moved.sum()} moves")
        print(f"  never moved {np.mean(moved == 0):.1%}; of those moved: median {np.median(moved[moved > 0]):.0f}, most {moved.max()}")
        print(f"  a tenth of the tasks have {tenth:.1%} of all moves")
        print("  tasks by moves: " + ", ".join(f"{n}: {np.sum(moved == n)}" for n in np.unique(moved)[:30]))


if __name__ == "__main__":
    main()
