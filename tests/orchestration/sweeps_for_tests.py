"""Small trials and sweeps that several tests run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from methods.contract.registry import method_class
from orchestration.specs.trial import Budget, EvaluatorSpec, FrozenDict, ProblemSpec, Trial


def problem_spec(tasks: int = 20, seed: int = 0) -> ProblemSpec:
    from orchestration.specs.sources import graph_source, network_source

    here = Path.cwd()
    graph = graph_source({"synthetic": {"tasks": tasks}, "seed": seed}, here, here)
    network = network_source({"synthetic": {"devices": 4}, "seed": 0}, here, here)
    return ProblemSpec(graph, network, FrozenDict({"kind": "linear"}), graph_label=f"g{tasks}-{seed}", network_label="n4")


def trial(method: str = "random", evaluations: int = 100, seed: int = 0, **changes) -> Trial:
    import dataclasses

    config = FrozenDict(dataclasses.asdict(method_class(method).Config()))
    made = Trial(method, method, config, (problem_spec(),), EvaluatorSpec(), Budget(evaluations), seed)
    return replace(made, **changes)


SWEEP = """
sweep: small
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 20}, seed: 0}, b: {synthetic: {tasks: 30}, seed: 1}}
methods: [random, heft, local-search]
seeds: [0, 1]
budget: 300
"""


def small_sweep(folder: Path, text: str = SWEEP):
    from orchestration.definition.sweep import load_sweep

    path = folder / "small.yaml"
    path.write_text(text)
    return load_sweep(path)
