"""The disk cache: arrays and JSON under a content key, written atomically, with a checksum, never unpickled. What is cached is decided
elsewhere."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from envs.problem.graph import ComputationGraph, digest

_CHECKSUM = hashlib.sha256().digest_size
"""Bytes at the end of an entry: the sha256 of those before."""


def cache_directory() -> Path:
    """``$PLACEWRIGHT_CACHE``, or the platform's cache folder for a user (``~/.cache/placewright`` on Linux)."""
    if chosen := os.environ.get("PLACEWRIGHT_CACHE"):
        return Path(chosen).expanduser()
    return platformdirs.user_cache_path("placewright", appauthor=False)


def tool_versions(*packages: str) -> tuple[str, ...]:
    """``name==version`` of installed packages, without importing them."""
    found = []
    for package in packages:
        try:
            found.append(f"{package}=={version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} missing")
    return tuple(found)


def file_hash(*paths: Path) -> str:
    """sha256 over the bytes of files, in order."""
    sha = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            sha.update(hashlib.file_digest(file, "sha256").digest())
    return sha.hexdigest()


def save(key: str, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Store arrays and a JSON-able description under ``key``; readers see the old entry or the new, never half of one.

    A cache that cannot be written (read-only or full disk) is skipped: the next caller builds the entry again.
    """
    about_bytes = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    content = io.BytesIO()
    np.savez_compressed(content, about=about_bytes, **arrays)  # type: ignore[arg-type]
    target = cache_directory() / f"{key}.npz"
    temporary = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".new-", suffix=".npz", delete=False) as file:
            temporary = file.name
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())
        os.replace(temporary, target)
    except OSError:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def load(key: str) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """What was saved under ``key``; None if there is nothing sound (then it is to be built again)."""
    try:
        data = (cache_directory() / f"{key}.npz").read_bytes()
    except OSError:
        return None
    content, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
    if hashlib.sha256(content).digest() != checksum:
        return None
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files if name != "about"}
        return arrays, json.loads(stored["about"].tobytes())


def save_graph(key: str, graph: ComputationGraph) -> None:
    """Store a graph under ``key``: every field of the dataclass, arrays as such and the others as JSON."""
    content = {f.name: getattr(graph, f.name) for f in fields(graph)}
    arrays = {name: value for name, value in content.items() if isinstance(value, np.ndarray)}
    about = {name: value for name, value in content.items() if name not in arrays}
    save(f"graph-{key}", arrays, {**about, "content_hash": graph.content_hash})


def has_graph(key: str) -> bool:
    """Whether there is an entry under ``key``; only `load_graph` finds out whether it is sound."""
    return (cache_directory() / f"graph-{key}.npz").is_file()


def load_graph(key: str) -> ComputationGraph | None:
    """The graph stored under ``key``; None if it is missing, damaged, or its content is not what was written."""
    found = load(f"graph-{key}")
    if found is None:
        return None
    content: dict[str, Any] = {**found[0], **found[1]}
    expected = content.pop("content_hash", None)
    try:
        graph = ComputationGraph(**content)
    except (TypeError, ValueError, AttributeError):
        return None
    return graph if graph.content_hash == expected else None


def graph_key(*parts: object) -> str:
    """A cache key over what decides a captured graph: the given parts, the tools' versions and the capture's own source."""
    here = Path(__file__).parent
    own = [here / name for name in ("openvino_capture.py", "torch_capture.py", "../problem/op_arithmetic.py", "store.py")]
    own += sorted((here / "models").glob("*.py"))
    return digest(file_hash(*own), tool_versions("openvino", "torch", "transformers"), *parts)[:40]
