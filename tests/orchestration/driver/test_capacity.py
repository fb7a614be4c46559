import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from envs.problem.errors import InputError
from orchestration.driver import capacity
from orchestration.driver.backends import RayBackend
from orchestration.driver.progress import Display
from orchestration.specs.canonical import FrozenDict
from tests.orchestration.sweeps_for_tests import trial

SMALL = {"CPU": 2.0, "memory": 1e9, "node:10.0.0.1": 1.0}
BIG = {"CPU": 8.0, "GPU": 2.0, "openvino:flex170": 1.0}


def resources(cpu=1, gpu=0, **custom) -> FrozenDict:
    return FrozenDict({"num_cpus": cpu, "num_gpus": gpu, "custom": custom})


@pytest.mark.parametrize(
    ("asked", "nodes", "words"),
    [
        (resources(gpu=1, nope=1), [SMALL], ("'heft'", "'main'", "1 GPU and 1 nope", "1 x 2 CPU")),
        (resources(cpu=9), [SMALL, BIG, SMALL], ("9 CPU", "2 x 2 CPU; 1 x 8 CPU and 2 GPU and 1 openvino:flex170")),
        (resources(cpu=4, rare=1), [{"CPU": 1.0, "rare": 1.0}, BIG], ("4 CPU and 1 rare at once",)),
        (resources(cpu=1), [], ("there are none",)),
    ],
)
def test_resources_that_nobody_has_are_said_before_anything_starts(asked, nodes, words):
    with pytest.raises(InputError) as caught:
        capacity.check([trial("heft", 5), trial("heft", 5, resources=asked)], [*nodes], grows=False)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)


def test_a_cluster_that_may_grow_is_waited_for():
    (note,) = capacity.check([trial("heft", 5, resources=resources(gpu=4))], [SMALL, BIG], grows=True)
    assert "4 GPU" in note and "grown" in note and "cannot be known" in note
    assert capacity.check([trial("heft", 5, resources=resources(gpu=0.5))], [SMALL, BIG], grows=False) == []
    nodes = [{"Alive": True, "Resources": SMALL, "Labels": {}}, {"Alive": False, "Resources": BIG}]
    assert capacity.alive(nodes) == [SMALL] and not capacity.may_grow(nodes)
    assert capacity.may_grow([*nodes, {"Alive": True, "Resources": {}, "Labels": {"ray.io/node-group": "cpu"}}])


LAUNCHED = """
cluster_name: lab
max_workers: 4
available_node_types:
  head: {max_workers: 0, resources: {CPU: 64, GPU: 8}, node_config: {}}
  small: {min_workers: 0, max_workers: 3, resources: {CPU: 2}, node_config: {}}
  big: {max_workers: 1, resources: {CPU: 8, GPU: 2, "openvino:flex170": 1}, node_config: {}}
"""


def node(group, alive=True):
    return {"Alive": alive, "Resources": SMALL, "Labels": {"ray.io/node-group": group}}


def test_what_no_kind_of_machine_ever_has_is_refused_though_the_cluster_grows(tmp_path):
    config = tmp_path / "ray_bootstrap_config.yaml"
    config.write_text(LAUNCHED)
    kinds = capacity.startable([node("head"), node("small"), node("gone", alive=False)], config)
    assert kinds == [{"CPU": 2.0}, BIG], "the head is there once and never again"
    (note,) = capacity.check([trial("heft", 5, resources=resources(gpu=2))], [SMALL], True, kinds)
    assert "grown one" in note and "cannot be known" not in note
    with pytest.raises(InputError, match=r"4 GPU, which no machine has .* nor has any .* may start .*8 CPU and 2 GPU") as caught:
        capacity.check([trial("heft", 5, resources=resources(gpu=4))], [SMALL], True, kinds)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="at once"):
        capacity.check([trial("heft", 5, resources=resources(cpu=8, gpu=2, nope=0.5))], [{"nope": 1.0}, BIG], True, kinds)

    def nobody(key):
        return None if key == "simulator" else f"no host serves {key!r}"

    (note,) = capacity.hosted(["openvino:flex170", "simulator"], nobody, True, kinds)
    assert "flex170" in note
    with pytest.raises(InputError, match=r"other.*start a node"):
        capacity.hosted(["openvino:other"], nobody, True, kinds)
    (note,) = capacity.hosted(["openvino:other"], nobody, True, None)
    assert "cannot be known" in note
    with pytest.raises(InputError, match="start a node"):
        capacity.hosted(["openvino:flex170"], nobody, False, None)


@pytest.mark.parametrize(
    "text",
    [
        None, "", "a: [", "available_node_types: 3", "available_node_types: {small: 3, head: {}}",
        "available_node_types: {head: {max_workers: 0}, small: {resources: {}}}", "available_node_types: {other: {resources: {CPU: 2}}}",
    ],
)  # fmt: skip
def test_where_the_kinds_of_machines_cannot_be_known_nothing_is_guessed(tmp_path, text):
    """No file, another one, one that leaves resources to the machine, one of another cluster."""
    config = tmp_path / "ray_bootstrap_config.yaml"
    if text is not None:
        config.write_text(text)
    assert capacity.startable([node("head"), node("small")], config) is None


def test_only_trials_with_room_count_as_running():
    handed = {resources(): 7, resources(gpu=1): 3, resources(gpu=0.1): 9, resources(nope=1): 4}
    assert capacity.running(handed, [SMALL, BIG]) == 9, "two GPUs are taken, one CPU stays"
    assert capacity.running({resources(gpu=1): 3, resources(gpu=0.1): 50}, [{"CPU": 99, "GPU": 4.0}]) == 3 + 10
    assert capacity.running({resources(nope=1): 4}, [SMALL, BIG]) == 0
    assert capacity.homeless(handed, [SMALL, BIG]) == "4 waiting for 1 CPU and 1 nope"
    assert capacity.homeless({resources(): 100}, [SMALL]) == ""


def test_the_display_says_what_is_waited_for():
    display = Display(4, 0, console=Console(file=io.StringIO()))
    display.tick(0, waiting="4 waiting for 1 nope")
    assert "0 running, 4 waiting for 1 nope, 0 failed" in display.line()


def test_machines_that_join_are_used():
    """The backend without its Ray: only what it looks at now and then."""

    known = [{"Alive": True, "Resources": {"CPU": 0.0}}]
    backend = RayBackend.__new__(RayBackend)
    backend._ray, backend._tracker, backend._service, backend._asked = SimpleNamespace(nodes=lambda: known), None, None, {}
    backend._handed, backend._looked = capacity.Counter({resources(): 3}), -1e9
    backend._look()
    assert (backend.room(resources()), backend.running()) == (1, 0)
    known.append({"Alive": True, "Resources": {"CPU": 8.0}})
    backend._look()
    assert backend.room(resources()) == 1, "it does not look all the time"
    backend._looked = -1e9
    backend._look()
    assert (backend.room(resources()), backend.running()) == (15, 3)
