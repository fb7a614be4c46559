"""The problems that foresight's policies are trained on. How they are trained does not belong here.

They are like the training families of the benchmark (`sweeps/benchmark/parts/stages.yaml`), and none is of a test family: fresh layered
graphs, recurrent networks, workflows that ran, captured models, and sharded products, on small networks of every kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from envs.costs.roofline import RooflineCosts
from envs.costs.table import TableCosts
from envs.graphs.capture import capture
from envs.graphs.enas import EnasParameters, generate_enas
from envs.graphs.sharded import sharded
from envs.graphs.synthetic import TaskGraphParameters, generate_graph
from envs.networks.named import named_network
from envs.networks.synthetic import NetworkParameters, generate_network
from envs.problem.problem import Problem
from envs.sources.files import load_network
from envs.sources.importing import load_problem

LAYERED = "layered"
"""The family of which as many problems can be drawn as one wants."""
WORKFLOWS = ("blast-chameleon-small-001", "seismology-chameleon-100p-001")
MODELS = ("resnet-50", "light-squeezenet", "light-bvlc-alexnet")
LARGE = 450
"""Models of more operations are not repeated with perturbed times."""


class Example(NamedTuple):
    """A problem to train on."""

    family: str
    problem: Problem


def layered(count: int, seed: int) -> list[Example]:
    """Layered graphs of 20 to 130 tasks on 3 to 16 devices, parameters and seeds of their own each."""
    rng, found = np.random.default_rng(seed), []
    for i in range(count):
        tasks, shape = int(np.exp(rng.uniform(np.log(20), np.log(130)))), float(rng.choice([0.3, 0.5, 0.7, 1.0]))
        mean_bytes, spread = float(np.exp(rng.uniform(np.log(30), np.log(400)))), float(rng.choice([0.2, 0.5, 0.8]))
        devices, speeds = int(rng.integers(3, 17)), float(rng.choice([0.2, 0.4, 0.7]))
        delay = float(np.exp(rng.uniform(np.log(1), np.log(30))))
        graph = generate_graph(TaskGraphParameters(tasks=tasks, shape=shape, mean_bytes=mean_bytes, compute_heterogeneity=spread), seed + i)
        network = generate_network(NetworkParameters(devices=devices, speed_heterogeneity=speeds, mean_delay=delay), seed + i)
        found.append(Example(LAYERED, Problem(graph, network)))
    return found


def collected(benchmark: Path) -> Iterator[Example]:
    """Recurrent networks, workflows, models and sharded products; ``benchmark`` is the folder `sweeps/benchmark`.

    Raises:
        InputError: if the benchmark's files are not there.
    """
    clusters = [load_network(benchmark / "networks" / f"{name}.json") for name in ("cluster-8", "edge-12")]
    for cell in range(5):
        for name in ("cpu-gpu-4", "v100-8"):
            yield Example("recurrent", Problem(generate_enas(EnasParameters(cell=cell), 500 + cell), named_network(name), RooflineCosts()))
    for workflow in WORKFLOWS:
        for network in (*clusters, named_network("cpu-gpu-4")):
            yield Example("workflow", load_problem(benchmark / "instances" / "wfinstances" / f"{workflow}.json", network))
    for model in MODELS:
        for name in ("cpu-gpu-4", "cpu-gpu-2", "v100-8", "p100-4"):
            yield Example("model", Problem(capture(model), named_network(name), RooflineCosts()))
    for name in ("p100-4", "v100-8", "p100-4-8gb"):
        for shards in (None, 4):
            yield Example("sharded", Problem(sharded("chainmm", shards), named_network(name), RooflineCosts()))


def perturbed(example: Example, seed: int) -> Example:
    """The same graph where every operation and device has a log-normal factor of its own, and all of them another."""
    problem, rng = example.problem, np.random.default_rng(seed)
    spread = 0.15 if example.family == "model" else 0.3
    seconds = problem.compute_seconds * np.exp(spread * rng.standard_normal(problem.compute_seconds.shape)) * np.exp(rng.uniform(-0.7, 0.7))
    return Example(example.family, replace(problem, costs=TableCosts(problem.graph.names, problem.network.names, seconds)))


def examples(graphs: int, seed: int, benchmark: Path | None) -> list[Example]:
    """``graphs`` layered graphs and, unless ``benchmark`` is None, what is collected, once as it is and once perturbed."""
    known = [] if benchmark is None else list(collected(benchmark))
    small = [e for e in known if e.family != "model" or e.problem.n_nodes < LARGE]
    return [*layered(graphs, seed), *known, *(perturbed(e, seed + i) for i, e in enumerate(small))]
