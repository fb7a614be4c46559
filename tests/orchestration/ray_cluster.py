"""A Ray cluster of several nodes on this machine, with processes of its own that end with it; token authentication is on."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def free_port() -> int:
    """A port that nobody listens on, and that the system hands to nobody while a server on it is away."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


@dataclass
class Nodes:
    """The cluster and what others need to reach it."""

    cluster: Any
    environment: dict[str, str]
    """For processes that connect to it."""
    dashboard: str
    node_options: dict[str, Any]
    workers: list[Any] = field(default_factory=list)
    """Nodes other than the head."""

    @property
    def address(self) -> str:
        return self.cluster.address

    def add(self) -> None:
        self.workers.append(self.cluster.add_node(**self.node_options))

    def kill(self, index: int) -> None:
        """End a node as a power cut would: no process of it gets to say goodbye."""
        self.cluster.remove_node(self.workers.pop(index), allow_graceful=False)


@contextlib.contextmanager
def ray_nodes(workers: int = 2, cpus: int = 1, dashboard: bool = False) -> Iterator[Nodes]:
    """A head and so many worker nodes of ``cpus`` CPUs each; must not be called where a Ray is in use already."""
    environment = {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        # Jobs are started as `python`: this one.
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        # All nodes share this machine's memory, and others use it too: it says nothing about these trials.
        "RAY_memory_monitor_refresh_ms": "0",
        # How long Ray waits for a dead node to answer before it is called dead.
        "RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "10",
    }  # fmt: skip
    before = {key: os.environ.get(key) for key in environment}
    os.environ.update(environment)
    from ray.cluster_utils import Cluster

    port = free_port()
    options = {"num_cpus": cpus, "object_store_memory": 80 << 20}
    head = {**options, "include_dashboard": dashboard, "dashboard_port": port}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes = Nodes(cluster, environment, f"http://127.0.0.1:{port}", options)
        for _ in range(workers):
            nodes.add()
        yield nodes
    finally:
        cluster.shutdown()
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
