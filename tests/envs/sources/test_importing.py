"""Files of other tools: counts, sums and times are theirs, and what is wrong in one is said in a sentence."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from envs.problem.errors import InputError
from envs.simulators.fifo.evaluator import Simulator
from envs.simulators.period import device_loads
from envs.sources import files
from envs.sources.importing import check, load_foreign, load_placements, load_problem
from methods.testing.problems import random_network

DATA = Path(__file__).parent / "data"
LAYERS = ("layer-bert24_inference", "layer-gnmt_training", "op-bert_l-3_inference")
WORKFLOWS = ("helloworld-forkjoin-10-chameleon", "srasearch-chameleon-10a-001")
STG = """
3
0 0 0
1 4 1 0      # one predecessor
2 6 1 0
3 2 2 1 2
4 0 1 3
# robot.stg
"""
STG_COSTS = "3\n0 4 0\n1 6 1\n 0 5\n2 2 2\n 0 7\n 1 1.5\n"


def document(folder, name):
    return json.loads((DATA / folder / f"{name}.json").read_text())


def written(tmp_path, content, name="mine.json"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_graph_has_the_counts_sums_and_devices_of_its_file(name):
    given, problem = document("dnn-partitioning", name), load_problem(DATA / "dnn-partitioning" / f"{name}.json")
    nodes, edges, graph = given["nodes"], given["edges"], problem.graph
    assert (graph.n_nodes, graph.n_edges) == (len(nodes), len(edges))
    assert problem.n_devices == given["maxFPGAs"] + given["maxCPUs"]
    assert graph.parameter_bytes.sum() == pytest.approx(sum(n["size"] for n in nodes), rel=1e-12)
    seconds = problem.compute_seconds.sum(axis=0)
    assert seconds[0] == pytest.approx(1e-3 * sum(n["fpgaLatency"] for n in nodes), rel=1e-12)
    assert seconds[-1] == pytest.approx(1e-3 * sum(n["cpuLatency"] for n in nodes), rel=1e-12)
    assert graph.backward.sum() == sum(bool(n["isBackwardNode"]) for n in nodes)
    to_host = graph.edge_bytes * problem.network.seconds_per_byte[0, -1]
    np.testing.assert_allclose(to_host, [1e-3 * e["cost"] for e in edges], rtol=1e-12)
    np.testing.assert_allclose(graph.edge_bytes * problem.network.seconds_per_byte[0, 1], 2 * to_host, rtol=1e-12)
    for a in nodes[:40]:
        same = [b["id"] for b in nodes if b.get("colorClass") == a.get("colorClass", object())] or [a["id"]]
        leaders = {problem.leaders[graph.names.index(str(i))] for i in same}
        assert len(leaders) == 1, "equal colours share a device"
    assert (problem.objective, graph.provenance) == ("throughput", "measured")


def published_load(given, device):
    """The definition in the format's own terms: largest load by device of every node, milliseconds."""
    nodes, cost, readers = {n["id"]: n for n in given["nodes"]}, {}, {}
    for e in given["edges"]:
        cost[e["sourceId"]] = e["cost"]
        readers.setdefault(e["sourceId"], set()).add(device[e["destId"]])
    load = dict.fromkeys(set(device.values()), 0.0)
    for i, n in nodes.items():
        load[device[i]] += n["cpuLatency"] if device[i].startswith("cpu") else n["fpgaLatency"]
        away = readers.get(i, set()) - {device[i]}
        for other in {device[i], *away} if away else ():
            load[other] += 0.0 if other.startswith("cpu") else cost[i]
    return max(load.values())


@pytest.mark.parametrize("name", LAYERS)
def test_throughput_is_the_published_load(name):
    given, problem = document("dnn-partitioning", name), load_problem(DATA / "dnn-partitioning" / f"{name}.json")
    rng = np.random.default_rng(0)
    rows = problem.colocate(rng.integers(0, problem.n_devices, (20, problem.n_nodes)))
    found = Simulator().evaluate(problem, rows)
    devices = problem.network.names
    for row, ok, value in zip(rows, found.ok, found.objective, strict=True):
        if ok:
            at = {int(node): devices[d] for node, d in zip(problem.graph.names, row, strict=True)}
            assert value * 1e3 == pytest.approx(published_load(given, at), rel=1e-9)
    assert found.ok.any()


