"""Connecting to a Ray cluster, or starting a Ray on this machine. What runs there does not belong here."""

from __future__ import annotations

import logging
import os
from typing import Any

from envs.problem.errors import InputError
from orchestration.tracking.provenance import quiet_environment

ONE_THREAD = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}  # fmt: skip
"""A trial computes in one thread; trials run side by side."""
START_ATTEMPTS = 5
"""How often a Ray of this machine is started before its start fails."""


def _start_local(ray: Any, options: dict[str, Any]) -> None:
    """Start Ray on this machine. Ray gives its parts 30 s, which are too few where others keep the processors busy: so more than once."""
    reason = ""
    for _ in range(START_ATTEMPTS):
        try:
            ray.init(address="local", **options)
            return
        except Exception as error:  # Ray raises no narrower class, whichever of its parts did not come up
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            ray.shutdown()
    raise InputError(
        f"Ray did not start here in {START_ATTEMPTS} tries ({reason}); the machine may be too busy, so try again later, or with --local"
    )


def start_ray(address: str | None, cpus: int | None) -> bool:
    """Connect to Ray, starting one if no address is given; whether this call did, so that it should also end it.

    Raises:
        InputError: if there is no cluster at the address, or none could be started.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "placewright"}
    if address is None:
        for key, value in ONE_THREAD.items():
            os.environ.setdefault(key, value)
        quiet_environment()
        _start_local(ray, {"num_cpus": cpus, "include_dashboard": False, **options})
        return True
    try:
        ray.init(address=address, runtime_env={"env_vars": ONE_THREAD}, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"no Ray cluster answers at {address!r} ({reason}); start one with `ray start --head` or leave --address out"
        ) from None
    return True
