"""A Ray cluster of several nodes on this machine, with processes of its own that end with it; token authentication is on."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

START_ATTEMPTS = 6


def free_port() -> int:
    """A port that nobody listens on, and that the system hands to nobody while a server on it is away."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


class Nodes:
    """The cluster and what others need to reach it. Ray keeps a process's first token for good, so a process of its own holds it."""

    def __init__(self, workers: int, cpus: int, dashboard: bool, resources: Mapping[str, float], apart: bool) -> None:
        port = free_port()
        self.dashboard = f"http://127.0.0.1:{port}"
        self.environment = cluster_environment()
        """For processes that connect to it."""
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(other, self.environment, cpus, port if dashboard else None, dict(resources), apart)
        )
        self._process.start()
        other.close()
        self.address: str = self._pipe.recv()
        self.workers = 0
        """Nodes besides the head."""
        for _ in range(workers):
            self.add()

    def add(self) -> None:
        """Start a node more."""
        self._pipe.send(None)
        self._pipe.recv()
        self.workers += 1

    def kill(self, index: int) -> None:
        """End a node as a power cut would: no process of it gets to say goodbye."""
        self._pipe.send(index)
        self._pipe.recv()
        self.workers -= 1

    def close(self) -> None:
        self._pipe.close()
        self._process.join(300)
        if self._process.is_alive():
            self._process.kill()


def cluster_environment() -> dict[str, str]:
    """Settings of the cluster's processes and of those that connect to it."""
    return {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "PLACEWRIGHT_MEASUREMENTS": tempfile.mkdtemp(prefix="placewright-measurements-"),
        # Jobs are started as `python`: this one.
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        # All nodes share this machine's memory, and others use it too: it says nothing about these trials.
        "RAY_memory_monitor_refresh_ms": "0",
        # How long Ray waits for a dead node to answer before it is called dead.
        "RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "10",
    }  # fmt: skip


def _serve(pipe: Any, environment: dict[str, str], cpus: int, port: int | None, resources: dict[str, float], apart: bool) -> None:
    """The process that holds the cluster: adds a node for None, kills one for its index, ends when the pipe is closed."""
    os.environ.update(environment)
    from ray.cluster_utils import Cluster

    options = {"num_cpus": cpus, "object_store_memory": 80 << 20}
    # The agent that takes jobs listens on a port of its own, by default the same for every cluster of a machine.
    extra = {} if port is None else {"dashboard_port": port, "dashboard_agent_listen_port": free_port()}
    head = {**options, "include_dashboard": port is not None, **extra}
    cluster = _patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
    workers: list[Any] = []
    try:
        pipe.send(cluster.address)
        while True:
            index = pipe.recv()
            if index is None:
                more = {"resources": resources} if resources else {}
                if apart:  # where the lock of a machine that measures lies
                    more["env_vars"] = {"TMPDIR": tempfile.mkdtemp(prefix="placewright-node-")}
                workers.append(_patiently(lambda more=more: cluster.add_node(**options, **more)))
            else:
                cluster.remove_node(workers.pop(index), allow_graceful=False)
            pipe.send(None)
    except EOFError:
        pass
    finally:
        cluster.shutdown()


def _patiently(start: Callable[[], Any]) -> Any:
    """Ray gives a node 30 s to come up, which are too few where others keep the processors busy: so more than once."""
    for _ in range(START_ATTEMPTS - 1):
        before = set(psutil.Process().children(recursive=True))
        try:
            return start()
        except Exception:
            for process in set(psutil.Process().children(recursive=True)) - before:  # what came up of it
                with contextlib.suppress(psutil.Error):
                    process.kill()
    return start()


@contextlib.contextmanager
def ray_nodes(
    workers: int = 2, cpus: int = 1, dashboard: bool = False, resources: Mapping[str, float] | None = None, apart: bool = False
) -> Iterator[Nodes]:
    """A head and so many worker nodes of ``cpus`` CPUs each.

    Args:
        resources: others that each worker node has.
        apart: whether worker nodes count as machines of their own to `orchestration.rewards.machine_lock`.
    """
    nodes = Nodes(workers, cpus, dashboard, resources or {}, apart)
    try:
        yield nodes
    finally:
        nodes.close()
