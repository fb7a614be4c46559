"""The problems that foresight's policies are trained on. How they are trained does not belong here.

They are like the training families of the benchmark (`sweeps/benchmark/parts/stages.yaml`), and none is of a test family: fresh layered
graphs, some with operations that only some devices may run, recurrent networks, workflows that ran, captured models, training steps, and
sharded products, on small networks of every kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

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
CONSTRAINED = "constrained"
"""Layered graphs with two to four types of hardware; the test family of GiPH's graphs has five, on twenty devices, and other sizes."""
STEPS: dict[str, dict[str, Any]] = {
    "gnmt-2": {"length": 4, "batch": 256}, "rnnlm-2": {"length": 8, "optimizer": "sgd"}, "transformer-xl-2": {"length": 32, "segments": 2},
}  # fmt: skip
MODELS = ("resnet-50", "light-squeezenet", "light-bvlc-alexnet")
LARGE = 450
"""Models of more operations are not repeated with perturbed times."""


class Example(NamedTuple):
    """A problem to train on."""

    family: str
    problem: Problem


def layered(count: int, seed: int, constrained: bool = False) -> list[Example]:
    """Layered graphs of 20 to 130 tasks on 3 to 16 devices, parameters and seeds of their own each; ``constrained``: `CONSTRAINED`."""
    rng, found = np.random.default_rng(seed), []
    for i in range(count):
        tasks, shape = int(np.exp(rng.uniform(np.log(20), np.log(130)))), float(rng.choice([0.3, 0.5, 0.7, 1.0]))
        mean_bytes, spread = float(np.exp(rng.uniform(np.log(30), np.log(400)))), float(rng.choice([0.2, 0.5, 0.8]))
        devices, speeds = int(rng.integers(3, 17)), float(rng.choice([0.2, 0.4, 0.7]))
        delay = float(np.exp(rng.uniform(np.log(1), np.log(30))))
        types, support = (int(rng.integers(2, 5)), float(rng.choice([0.2, 0.4, 0.6]))) if constrained else (0, 0.2)
        graph = TaskGraphParameters(
            tasks=tasks, shape=shape, mean_bytes=mean_bytes, compute_heterogeneity=spread, hardware_types=types,
        )  # fmt: skip
        network = NetworkParameters(
            devices=devices, speed_heterogeneity=speeds, mean_delay=delay, hardware_types=types, support_probability=support,
        )  # fmt: skip
        problem = Problem(generate_graph(graph, seed + i), generate_network(network, seed + i))
        found.append(Example(CONSTRAINED if constrained else LAYERED, problem))
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
    for model, options in STEPS.items():
        for name in ("p100-host-2", "p100-host-4"):
            graph = capture(model, training=True, host_inputs=True, **options)
            yield Example("step", Problem(graph, named_network(name), RooflineCosts()))
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
    """``graphs`` layered graphs, a fourth as many constrained ones, and, unless ``benchmark`` is None, what is collected, once as it is and
    the smaller ones once perturbed."""
    known = [] if benchmark is None else list(collected(benchmark))
    small = [e for e in known if e.problem.n_nodes < LARGE]
    fresh = [*layered(graphs, seed), *layered(graphs // 4, seed + graphs, constrained=True)]
    return [*fresh, *known, *(perturbed(e, seed + i) for i, e in enumerate(small))]
