"""Machines that share nothing but a network and, at ``/mnt/bucket``, a folder that stands for an object store: Linux namespaces with file
systems, processes and addresses of their own. What numba has compiled lies there too, or each would compile it anew. What is checked on
them belongs to ``checks.py``."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BRIDGE, NETWORK = "pw-cluster", "10.77.77"
PORT, DASHBOARD = 6379, 8265
DISK = "2g"
"""Size of a machine's own file systems."""
MOUNTS = """
set -e
mount --make-rprivate /
mount -t tmpfs -o size={disk} tmpfs /mnt
mkdir /mnt/code /mnt/bucket
mount --bind {root} /mnt/code
mount -o remount,ro,bind /mnt/code
mount --bind {bucket} /mnt/bucket
mount -t tmpfs -o size={disk} tmpfs /tmp
mount -t tmpfs -o size={disk} tmpfs /dev/shm
mount -t tmpfs -o size={disk} tmpfs /var/tmp
mkdir /tmp/home
hostname {name}
exec sleep infinity
"""


def sh(*command: str) -> None:
    """Run a command; its output goes with the error if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip() or done.stdout.strip()}")


class Machine:
    """A machine that is switched on."""

    def __init__(self, name: str, number: int, bucket: Path, token: str) -> None:
        self.name, self.ip, self._space, self._token = name, f"{NETWORK}.{number}", f"pw-{name}", token
        for left in (("link", "delete", f"v{number}-pw"), ("netns", "delete", self._space)):
            with contextlib.suppress(RuntimeError):  # of a run that was killed
                sh("ip", *left)
        sh("ip", "netns", "add", self._space)
        sh("ip", "link", "add", f"v{number}-pw", "type", "veth", "peer", "name", "eth0", "netns", self._space)
        sh("ip", "link", "set", f"v{number}-pw", "master", BRIDGE, "up")
        for command in (f"addr add {self.ip}/24 dev eth0", "link set eth0 up", "link set lo up"):
            sh("ip", "-n", self._space, *command.split())
        script = MOUNTS.format(root=shlex.quote(str(ROOT)), bucket=shlex.quote(str(bucket)), name=name, disk=DISK)
        command = ["ip", "netns", "exec", self._space, "unshare", "-m", "-p", "-f", "-u", "--mount-proc", "bash", "-c", script]
        self._outer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_for(lambda: bool(self._children()) and (self.files / "tmp/home").is_dir(), f"{name} did not start", 30)

    def _children(self) -> list[int]:
        with contextlib.suppress(OSError, ValueError):
            return [int(p) for p in Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()]
        return []

    @property
    def first(self) -> int:
        """Its first process, as this machine calls it: it ends the others with it."""
        return self._children()[0]

    @property
    def files(self) -> Path:
        """Its file system, as this machine sees it."""
        return Path(f"/proc/{self.first}/root")

    @property
    def environment(self) -> dict[str, str]:
        """Of its processes."""
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp/home", "PYTHONPATH": "/mnt/code",
            "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._token,
            "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_memory_monitor_refresh_ms": "0",
            "RAY_worker_niceness": "0",  # else others' work on this machine would starve these workers
            "RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "10", "NUMBA_CACHE_DIR": "/mnt/bucket/numba",
        }  # fmt: skip

    def start(self, *command: str, log: str = "log") -> subprocess.Popen[bytes]:
        """Begin a command in its folder /tmp/home, with its output in the file ``log`` there."""
        enter = ["nsenter", "-t", str(self.first), "-m", "-n", "-p", "-u", "env", "-i", "-C", "/tmp/home"]
        with (self.files / "tmp/home" / log).open("ab") as out:
            return subprocess.Popen([*enter, *(f"{k}={v}" for k, v in self.environment.items()), *command], stdout=out, stderr=out)

    def do(self, *command: str, log: str = "log", timeout: float = 600) -> None:
        """Run a command to its end.

        Raises:
            RuntimeError: if it fails, with the end of its output.
        """
        if self.start(*command, log=log).wait(timeout):
            raise RuntimeError(f"{self.name}: {shlex.join(command)} failed:\n{self.read('tmp/home/' + log)[-3000:]}")

    def placewright(self, *words: str, log: str = "log") -> subprocess.Popen[bytes]:
        """Begin a command of this program."""
        return self.start("python", "-m", "orchestration.cli.main", *words, log=log)

    def read(self, path: str) -> str:
        """A text file; empty if there is none."""
        with contextlib.suppress(OSError):
            return (self.files / path).read_text(errors="replace")
        return ""

    def write(self, path: str, text: str) -> None:
        """Put a text file there."""
        (self.files / path).parent.mkdir(parents=True, exist_ok=True)
        (self.files / path).write_text(text)

    def ray(self, head: Machine | None = None, cpus: int = 1, resources: str = "{}") -> None:
        """Start its part of a Ray cluster, as the head if there is none; a busy machine is tried again."""
        where = ["--head", f"--port={PORT}", "--dashboard-host=0.0.0.0"] if head is None else [f"--address={head.ip}:{PORT}"]
        words = [
            *where,
            f"--node-ip-address={self.ip}",
            f"--num-cpus={cpus}",
            "--object-store-memory=100000000",
            f"--resources={resources}",
        ]
        for attempt in range(4):
            try:
                self.do("ray", "start", *words, "--disable-usage-stats", log="ray.log")
                return
            except RuntimeError:
                if attempt == 3:
                    raise
                time.sleep(5)

    def off(self) -> None:
        """As a power cut: no process says goodbye, and its address falls silent."""
        for pid in self._children():
            os.kill(pid, signal.SIGKILL)
        self._outer.wait(30)
        with contextlib.suppress(RuntimeError):
            sh("ip", "netns", "delete", self._space)


class Lab:
    """Machines on one network, and what they share: the bucket."""

    def __init__(self, bucket: Path) -> None:
        self.bucket, self._token = bucket, secrets.token_hex(32)
        self.machines: list[Machine] = []

    def machine(self, name: str) -> Machine:
        """Switch one on."""
        self.machines.append(Machine(name, 11 + len(self.machines), self.bucket, self._token))
        return self.machines[-1]

    def off(self) -> None:
        """Switch all off."""
        for machine in self.machines:
            machine.off()


@contextlib.contextmanager
def lab() -> Iterator[Lab]:
    """A network without machines."""
    with contextlib.suppress(RuntimeError):
        sh("ip", "link", "delete", BRIDGE)
    sh("ip", "link", "add", BRIDGE, "type", "bridge")
    sh("ip", "addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
    sh("ip", "link", "set", BRIDGE, "up")
    with tempfile.TemporaryDirectory(prefix="placewright-bucket-") as folder:
        found = Lab(Path(folder))
        try:
            yield found
        finally:
            found.off()
            sh("ip", "link", "delete", BRIDGE)


def wait_for(what: Callable[[], Any], complaint: str, timeout: float = 900) -> Any:
    """What ``what`` gives as soon as it is true.

    Raises:
        RuntimeError: with the complaint, if it does not become so in time.
    """
    deadline = time.monotonic() + timeout
    while not (found := what()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{complaint} within {timeout:.0f} s")
        time.sleep(0.3)
    return found