def test_a_split_is_a_placement_and_backward_nodes_follow_their_colour(tmp_path):
    problem = load_problem(DATA / "dnn-partitioning" / "layer-gnmt_training.json")
    forward = [int(n) for n, back in zip(problem.graph.names, problem.graph.backward, strict=True) if not back]
    split = {"fpgas": [{"load": -1, "nodes": forward[:50]}, {"load": -1, "nodes": forward[50:]}], "cpus": [{"nodes": []}], "maxLoad": -1}
    (row,) = load_placements(written(tmp_path, split), problem)
    assert problem.valid(row[None])[0] and set(row.tolist()) == {0, 1}
    assert [row[problem.graph.names.index(str(i))] for i in forward] == [0] * 50 + [1] * (len(forward) - 50)
    for change, what in (
        ({"fpgas": [{"nodes": forward[:-1]}]}, "leaves out node"),
        ({"fpgas": [{"nodes": forward}, {"nodes": forward[:1]}]}, "in two parts"),
        ({"fpgas": [{"nodes": [99999]}]}, "lists node 99999"),
        ({"fpgas": [{"nodes": forward}], "cpus": [{"nodes": []}, {"nodes": forward[:1]}]}, "uses 2 cpus"),
    ):
        with pytest.raises(InputError, match=what):
            load_placements(written(tmp_path, change), problem)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_has_the_counts_sums_and_times_of_its_file(name):
    given, path = document("wfinstances", name)["workflow"], DATA / "wfinstances" / f"{name}.json"
    found, problem = load_foreign(path), load_problem(path)
    tasks, ran = given["specification"]["tasks"], given["execution"]["tasks"]
    sizes = {f["id"]: f["sizeInBytes"] for f in given["specification"]["files"]}
    by_id = {t["id"]: t for t in tasks}
    pairs = {(t["id"], child) for t in tasks for child in t["children"]}
    moved = sum(sizes[f] for u, v in pairs for f in set(by_id[u]["outputFiles"]) & set(by_id[v]["inputFiles"]))
    assert (found.graph.n_nodes, found.graph.n_edges) == (len(tasks), len(pairs))
    assert found.seconds["machine"] == pytest.approx(sum(t["runtimeInSeconds"] for t in ran))
    assert found.graph.edge_bytes.sum() == moved and moved > 0
    names = problem.graph.names
    assert {(names[u], names[v]) for u, v in problem.graph.edges.tolist()} == pairs
    own = {t["id"]: problem.network.index(t["machines"][0]) for t in ran}
    times = [problem.compute_seconds[i, own[n]] for i, n in enumerate(names)]
    np.testing.assert_allclose(times, [next(t["runtimeInSeconds"] for t in ran if t["id"] == n) for n in names], rtol=1e-12)
    assert found.graph.provenance == "measured" and found.format == "WfFormat 1.5"


def test_a_workflow_of_schema_1_4_is_the_same_graph(tmp_path):
    new = document("wfinstances", WORKFLOWS[0])
    flow, machine = new["workflow"], new["workflow"]["execution"]["machines"][0]
    sizes = {f["id"]: f["sizeInBytes"] for f in flow["specification"]["files"]}
    tasks = []
    for t, r in zip(flow["specification"]["tasks"], flow["execution"]["tasks"], strict=True):
        both = [("input", f) for f in t["inputFiles"]] + [("output", f) for f in t["outputFiles"]]
        tasks.append(
            {"name": t["name"], "id": t["id"], "type": "compute", "runtimeInSeconds": r["runtimeInSeconds"], "parents": t["parents"],
             "children": t["children"], "files": [{"link": link, "name": f, "sizeInBytes": sizes[f]} for link, f in both]}
        )  # fmt: skip
    old = {"name": "x", "schemaVersion": "1.4", "workflow": {"makespanInSeconds": 1, "machines": [machine], "tasks": tasks}}
    path = written(tmp_path, old)
    assert load_foreign(path).graph.content_hash == load_foreign(DATA / "wfinstances" / f"{WORKFLOWS[0]}.json").graph.content_hash
    assert load_foreign(path).format == "WfFormat 1.4"


