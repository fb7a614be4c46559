import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.costs.table import TableCosts
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.sources.files import (
    dump_graph,
    dump_network,
    dump_problem,
    load_graph,
    load_network,
    load_placements,
    load_problem,
    read_problem,
    save,
)
from tests.envs.strategies import placements, problems

ROOT = Path(__file__).parents[3]


def example():
    """The problem of docs/format.md, as the page gives it."""
    page = (ROOT / "docs" / "format.md").read_text()
    return json.loads(re.search(r"```json\n(.*?)```", page, re.S).group(1))


def written(tmp_path, text):
    path = tmp_path / "problem.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def test_the_documented_example_means_what_the_page_says(tmp_path):
    path = written(tmp_path, example())
    problem = load_problem(path)
    assert problem.name == "diamond@desk"
    assert problem.graph.edge_bytes.tolist() == [1e6, 5e5, 1e6, 1e6]
    assert problem.feasible.tolist() == [[True, True], [True, True], [False, True], [True, True]]
    assert problem.network.memory.tolist() == [np.inf, 8e9]
    assert problem.network.power.tolist() == [0, 200]
    assert problem.network.idle_power.tolist() == [0, 20]
    assert problem.network.memory_bandwidth.tolist() == [np.inf, np.inf]
    assert problem.network.launch_overhead.tolist() == [0, 0]
    assert problem.network.bandwidth.tolist() == [[np.inf, 1.2e10], [1.2e10, np.inf]]
    assert problem.network.delay.tolist() == [[0, 1e-5], [1e-5, 0]]
    assert problem.graph.op_types == ("Parameter", "MatMul", "Convolution", "Add")
    assert problem.graph.output_bytes.tolist() == [1e6, 1e6, 1e6, 0]
    assert problem.graph.parameter_bytes.tolist() == [0, 4e6, 0, 0]
    assert problem.graph.output_shapes == ((), (1, 250000), (), ())
    assert problem.compute_seconds[1].tolist() == [2e9 / 1e11, 2e9 / 1e13]
    assert load_placements(path, problem).tolist() == [[0, 1, 1, 1], [0, 0, 1, 0]]
    assert load_network(path) == problem.network


@given(st.data())
def test_problems_survive_the_round_trip(tmp_path_factory, data):
    problem = data.draw(problems(memory=data.draw(st.booleans()), energy=data.draw(st.booleans())))
    batch = data.draw(placements(problem, 2))
    path = tmp_path_factory.getbasetemp() / "round.json"
    save(dump_problem(problem, batch), path)
    again = load_problem(path)
    assert again == problem
    assert (load_placements(path, problem) == batch).all()
    save(dump_graph(problem.graph), path)
    assert load_graph(path) == problem.graph
    save(dump_network(problem.network), path)
    assert load_network(path) == problem.network


def test_a_mask_that_allows_everything_survives(tmp_path):
    problem = load_problem(written(tmp_path, example()))
    problem = Problem(problem.graph, problem.network, allowed=np.ones((4, 2), bool))
    assert read_problem(dump_problem(problem)).content_hash == problem.content_hash


def test_a_table_needs_no_work_or_speed_and_no_times_of_infeasible_pairs(tmp_path):
    document = example()
    for item in (*document["graph"]["nodes"], *document["network"]["devices"]):
        item.pop("flops", None), item.pop("speed", None)
    seconds = {n: {"cpu": 1.0, "gpu": 2.0} for n in ("read", "left", "join")} | {"right": {"gpu": 5}}
    document["costs"] = {"kind": "table", "seconds": seconds}
    problem = load_problem(written(tmp_path, document))
    assert problem.compute_seconds.tolist() == [[1, 2], [1, 2], [5, 5], [1, 2]]
    assert read_problem(dump_problem(problem)).content_hash == problem.content_hash
    del seconds["left"]["cpu"]
    with pytest.raises(InputError, match=r"node 'left' lack device 'cpu'"):
        load_problem(written(tmp_path, document))


def test_other_cost_models_are_read_and_written_as_tables(tmp_path):
    document = example() | {"costs": {"kind": "roofline"}}
    problem = load_problem(written(tmp_path, document))
    assert type(problem.costs).__name__ == "RooflineCosts"
    again = read_problem(dump_problem(problem))
    assert (again.compute_seconds == problem.compute_seconds).all()
    assert (load_problem(written(tmp_path, example()), costs=problem.costs)) == problem


