"""Files at a URL of fsspec (``file://``, ``s3://``, ``gs://``, ``memory://``): read, written, listed. Which files those are, and what they
mean, belongs to ``orchestration/folder/mirror.py``."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fsspec
import platformdirs
from fsspec.implementations.local import LocalFileSystem

from envs.problem.errors import InputError
from orchestration.specs.files import write_atomic

URL_FILE = "remote.url"
"""In an output folder that stands for a URL: that URL."""


def output_folder(text: str) -> Path:
    """The folder that ``--output`` names; of a URL the folder of this machine in which a driver works and which it mirrors there."""
    return _standing_for(text, "outputs")


def output_view(text: str) -> Path:
    """As `output_folder`, for commands that only look: another folder, so that no driver is disturbed."""
    return _standing_for(text, "views")


def _standing_for(text: str, kind: str) -> Path:
    if "://" not in text:
        return Path(text)
    url = text.rstrip("/")
    folder = platformdirs.user_cache_path("placewright", appauthor=False) / kind / hashlib.sha256(url.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / URL_FILE, url.encode(), private=True)
    return folder


def url_of(output: Path) -> str | None:
    """The URL that an output folder stands for; None if it is only a folder."""
    try:
        return (output / URL_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return None


class Remote:
    """A folder at a URL. Names are relative to it, with slashes.

    Raises:
        InputError: if nothing here knows such URLs, or it cannot be reached.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError, OSError) as error:
            raise InputError(f"output {url!r} cannot be used ({error}); s3:// needs the package s3fs, gs:// gcsfs") from None
        self._root = self._root.rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def read(self, name: str) -> bytes | None:
        """What the file holds; None if there is none."""
        try:
            data: bytes = self._fs.cat_file(self._path(name))
        except FileNotFoundError:
            return None
        return data

    def write(self, name: str, data: bytes) -> None:
        """Put ``data`` there, so that the file holds either the old or the new."""
        if isinstance(self._fs, LocalFileSystem):
            write_atomic(Path(self._path(name)), data)
        else:  # an object store shows an object when it is whole
            self._fs.pipe_file(self._path(name), data)

    def files(self) -> dict[str, int]:
        """All files with their sizes in bytes."""
        self._fs.invalidate_cache()
        found: dict[str, Any] = self._fs.find(self._root, detail=True)
        return {path[len(self._root) :].lstrip("/"): int(about["size"] or 0) for path, about in found.items()}

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; those that are gone already do not count."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))

    def fetch(self, names: Iterable[str], folder: Path) -> None:
        """Copy files into ``folder``, under the same names; InputError for a name that leads out of it."""
        names = list(names)
        for name in names:
            if not (folder / name).resolve().is_relative_to(folder.resolve()):
                raise InputError(f"{self.url} holds {name!r}, which leads out of the folder; remove it there")
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if names:
            self._fs.get([self._path(name) for name in names], [str(folder / name) for name in names])
