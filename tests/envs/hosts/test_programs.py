"""Any torch program on the engine: whatever the placement, the outputs are the module's, and the graph is what runs."""

import os
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

from envs.graphs.exported import recurrent
from envs.graphs.exported.graph import PlaceableProgram
from envs.graphs.exported.sources import exported, load_program
from envs.graphs.training_capture import is_view
from envs.hosts.engine.devices import parse_devices, processors
from envs.hosts.engine.executor import Executor
from envs.hosts.engine.exported import ExportedCode, example_inputs
from envs.hosts.engine.host import Engine
from envs.hosts.engine.program import Program
from envs.hosts.measuring import Measuring
from envs.problem.errors import InputError
from envs.problem.measurement import Outcome
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.work_conserving.discipline import Discipline
from envs.simulators.work_conserving.evaluator import WorkConservingSimulator
from tests.envs.hosts.exported_modules import MODULES

CORES = sorted(os.sched_getaffinity(0))
LOW, HIGH = CORES[0], CORES[-1]
DEVICES = (f"cpu:{LOW}", f"cpu:{HIGH}", f"cpu:{LOW}+{HIGH}")
if torch.cuda.is_available():
    DEVICES += ("cuda:0",)


def network(**settings) -> DeviceNetwork:
    return DeviceNetwork(DEVICES, 1e9, 1e12, 0.0, **settings)


NAMES = [name if name in ("odd", "lstm") else pytest.param(name, marks=pytest.mark.slow) for name in MODULES]
"""Two in the fast tests, as each is exported anew."""


def leaves(value):
    return torch.utils._pytree.tree_leaves(value)


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_outputs_of_any_placement_are_the_modules(name):
    module, inputs = MODULES[name]()
    with torch.inference_mode():
        right = module(*inputs)
    placeable = PlaceableProgram.of(exported(module, inputs), name)
    executor = Executor(parse_devices(DEVICES), Discipline())
    problem = Problem(placeable.graph, network())
    code = ExportedCode(placeable, list(inputs))
    program = Program(problem, executor.devices, code)
    rng = np.random.default_rng(0)
    placements = [np.full(problem.n_nodes, d) for d in range(len(DEVICES))]
    placements += [rng.integers(0, len(DEVICES), problem.n_nodes) for _ in range(25)]
    for k, placement in enumerate(placements):
        if k == 10:  # other inputs go through the same program
            inputs = tuple(x.flip(0).contiguous() for x in inputs)
            with torch.inference_mode():
                right = module(*inputs)
            program.forget(code.feed(list(inputs)))
        run = executor.run(program, placement, limit=60.0)
        assert run.outcome == Outcome.OK, run.note
        results = {v: tuple(x.cpu() if isinstance(x, torch.Tensor) else x for x in values) for v, values in run.outputs.items()}
        found = torch.utils._pytree.tree_unflatten(placeable.outputs(results, list(inputs)), placeable.calls.program.call_spec.out_spec)
        assert torch.utils._pytree.tree_structure(found) == torch.utils._pytree.tree_structure(right)
        for a, b in zip(leaves(found), leaves(right), strict=True):
            torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=0.0, atol=1e-4)
        assert (np.diff(run.start[np.isfinite(run.start)]).size) and np.isfinite(run.finish[~program.leaf]).all()
        assert sum(run.peak) > 0
    executor.close()


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_the_graph_is_the_program_node_for_node(name):
    module, inputs = MODULES[name]()
    placeable = PlaceableProgram.of(exported(module, inputs), name)
    graph = placeable.graph
    pointer, ids = graph.in_edges
    for v in range(graph.n_nodes):
        assert graph.edges[ids[pointer[v] : pointer[v + 1]], 0].tolist() == placeable.operands[v]
    # every call of the program is in a fragment, and in one only unless it is a view of an input
    calls = [n for f in placeable.fragments.list for n in f.calls]
    assert set(placeable.fragments.home) <= set(calls)
    assert all(is_view(n) for n in set(calls) - set(placeable.fragments.home))
    assert len(set(calls) & set(placeable.fragments.home)) == sum(n in placeable.fragments.home for n in calls)
    held = sum(t.numel() * t.element_size() for t in module.parameters())
    counted = graph.parameter_bytes.sum() + graph.output_bytes[np.array(graph.op_types) == "Constant"].sum()
    assert 0 < counted <= 1.2 * held + 1000
    assert PlaceableProgram.of(exported(module, inputs), name).graph.content_hash == graph.content_hash


def test_layers_of_an_lstm_can_overlap():
    module, inputs = MODULES["lstm"]()
    graph = PlaceableProgram.of(exported(module, inputs), "lstm").graph
    assert graph.levels.max() < 3 * 9  # not one layer after the other, 9 steps each


