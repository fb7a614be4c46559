"""Partitions are repeatable beside threads that call the C library's rand(), which is what METIS draws from."""

import ctypes
import json
import subprocess
import sys
import threading

import numpy as np
import pytest

from methods.placing import metis
from methods.placing.one_go import partition
from methods.testing.problems import random_problem

CALLS, DEVICES = 200, 8


def partitions(calls=CALLS):
    """One problem under many seeds, int16[calls, V]."""
    problem = random_problem(300, DEVICES, seed=3)
    return np.stack([partition(problem, np.arange(DEVICES), seed) for seed in range(calls)])


def in_a_fresh_process(code):
    """What Python prints there, as JSON."""
    head = "import json, os\nfrom methods.placing import metis\nfrom tests.methods.placing.test_metis import partitions\n"
    return json.loads(subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=True).stdout)


@pytest.fixture
def rand_in_a_thread():
    """A thread that calls rand() without end, as Ray's and gRPC's do now and then."""
    libc, done = ctypes.CDLL(None), threading.Event()

    def call():
        while not done.is_set():
            libc.rand()

    thread = threading.Thread(target=call)
    thread.start()
    yield
    done.set()
    thread.join()


@pytest.mark.thorough
def test_seeded_partitions_are_the_same_beside_a_thread_that_calls_rand(rand_in_a_thread):
    first, second = partitions(), partitions()
    assert (first == second).all(axis=1).sum() == CALLS
    assert len(np.unique(first, axis=0)) > CALLS / 2, "the seed hardly matters, so the test could not fail"


def test_they_are_what_pymetis_answers_in_an_undisturbed_process():
    alone = in_a_fresh_process("metis._PROCESS.ask = metis._Partitioner().part_graph\nprint(json.dumps(partitions(20).tolist()))")
    assert partitions(20).tolist() == alone


@pytest.mark.thorough
def test_a_process_that_died_is_replaced():
    before = partitions(3)
    metis._PROCESS.child.popen.kill()
    np.testing.assert_array_equal(partitions(3), before)


def test_a_forked_process_asks_its_own():
    same, pids = in_a_fresh_process(
        "first, pid, (end, begin) = partitions(3), metis._PROCESS.child.popen.pid, os.pipe()\n"
        "if os.fork() == 0:\n"
        "    same = bool((partitions(3) == first).all())\n"
        "    os.write(begin, json.dumps([same, [pid, metis._PROCESS.child.popen.pid]]).encode())\n"
        "    metis._PROCESS.end()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "assert (partitions(3) == first).all() and metis._PROCESS.child.popen.pid == pid\n"
        "print(os.read(end, 1000).decode())"
    )
    assert same and len(set(pids)) == 2


HEAVY = """
import sys
import numpy as np
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from methods.placing import metis
from methods.placing.one_go import partition
from methods.testing.problems import GivenCosts, make_graph
if sys.argv[1] == "inside":
    metis._PROCESS.ask = metis._Partitioner().part_graph
graph = make_graph([(0, 1), (1, 2), (2, 3)], [1.0] * 3, [1.0] * 4)
network = DeviceNetwork(("a", "b", "c", "d"), 1.0, 1.0, 0.0)
partition(Problem(graph, network, GivenCosts(((1e9,) * 4, *[(1.0,) * 4] * 3))), np.arange(4), 0)
"""
"""One operation has all the work, so METIS runs out of vertices to bisect, and says so through the C library."""


@pytest.mark.parametrize(("where", "shown"), [("inside", True), ("outside", False)])
def test_what_metis_prints_is_not_shown(where, shown):
    said = subprocess.run([sys.executable, "-c", HEAVY, where], capture_output=True, text=True, check=True)
    assert ("***Cannot bisect a graph with 0 vertices!" in said.stdout) == shown
    assert shown or said.stdout + said.stderr == ""
