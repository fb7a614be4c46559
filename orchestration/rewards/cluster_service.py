"""The cluster's reward service of a host key: detached and named, one for all sweeps, which share its hardware by weight and its store of
measurements. The rules of queueing belong to ``orchestration/rewards/service.py``, a sweep's own service to ``ray_service.py``."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import ray
from filelock import FileLock, Timeout
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from envs.problem.errors import InputError
from orchestration.rewards.fair_queue import Share
from orchestration.rewards.measurement_store import MeasurementStore
from orchestration.rewards.messages import Answer, Ask, Job, ServiceError
from orchestration.rewards.ray_service import Serving, actor
from orchestration.rewards.service import Host

NAMESPACE = "placewright"
STORE_VARIABLE = "PLACEWRIGHT_MEASUREMENTS"
"""Environment variable of a node: the folder for the stores of the services that live there."""
SILENT_SECONDS = 60.0
"""What waits for a sweep that has said nothing for so long is not measured any more."""
IDLE_SECONDS = 600.0
"""A service that no sweep has spoken to for so long ends, and lets go of its hardware."""
CHECK_SECONDS = 10.0
ANSWER_SECONDS = 5.0
"""How long a sweep waits to be told how the service is."""


class ClusterService(Serving):
    """The actor. It keeps what it has measured on the disk of its node, for every sweep that asks later.

    Args:
        key: what it serves, as ``dataflow:cpu2``.
    """

    def __init__(self, key: str) -> None:
        self._lock, store, fault = _open_store(key)
        super().__init__(store)
        self.service.store_fault = fault
        self._heard: dict[str, float] = {}
        """When each sweep last said something."""
        self._caring: Any = None

    async def evaluate(self, ask: Ask) -> Answer | ServiceError | None:
        """See `Serving.evaluate`."""
        self._hear(ask.share.sweep)
        return await super().evaluate(ask)

    async def tell(self, sweep: str) -> dict[str, Any]:
        """What `RewardService.statistics` counts; and note that the sweep still lives."""
        self._hear(sweep)
        return await self.statistics()

    def _hear(self, sweep: str) -> None:
        self._heard[sweep] = time.monotonic()
        if self._caring is None:
            self._caring = asyncio.get_running_loop().create_task(self._care())

    async def _care(self) -> None:
        """Forget sweeps that have gone, and end some time after the last."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            now = time.monotonic()
            for sweep in [name for name, heard in self._heard.items() if now - heard > SILENT_SECONDS]:
                self.service.drop(sweep)
                if now - self._heard[sweep] > IDLE_SECONDS:
                    del self._heard[sweep]
            if not self._heard:
                ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


def _open_store(key: str) -> tuple[FileLock | None, MeasurementStore | None, str]:
    """The store of a key on this machine with the lock that says who writes there, or why there is none."""
    named = os.environ.get(STORE_VARIABLE)
    folder = Path(named) if named else platformdirs.user_data_path("placewright", appauthor=False) / "measurements"
    path = folder / f"{key.replace(':', '-')}-{hashlib.sha256(key.encode()).hexdigest()[:8]}.sqlite"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_suffix(".lock"), blocking=False)
        lock.acquire()
        return lock, MeasurementStore(path), ""
    except Timeout:
        return None, None, f"another service of this machine writes to {path}; what is measured here is kept by each sweep alone"
    except (InputError, OSError) as error:
        return None, None, str(error)


def service_of(key: str, node: str) -> Any:
    """The handle of the cluster's service of ``key``, started if need be.

    It lives where the hardware is; a key without a host's name is that of the machine ``node``, the driver's. Services of other versions of
    this program are others, and take turns at the hardware.
    """
    named = ":" in key
    homes = [n["NodeID"] for n in ray.nodes() if n["Alive"] and n["Resources"].get(key)] if named else [node]
    name = f"rewards {version('placewright')} {key}" + ("" if named else f" of {node}")
    where = NodeAffinitySchedulingStrategy(min(homes), soft=named) if homes else "DEFAULT"
    return actor(
        ClusterService, name=name, namespace=NAMESPACE, get_if_exists=True, lifetime="detached", max_restarts=-1, max_concurrency=10_000,
        scheduling_strategy=where,
    ).remote(key)  # fmt: skip


class ClusterHost:
    """A sweep's end of the cluster's service: to the sweep's own service it is a host that takes any number of requests at once."""

    slots = 1_000_000
    lease_seconds: float | None = None
    """Leases and their limits are the cluster's service's affair."""
    pid: int | None = None

    def __init__(self, key: str, problems: Mapping[str, Any], node: str, share: Share) -> None:
        self.name, self._key, self._problems, self._node, self._share = f"cluster {key}", key, problems, node, share
        self._service = service_of(key, node)

    async def ready(self) -> None:
        """At once: who needs a lease waits there."""

    async def grant(self) -> None:
        """At once, likewise."""

    async def restart(self) -> None:
        """The service that there is now."""
        await asyncio.sleep(1.0)  # one that died is called by its name a moment longer
        self._service = service_of(self._key, self._node)

    async def measure(self, job: Job, placements: np.ndarray, reference: Any, token: int) -> Answer:
        """The cluster's answer; raises what it says of the request."""
        ask = replace(job.ask, placements=placements, reference=None, first=job.first, share=self._share)
        for _ in range(3):
            reply = await self._service.evaluate.remote(ask)
            if isinstance(reply, ServiceError):
                raise reply
            if reply is not None:
                return reply
            await self._service.register.remote(self._problems[ask.problem_hash])
        raise ServiceError(f"problem {ask.problem_hash[:12]} could not be sent to {self.name}")

    async def statistics(self) -> dict[str, Any] | None:
        """What the cluster's service tells of the key, which hears by it that the sweep lives."""
        with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
            told = await asyncio.wait_for(self._service.tell.remote(self._share.sweep), ANSWER_SECONDS)
            found: dict[str, Any] | None = told["keys"].get(self._key)
            return found
        return None


def shared_by(node: str, share: Share) -> Callable[[str, Mapping[str, Any]], Host]:
    """What gives a sweep's service its end of the cluster's services; see `orchestration.rewards.ray_service.ServiceActor`."""
    return functools.partial(_host, node=node, share=share)


def _host(key: str, problems: Mapping[str, Any], node: str, share: Share) -> Host:
    return ClusterHost(key, problems, node, share)
