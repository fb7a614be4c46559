"""What a sweep's directory keeps of its definition: the text as written, its fragments, and both merged, for reports made later."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.problem.errors import InputError
from orchestration.definition.issues import Issues
from orchestration.definition.source import read_source
from orchestration.specs.files import write_atomic
from orchestration.specs.secrets import secret

if TYPE_CHECKING:
    from orchestration.definition.sweep import Sweep

WRITTEN = "sweep.yaml"
RESOLVED = "resolved.yaml"
"""The definition with its fragments merged in."""
ORIGIN = "origin.json"
"""Where the definition lies, and which of its values were changed for the run."""
FRAGMENTS = "definition"
"""Folder of a definition that includes others, with all of its files as they lie to one another."""


def save_definition(folder: Path, sweep: Sweep) -> list[Path]:
    """Write the definition of a sweep into its directory; the files written."""
    contents = {folder / WRITTEN: sweep.text, folder / RESOLVED: sweep.resolved}
    shutil.rmtree(folder / FRAGMENTS, ignore_errors=True)
    if len(sweep.files) > 1:
        resolved = {Path(name).resolve(): text for name, text in sweep.files.items()}
        above = Path(os.path.commonpath([path.parent for path in resolved]))
        contents |= {folder / FRAGMENTS / path.relative_to(above): text for path, text in resolved.items()}
    for path, text in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text.encode(), private=secret(text))
    origin = json.dumps({"path": str(sweep.path.resolve()), "set": sweep.settings})
    write_atomic(folder / ORIGIN, origin.encode(), private=secret(origin))
    return list(contents)


def definition_origin(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The file of which a directory keeps a copy, and the values that were changed; the copy itself if the file is gone."""
    try:
        origin = json.loads((folder / ORIGIN).read_text(encoding="utf-8"))
        path, changed = Path(origin["path"]), tuple(map(str, origin["set"]))
    except (OSError, ValueError, KeyError, TypeError):
        return definition_path(folder), ()
    return (path, changed) if path.is_file() else (definition_path(folder), ())


def saved_definition(folder: Path) -> dict[str, Any]:
    """The definition as it was run, fragments included; empty if it is lost."""
    path = definition_path(folder)
    source = read_source(path, Issues()) if path.is_file() else None
    plain: dict[str, Any] = {} if source is None else source.node.plain()
    return plain


def saved_definition_hash(folder: Path) -> str:
    """Changes with every word of the definition and of its fragments, but not with comments; empty if it is lost."""
    path = definition_path(folder)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def definition_path(folder: Path) -> Path:
    """Where the definition lies; a directory may be older than `RESOLVED`."""
    return folder / RESOLVED if (folder / RESOLVED).is_file() else folder / WRITTEN


def merged_definition(sweep: Path) -> dict[str, Any]:
    """A sweep's YAML file with its fragments, as plain values; InputError if it cannot be read."""
    issues = Issues()
    source = read_source(sweep, issues)
    if source is None or issues.found:
        raise InputError(f"cannot read sweep {sweep}; see `placewright validate {sweep}`")
    plain: dict[str, Any] = source.node.plain()
    return plain
