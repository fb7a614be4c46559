"""Whether a tracking store can be used, before anything starts."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import urllib.request
from pathlib import Path
from typing import Any

import sqlalchemy
from filelock import FileLock
from sqlalchemy import event
from sqlalchemy.engine import Engine

from envs.problem.errors import InputError, nearest
from orchestration.specs.secrets import masked

SCHEMES = ("sqlite", "postgresql", "mysql", "mssql", "http", "https")


def default_uri(output: Path) -> str:
    """SQLite in the output directory."""
    return f"sqlite:///{(output / 'mlflow.db').resolve()}"


def check_uri(uri: str) -> None:
    """Look at a tracking URI before anything starts.

    Raises:
        InputError: if it is malformed, its folder cannot be written, or its server does not answer; passwords are masked.
    """
    try:
        _check(uri)
    except InputError as error:
        raise InputError(masked(str(error))) from None


def _check(uri: str) -> None:
    parts = urllib.parse.urlsplit(uri)
    scheme = parts.scheme.split("+")[0]
    if scheme not in SCHEMES:
        raise InputError(
            f"tracking URI {uri!r} does not begin with a known scheme{nearest(scheme, SCHEMES)}; "
            "give e.g. sqlite:///runs/mlflow.db or http://localhost:5000"
        )
    if scheme == "sqlite":
        if not uri.startswith("sqlite:///") or len(uri) <= len("sqlite:///"):
            raise InputError(f"tracking URI {uri!r} names no file; write sqlite:///folder/mlflow.db")
        folder = Path(uri.removeprefix("sqlite:///")).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"tracking URI {uri!r} lies in a folder that cannot be made ({error.strerror}); choose another") from None
        if not os.access(folder, os.W_OK):
            raise InputError(f"tracking URI {uri!r} lies in a folder that cannot be written; choose another")
        _check_sqlite(uri)
    elif scheme in ("http", "https"):
        _check_server(uri, parts)
    elif not parts.hostname and not parts.query and not parts.path:
        raise InputError(f"tracking URI {uri!r} names no host; write {scheme}://user:password@host/database")
    else:
        _check_database(uri)


def _check_sqlite(uri: str) -> None:
    """MLflow would try for minutes to open what is no database, and to write to what is a damaged one."""
    path = Path(uri.removeprefix("sqlite:///"))
    if path.exists():
        try:
            with contextlib.closing(sqlite3.connect(path)) as connection:
                (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(str(found).replace("\n", " "))
        except sqlite3.Error as error:
            raise InputError(f"tracking store {uri!r} cannot be opened ({error}); move the file away or choose another") from None


def alone_at(uri: str) -> contextlib.AbstractContextManager[Any]:
    """Held while a store is opened: of two sweeps that begin at once, one must not find the tables that the other is making."""
    path = uri.removeprefix("sqlite:///")
    return contextlib.nullcontext() if path == uri else FileLock(f"{path}.lock")


def _check_database(uri: str) -> None:

    try:
        engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool)
        engine.connect().close()
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"tracking store {uri!r} cannot be opened ({reason}); start it or choose another --tracking-uri") from None


def _check_server(uri: str, parts: urllib.parse.SplitResult) -> None:
    try:
        if not parts.hostname or (parts.port is not None and parts.port == 0):
            raise InputError(f"tracking URI {uri!r} names no host; write {parts.scheme}://host:5000")
    except ValueError:
        raise InputError(f"tracking URI {uri!r} has an impossible port; write {parts.scheme}://host:5000") from None
    try:
        with urllib.request.urlopen(uri.rstrip("/") + "/health", timeout=10):
            pass
    except urllib.error.HTTPError as error:
        if error.code == 403:
            raise InputError(f"tracking server {uri!r} refuses this host name; start it with --allowed-hosts {parts.netloc}") from None
        # any other answer, such as a request to log in, comes from a server that is there
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise InputError(f"tracking server {uri!r} does not answer ({reason}); start it or choose another --tracking-uri") from None


def fast_sqlite() -> None:
    """One writer needs no rollback journal: write-ahead logging halves the time a run takes, and readers are not locked out."""

    def settings(connection: Any, _record: Any) -> None:
        if type(connection).__module__.startswith("sqlite3"):
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")

    if not getattr(fast_sqlite, "done", False):
        event.listen(Engine, "connect", settings)
        fast_sqlite.done = True  # type: ignore[attr-defined]