def test_a_table_is_looked_up_by_name():
    table = TableCosts(("a", "b"), ("x", "y"), np.array([[1.0, 2.0], [3.0, 4.0]]))
    graph = ComputationGraph(("b", "a"), ("t", "t"), [0, 0], [0, 0], [], [])
    network = DeviceNetwork(("y", "x"), 1.0, 1.0, 0.0)
    assert Problem(graph, network, table).compute_seconds.tolist() == [[4, 3], [2, 1]]
    other = DeviceNetwork(("y", "z"), 1.0, 1.0, 0.0)
    with pytest.raises(InputError, match="no device 'z'"):
        Problem(graph, other, table)
    with pytest.raises(InputError, match="shape"):
        TableCosts(("a",), ("x",), np.zeros((2, 1)))


def test_links_by_default_override_and_matrix(tmp_path):
    document = {
        "format": "placewright/1",
        "network": {
            "devices": [{"name": n, "speed": 1} for n in "abc"],
            "links": {
                "bandwidth": 2,
                "delay": [[9, 1, 2], [3, None, 4], [5, 6, 0]],
                "overrides": [{"from": "a", "to": "b", "bandwidth": None}, {"from": "c", "to": "a", "delay": 7, "one_way": True}],
            },
        },
    }
    network = load_network(written(tmp_path, document))
    inf = np.inf
    assert network.bandwidth.tolist() == [[inf, inf, 2], [inf, inf, 2], [2, 2, inf]]
    assert network.delay.tolist() == [[0, 1, 2], [3, 0, 4], [7, 6, 0]]
    assert network.name == "problem"


def change(path, value):
    """The example with the value at ``path`` replaced; ``...`` removes it."""
    document = example()
    target = document
    for key in path[:-1]:
        target = target[key]
    if value is ...:
        del target[path[-1]]
    elif isinstance(target, list) and path[-1] == len(target):
        target.append(value)
    else:
        target[path[-1]] = value
    return document