def test_devices_that_share_a_core_take_turns():
    module, inputs = MODULES["experts"]()
    placeable = PlaceableProgram.of(exported(module, inputs), "experts")
    executor = Executor(parse_devices(DEVICES[:3]), Discipline("longest-path"))
    problem = Problem(placeable.graph, DeviceNetwork(DEVICES[:3], 1e9, 1e12, 0.0))
    program = Program(problem, executor.devices, ExportedCode(placeable, list(inputs)))
    for seed in range(10):
        placement = np.random.default_rng(seed).integers(0, 3, problem.n_nodes)
        run = executor.run(program, placement, limit=60.0)
        wide = placement == 2
        for v in np.flatnonzero(~program.leaf & wide):
            others = ~program.leaf & (np.arange(problem.n_nodes) != v) & (True if LOW != HIGH else wide)
            assert ((run.finish[others] <= run.start[v]) | (run.start[others] >= run.finish[v])).all()
    executor.close()
    shares = processors(parse_devices(DEVICES[:3]))
    assert shares[0] == (LOW,) and set(shares[2]) == {LOW, HIGH}
    assert WorkConservingSimulator(Discipline(processors=shares)).evaluate(problem, placement[None, :].astype(np.int16)).ok.all()


@pytest.mark.slow
def test_the_engine_measures_an_archive_and_accounts_for_its_memory(tmp_path):
    module, inputs = MODULES["branches"]()
    path = tmp_path / "branches.pt2"
    torch.export.save(exported(module, inputs), path)
    program, name = load_program(str(path))
    graph = PlaceableProgram.of(program, name).graph
    for memory, outcome in ((np.inf, Outcome.OK), (graph.parameter_bytes.sum() + 100, Outcome.OUT_OF_MEMORY)):
        problem = Problem(graph, network(memory=memory))
        with Engine(DEVICES, measuring=Measuring(1, 2), models={name: {"file": str(path)}}, emulate_links=False) as engine:
            found = engine.evaluate(problem, np.zeros((1, graph.n_nodes), dtype=np.int16), trace=True)
        assert found.outcome[0] == outcome, found.notes
    with Engine(DEVICES, models={"other": {"file": str(path)}}) as engine:
        other = Problem(PlaceableProgram.of(load_program("experts", options={"hidden": 8})[0], "other").graph, network())
        with pytest.raises(InputError, match="not that of the program"):
            engine.evaluate(other, np.zeros((1, other.n_nodes), dtype=np.int16))


class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return x * self.count


class Empty(nn.Module):
    def forward(self, x):
        return x.t()


@pytest.mark.parametrize(
    ("module", "says"),
    [(Noisy(), "draws random numbers"), (Counting(), "changes 'count' when it runs"), (Empty(), "nothing to place")],
)
def test_what_cannot_be_placed_is_refused_in_a_sentence(module, says):
    with pytest.raises(InputError, match=says):
        PlaceableProgram.of(exported(module, (torch.ones(2, 3),)), "it")


def test_sources_are_checked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mymodel.py").write_text(
        "import torch\ndef build():\n    return torch.nn.Linear(3, 2), torch.ones(1, 3)\ndef bad():\n    return 1\n"
    )
    program, name = load_program("mymodel:build")
    assert name == "mymodel" and program.example_inputs is not None
    for source, says in (
        ("mymodel:bad", "returned int; it must return"), ("mymodel:none", "has no 'none'"), ("nowhere:build", "cannot be imported"),
        ("gone.pt2", "there is no file"), ("lstmm", "unknown model 'lstmm'; did you mean 'lstm'"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=says):
            load_program(source)
    (tmp_path / "bad.pt2").write_bytes(b"PK")
    with pytest.raises(InputError, match="no archive"):
        load_program("bad.pt2")
    with zipfile.ZipFile(tmp_path / "evil.pt2", "w") as archive:
        archive.writestr("evil/archive_format", "pt2")
        archive.writestr("evil/data/weights/model_weights_config.json", '{"config": {"w": {"use_pickle" : true}}}')
    with pytest.raises(InputError, match="holds pickled objects"):
        load_program("evil.pt2")


def test_dynamic_shapes_need_concrete_ones(tmp_path):
    module = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    dynamic = torch.export.export(module, (torch.ones(4, 3),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(dynamic, tmp_path / "m.pt2")
    program, name = load_program(str(tmp_path / "m.pt2"))
    with pytest.raises(InputError, match=r"dynamic shapes.*--input-shape"):
        PlaceableProgram.of(program, name)
    program, name = load_program(str(tmp_path / "m.pt2"), {"input": (7, 3)})
    placeable = PlaceableProgram.of(program, name)
    assert placeable.graph.output_shapes[-1] == (7, 2) and example_inputs(placeable, 0)[0].shape == (7, 3)
    with pytest.raises(InputError, match="has no input 'inputs'; did you mean 'input'"):
        load_program(str(tmp_path / "m.pt2"), {"inputs": (7, 3)})
    with pytest.raises(InputError, match="does not take the shapes"):
        load_program(str(tmp_path / "m.pt2"), {"input": (7, 4)})


def test_a_part_of_an_lstm_gives_the_bits_of_torch_with_its_weights_packed_once():
    torch.manual_seed(0)
    lstm = nn.LSTM(6, 8).eval()
    weights = [p.detach() for p in lstm.parameters()]
    state = [torch.randn(1, 3, 8), torch.randn(1, 3, 8)]
    with torch.inference_mode():
        for steps in (1, 5):  # the second finds them packed
            x = torch.randn(steps, 3, 6)
            right = torch.ops.aten.lstm.input(x, state, weights, True, 1, 0.0, False, False, False)
            assert all(
                torch.equal(a, b) for a, b in zip(recurrent.layer(x, state, weights, True, 1, 0.0, False, False, False), right, strict=True)
            )
    assert weights[0] in recurrent._packed