def test_a_task_graph_in_either_form(tmp_path):
    plain = load_foreign(written(tmp_path, STG, "a.stg")).graph
    assert plain.names == ("0", "1", "2", "3", "4") and plain.flops.tolist() == [0, 4, 6, 2, 0]
    assert plain.edges.tolist() == [[0, 1], [0, 2], [1, 3], [2, 3], [3, 4]] and not plain.edge_bytes.any()
    costly = load_foreign(written(tmp_path, STG_COSTS, "b.stg")).graph
    assert costly.edges.tolist() == [[0, 1], [0, 2], [1, 2]] and costly.edge_bytes.tolist() == [5, 7, 1.5]
    assert costly.output_bytes.tolist() == [7, 1.5, 0]
    network = random_network(2, np.random.default_rng(0))
    assert load_problem(tmp_path / "b.stg", network).objective == "makespan"
    with pytest.raises(InputError, match="names no devices"):
        load_problem(tmp_path / "b.stg")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "empty"), ("x", "not a number"), ("0", "whole number from 1"), ("2\n0 1 0", "truncated"), ("2\n0 1 0\n1 1 1", "truncated"),
        ("2\n0 1 0\n2 1 0", "numbered from 0"), ("2\n0 1 0\n1 -1 0", "negative"), ("2\n0 1 0\n1 1 1 9", "no task"),
        ("2\n0 1 1 1\n1 1 1 0", "cycle"), ("2\n0 1 0\n1 1 2 0 0", "given twice"), ("1\n0 1 0\n1 1 0\n2 1 0\n3 1 0", "goes on"),
        ("2\n0 1 0\n1 nan 0", "not a number"),
    ],
)  # fmt: skip
def test_malformed_task_graphs_are_refused_in_a_sentence(text, what, tmp_path):
    path = written(tmp_path, text, "bad.stg")
    with pytest.raises(InputError, match=f"bad.stg: .*{what}") as error:
        check(path)
    assert "\n" not in str(error.value)


def changed(given, *path_and_value):
    given = copy.deepcopy(given)
    *path, last, value = path_and_value
    place = given
    for key in path:
        place = place[key]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return given


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("maxFPGAs", KeyError), "lacks 'maxFPGAs'"), (("maxFPGAs", -1), "whole number"), (("maxFPGAs", 2.5), "whole number"),
        (("maxSizePerFPGA", "big"), "must be a number"), (("nodes", 0, "id", KeyError), "node 0 lacks 'id'"),
        (("nodes", 0, "id", 3), "two nodes have the id 3"), (("nodes", 0, "cpuLatency", -1), "not negative"),
        (("nodes", 0, "fpgaLatency", "1"), "must be a number"), (("nodes", 0, "size", None), "must be a number"),
        (("nodes", 0, "supportedOnFpga", 2), "true or false"), (("nodes", 0, "isBackwardNode", KeyError), "lacks 'isBackwardNode'"),
        (("nodes", 0, "colorClass", "red"), "colorClass must be a whole number"), (("nodes", []), "no nodes"), (("nodes", 5), "list"),
        (("edges", 0, "destId", 777), "names node 777"), (("edges", 0, "cost", -2), "not negative"), (("edges", 0, "destId", 1), "itself"),
        (("edges", 0, "cost", KeyError), "lacks 'cost'"), (("edges", 0, 7), "must be an object"), (("edges", KeyError), "lacks 'edges'"),
        (("edges", 1, {"sourceId": 32, "destId": 1, "cost": 0.0}), "cycle"), (("edges", 5, "cost", 5.0), "takes one time"),
        (("edges", 0, "sourceId", 10**400), "below 2.63"), (("nodes", 0, "fpgaLatency", 1e308), "at most 1e.15 milliseconds"),
    ],
)  # fmt: skip
def test_malformed_layer_graphs_are_refused_in_a_sentence(change, what, tmp_path):
    path = written(tmp_path, changed(document("dnn-partitioning", LAYERS[0]), *change))
    with pytest.raises(InputError, match=what) as error:
        check(path)
        load_problem(path)
    assert "\n" not in str(error.value) and str(path) in str(error.value)