NODE, DEVICE, LINKS = ("graph", "nodes", 1), ("network", "devices", 1), ("network", "links")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), ..., 'does not say its format.*"placewright/1"'),
        (("format",), "placewright/2", "its format is 'placewright/2'"),
        (("grpah",), {}, "unknown key 'grpah'; did you mean 'graph'"),
        (("graph",), ..., "the problem lacks 'graph'"),
        (("network",), ..., "the problem lacks 'network'"),
        (("graph",), [], r"graph must be an object, not \[\]"),
        (("graph", "nodes"), [], "has no nodes"),
        (("graph", "nodes"), "x", 'nodes must be a list, not "x"'),
        ((*NODE, "flop"), 1, "node 'left' has an unknown key 'flop'; did you mean 'flops'"),
        ((*NODE, "name"), ..., "node 1 lacks 'name'"),
        ((*NODE, "name"), 3, "node 1: name must be a string, not 3"),
        ((*NODE, "name"), "read", "two nodes named 'read'"),
        ((*NODE, "flops"), ..., "node 'left' lacks flops"),
        ((*NODE, "work"), 1, "both flops and work"),
        ((*NODE, "flops"), -1, "node 'left': flops is -1"),
        ((*NODE, "flops"), float("nan"), "node 'left': flops is NaN"),
        ((*NODE, "output_bytes"), float("inf"), "node 'left': output_bytes is Infinity"),
        ((*NODE, "flops"), 10**400, "node 'left': flops is 1000"),
        ((*NODE, "flops"), True, "node 'left': flops must be a number, not true"),
        ((*NODE, "flops"), "2e9", "node 'left': flops must be a number, not \"2e9\""),
        ((*NODE, "output_shape"), [1, 2.5], "output_shape must be a list of whole numbers"),
        ((*NODE, "colocate"), -3, "node 'left': colocate must be a label"),
        ((*NODE, "hardware"), "fpga", "can run node 'left', which requires hardware 'fpga'"),
        ((*NODE, "devices"), ["gpu1"], "node 'left' names device \"gpu1\".*did you mean 'gpu'"),
        ((*NODE, "devices"), [], "node 'left': devices is empty"),
        (("graph", "nodes", 2, "devices"), ["cpu"], "can run node 'right'"),
        (("graph", "edges", 4), ["join", "raed"], "names node \"raed\".*did you mean 'read'"),
        (("graph", "edges", 4), ["join", "read"], "cycle through .*join"),
        (("graph", "edges", 4), ["join", "join"], "edge to itself"),
        (("graph", "edges", 4), ["read", "left"], "given twice"),
        (("graph", "edges", 4), ["left", "right", -5], "edge 'left' -> 'right': bytes is -5"),
        (("graph", "edges", 4), ["left"], "edge 4 must be"),
        (("graph", "edges", 4), {"from": "left", "bytes": 1}, "edge 4 lacks 'to'"),
        (("graph", "edges", 4), {"from": "left", "to": "right", "size": 1}, "edge 4 has an unknown key 'size'"),
        ((*DEVICE, "name"), "cpu", "two devices named 'cpu'"),
        ((*DEVICE, "speed"), ..., "device 'gpu' lacks 'speed'"),
        ((*DEVICE, "speed"), 0, "device 'gpu'.* has speed = 0.0; it must be a number from 1e-50 to"),
        ((*DEVICE, "speed"), None, "device 'gpu': speed must be a number, not null"),
        ((*DEVICE, "memory"), float("inf"), "device 'gpu': memory is Infinity"),
        ((*DEVICE, "sped"), 1, "device 'gpu' has an unknown key 'sped'; did you mean 'speed'"),
        ((*DEVICE, "supports"), "tensor-core", "device 'gpu': supports must be a list"),
        ((*LINKS, "bandwidth"), ..., "links lack bandwidth"),
        ((*LINKS, "bandwidth"), 0, "link 'cpu' -> 'gpu'.* has bandwidth = 0.0; it must be at least 1e-50"),
        ((*LINKS, "delay"), [[0, 1]], "delay must be one number or a matrix of 2 rows"),
        ((*LINKS, "delay"), [[0, -1], [0, 0]], "link 'cpu' -> 'gpu': delay is -1"),
        ((*LINKS, "overrides"), [{"from": "cpu", "to": "tpu"}], 'link override 0 names device "tpu"'),
        ((*LINKS, "overrides"), [{"from": "cpu", "to": "cpu"}], "link to itself"),
        ((*LINKS, "overrides"), [{"from": "cpu", "to": "gpu"}, {"from": "gpu", "to": "cpu"}], "overridden twice"),
        ((*LINKS, "overrides"), [{"from": "cpu", "to": "gpu", "one_way": 1}], "one_way must be true or false"),
        (("objective",), "makspan", "unknown objective 'makspan'; did you mean 'makespan'"),
        (("costs",), 3, 'costs must be "linear"'),
        (("costs",), {"knid": "table"}, 'costs must be "linear"'),
        (("costs",), {"kind": "rooflin"}, "unknown cost model 'rooflin'; did you mean 'roofline'"),
        (("costs",), {"kind": "table"}, "costs lacks 'seconds'"),
        (("costs",), {"kind": "table", "seconds": {"reed": {}}}, "unknown key 'reed'; did you mean 'read'"),
        (("costs",), {"kind": "table", "seconds": {"read": {"cpu": -1}}}, "node 'read' on device 'cpu' is -1"),
    ],
)
def test_every_mistake_gives_one_clear_line(tmp_path, path, value, message):
    path = written(tmp_path, change(path, value))
    with pytest.raises(InputError, match=message) as caught:
        load_problem(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "placewright/1",\n "graph": }', "line 2, column 11: this is not JSON"),
        ("", "line 1, column 1: this is not JSON"),
        ("[1]", r"a placewright file is a JSON object .* not \[1\]"),
        ('{"format": "placewright/1", "graph": {"nodes": [], "nodes": []}}', "key 'nodes' is given twice"),
        ('{"format": ' + "9" * 5000 + "}", "too many digits"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_broken_files_say_where(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=message) as caught:
        load_problem(path)
    assert str(path) in str(caught.value)


def test_unreadable_files(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*absent.json: No such file"):
        load_problem(tmp_path / "absent.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        load_problem(tmp_path / "binary.json")
    with pytest.raises(InputError, match="cannot read"):
        load_problem(tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{"read": "cpu"}], "placement 0 lacks 'left'"),
        ([["cpu", "cpu", "gpu"]], "placement 0 has 3 devices; graph 'diamond' has 4 nodes"),
        ([["cpu", "cpu", "gpu", "cpp"]], "placement 0, node 'join' names device \"cpp\".*did you mean 'cpu'"),
        ([{"red": "cpu"}], "placement 0 names node 'red'.*did you mean 'read'"),
        ("gpu", "cannot read gpu"),
    ],
)
def test_mistakes_in_placements(given, message):
    problem = read_problem(example())
    with pytest.raises(InputError, match=message):
        load_placements(given, problem)


def test_a_graph_alone_cannot_keep_devices(tmp_path):
    path = written(tmp_path, example())
    with pytest.raises(InputError, match="node 'join' lists devices"):
        load_graph(path)


def test_large_files_load(tmp_path):
    n = 20_000
    names = [f"layer/{i}" for i in range(n)]
    document = {
        "format": "placewright/1",
        "graph": {
            "nodes": [{"name": x, "op": "MatMul", "flops": 1e9, "output_bytes": 4.0, "output_shape": [1, 1]} for x in names],
            "edges": [[names[i], names[i + 1], 4.0] for i in range(n - 1)],
        },
    }
    graph = load_graph(written(tmp_path, document))
    assert (graph.n_nodes, graph.n_edges) == (n, n - 1)
