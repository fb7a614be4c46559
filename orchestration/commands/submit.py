"""Sending a sweep to a Ray cluster as a job: what is packed, how large that may be, and following the job. What a driver does on
the cluster does not belong here."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envs.problem.errors import InputError
from orchestration.specs.secrets import resolved_uri, secret

UPLOAD_LIMIT = 100 << 20
"""Bytes of a packed working directory that the job server takes; larger ones are refused with HTTP 413."""
NEVER = (".git", ".venv", "venv", "__pycache__", ".placewright")
"""Folders that are not sent, wherever they lie."""
URI_VARIABLE = "PLACEWRIGHT_TRACKING_URI"
JOB_CHECK_SECONDS = 2.0
START_SECONDS = 60.0
"""How long a cluster that has just started may take to have an agent that takes jobs."""


def packed_files(root: Path, excludes: Sequence[str] = ()) -> list[Path]:
    """Files of ``root`` to send, relative to it and sorted: those that git does not ignore, or all if it is no repository.

    Args:
        excludes: patterns as `pathlib.PurePath.match` takes them; a pattern that matches a folder leaves out all of it.
    """
    try:
        listed = subprocess.run(
            ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"], capture_output=True, check=True
        ).stdout.decode(errors="surrogateescape")
        files = [Path(name) for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        files = [path.relative_to(root) for path in root.rglob("*")]

    def sent(path: Path) -> bool:
        parts = [path, *path.parents][:-1]
        return not any(p.name in NEVER or any(p.match(pattern) for pattern in excludes) for p in parts) and (root / path).is_file()

    return sorted(path for path in set(files) if sent(path))


def pack(root: Path, target: Path, excludes: Sequence[str] = (), limit: int = UPLOAD_LIMIT) -> int:
    """Pack ``root`` into the zip file ``target``; returns its size in bytes.

    Raises:
        InputError: if it is larger than ``limit``, naming the largest files, before anything is sent.
    """
    files = packed_files(root, excludes)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for path in files:
            archive.write(root / path, str(path))
            if target.stat().st_size > 4 * limit:
                break  # far too large; packing gigabytes would only take time
        sizes = sorted(((i.compress_size, i.filename) for i in archive.infolist()), reverse=True)
    size = target.stat().st_size
    if size > limit:
        worst = ", ".join(f"{name} ({n / (1 << 20):.1f} MiB)" for n, name in sizes[:3])
        raise InputError(
            f"{root} packs to more than the {limit / (1 << 20):.0f} MiB that a job server takes; leave files out with --exclude PATTERN or "
            f"by .gitignore, or put them where the cluster sees them. Largest: {worst}"
        )
    return size


def entrypoint(sweep: Path, root: Path, output: str, options: Sequence[str] = ()) -> str:
    """The command that the job runs in its copy of ``root``.

    Raises:
        InputError: if the sweep lies outside ``root``, so that it would not be sent.
    """
    try:
        inside = sweep.resolve().relative_to(root.resolve())
    except ValueError:
        raise InputError(f"{sweep} lies outside {root}, so it would not be sent; give a --working-dir that holds it") from None
    return shlex.join(["python", "-m", "orchestration.cli.main", "run", str(inside), "--address", "auto", "--output", output, *options])


def hidden_uri(given: str | None) -> tuple[str | None, dict[str, str]]:
    """A tracking URI for the job's command, and variables of its environment: a password goes there, since commands are shown."""
    if given is None or given.startswith("env:"):
        return given, {}
    uri = resolved_uri(given)
    return (f"env:{URI_VARIABLE}", {URI_VARIABLE: uri}) if secret(uri) else (uri, {})


def submit(
    command: str,
    root: Path,
    address: str,
    excludes: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    *,
    wait: bool = True,
) -> tuple[str, str]:
    """Pack ``root``, check its size, send it, run ``command`` in it on the cluster; returns the job's id and its last status.

    With ``wait`` the job's output is printed as it comes until the job ends; Ctrl-C leaves the job running.

    Raises:
        InputError: if the upload is too large, or no job server answers at ``address``.
    """
    os.environ.setdefault("RAY_AUTH_MODE", "token")  # without it the client sends no token, and clusters ask for one
    with tempfile.TemporaryDirectory(prefix="placewright-") as folder:
        target = Path(folder) / "code.zip"
        size = pack(root, target, excludes)
        print(f"sending {root}: {size / (1 << 20):.1f} MiB", file=sys.stderr, flush=True)
        # Ray reads its mode when it is imported, so not before it is set above.
        from ray.exceptions import AuthenticationError
        from ray.job_submission import JobSubmissionClient

        logging.getLogger("ray").setLevel(logging.ERROR)
        try:
            client = JobSubmissionClient(address)
            job = _submit(client, command, {"working_dir": str(target), "env_vars": dict(variables or {})})
        except (OSError, RuntimeError, AuthenticationError) as error:  # OSError: all that the requests library raises
            reason = str(error).strip().splitlines()[0]
            raise InputError(
                f"the job server at {address!r} did not take the job ({reason}); check the address (http://HEAD:8265) and the token "
                "(~/.ray/auth_token or RAY_AUTH_TOKEN)"
            ) from None
    return job, _follow(client, job) if wait else str(client.get_job_status(job))


def _submit(client: Any, command: str, environment: Mapping[str, Any]) -> str:
    """Send it, again and again while the cluster says that it is not ready for jobs."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return client.submit_job(entrypoint=command, runtime_env=dict(environment))
        except RuntimeError as error:
            if "try again later" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(JOB_CHECK_SECONDS)


def _follow(client: Any, job: str) -> str:
    """Print what the job prints until it ends."""
    shown = 0
    while True:
        status = client.get_job_status(job)
        text = client.get_job_logs(job)
        print(text[shown:], end="", flush=True)
        shown = len(text)
        if status.is_terminal():
            return str(status)
        time.sleep(JOB_CHECK_SECONDS)