TASKS, RAN = ("workflow", "specification", "tasks"), ("workflow", "execution", "tasks")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("workflow", 3), "must be an object"), (("workflow", "specification", "tasks", KeyError), "lacks 'tasks'"),
        (("workflow", "execution", KeyError), "lacks 'tasks'"), ((*TASKS, []), "no tasks|is not among"), ((*TASKS, 0, "id", 5), "string"),
        ((*TASKS, 0, "parents", ["nobody"]), "no task of the workflow"),
        ((*TASKS, 0, "parents", [[]]), "no task of the workflow"), ((*TASKS, 0, "children", "x"), "must be a list"),
        ((*TASKS, 0, "parents", ["cpuhog_forkjoin_00000002"]), "cycle"), ((*TASKS, 1, "id", "cpuhog_forkjoin_00000001"), "must be unique"),
        ((*RAN, 0, "runtimeInSeconds", -1.0), "not negative"), ((*RAN, 0, "runtimeInSeconds", "3 s"), "must be a number"),
        ((*RAN, 0, "runtimeInSeconds", KeyError), "lacks 'runtimeInSeconds'"), ((*RAN, 0, KeyError), "has no runtime"),
        ((*RAN, 0, "id", "stranger"), "not among the tasks"), (("workflow", "specification", "files", KeyError), "size is not given"),
        (("workflow", "specification", "files", 0, "sizeInBytes", -5), "not negative"),
        (("workflow", "execution", "machines", 0, "cpu", "speedInMHz", 0), "must be positive"),
        (("workflow", "execution", "machines", 0, "nodeName", KeyError), "lacks 'nodeName'"), (("schemaVersion", "9.9"), "'9.9'"),
        ((*TASKS, 0, "id", KeyError), "task 0 lacks 'id'"), ((*RAN, 0, "id", KeyError), "executed task 0 lacks 'id'"),
    ],
)  # fmt: skip
def test_malformed_workflows_are_refused_in_a_sentence(change, what, tmp_path):
    path = written(tmp_path, changed(document("wfinstances", WORKFLOWS[0]), *change))
    with pytest.raises(InputError, match=what) as error:
        check(path)
        load_problem(path)
    assert "\n" not in str(error.value) and str(path) in str(error.value)


@pytest.mark.parametrize("source", ["dnn-partitioning/layer-bert24_inference.json", "wfinstances/srasearch-chameleon-10a-001.json"])
def test_truncated_files_are_refused_in_a_sentence(source, tmp_path):
    whole = (DATA / source).read_text()
    for part in (0.0, 0.3, 0.7, 0.999):
        with pytest.raises(InputError, match="not JSON"):
            check(written(tmp_path, whole[: int(part * len(whole.rstrip()))]))


def test_what_was_read_survives_our_own_format(tmp_path):
    problem = load_problem(DATA / "dnn-partitioning" / "layer-gnmt_training.json")
    files.save(files.dump_problem(problem), tmp_path / "own.json")
    again = load_problem(tmp_path / "own.json")
    assert (again.graph, again.network, again.objective) == (problem.graph, problem.network, problem.objective)
    assert again.graph.provenance == "measured" and again.graph.backward.any() and again.network.host.tolist() == [False] * 6 + [True]
    np.testing.assert_array_equal(again.compute_seconds, problem.compute_seconds)


def test_devices_without_a_host_are_both_busy_with_a_transfer():
    network = random_network(2, np.random.default_rng(0))
    problem = load_problem(DATA / "wfinstances" / f"{WORKFLOWS[0]}.json", network)
    row = np.zeros((1, problem.n_nodes), dtype=np.int16)
    row[0, 0] = 1
    sent = network.delay[1, 0] + problem.graph.edge_bytes[problem.graph.edges[:, 0] == 0].max() * network.seconds_per_byte[1, 0]
    own = problem.compute_seconds
    np.testing.assert_allclose(device_loads(problem, row), [[own[1:, 0].sum() + sent, own[0, 1] + sent]])
