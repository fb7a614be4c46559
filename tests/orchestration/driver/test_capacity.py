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
    assert "4 GPU" in note and "grown" in note
    assert capacity.check([trial("heft", 5, resources=resources(gpu=0.5))], [SMALL, BIG], grows=False) == []
    nodes = [{"Alive": True, "Resources": SMALL, "Labels": {}}, {"Alive": False, "Resources": BIG}]
    assert capacity.alive(nodes) == [SMALL] and not capacity.may_grow(nodes)
    assert capacity.may_grow([*nodes, {"Alive": True, "Resources": {}, "Labels": {"ray.io/node-group": "cpu"}}])


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
