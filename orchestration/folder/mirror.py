"""A sweep's folder, kept at a URL too: the driver writes into a folder of its machine, and what is new there follows to the URL every
few seconds. A driver on another machine takes it up from there. How files get there belongs to ``orchestration/folder/remote.py``.

At the URL lie the files of the folder under their names, but for those that only grow, ledger and journal: an object store cannot append,
so they lie in parts, ``ledger.jsonl.parts/EPOCH-NUMBER-OFFSET``. Every driver has an epoch, one above that of the driver before. A part
says at which byte it begins; what an earlier one held from there on is void. So a driver that was taken for dead does no harm.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from envs.problem.errors import InputError
from orchestration.folder.lock import is_active, runs_here
from orchestration.folder.remote import Remote, url_of
from orchestration.specs.files import read_object, safe_name, write_atomic
from orchestration.specs.layout import DRIVER, JOURNAL, LEDGER, LOCK, STORE, TRIALS

SYNC_SECONDS = 5.0
BEAT_SECONDS = 5.0
SILENT_SECONDS = 30.0
"""A driver that has not written its beat for so long is taken for dead."""
END_SECONDS = 60.0
"""How long the end of a sweep waits for a URL that cannot be reached."""
CANCEL = "cancel.json"
"""At the URL: which driver is asked to stop."""
HELD = "mirror.json"
"""In the folder: of which epoch it is, and until when all was sent."""
GROWING = (JOURNAL, LEDGER)
"""Files that only grow. A study must not know more than the ledger: its size is taken first, and sent last."""
MOST_PARTS = 200
"""More parts than this are put together when a driver begins."""
_PART = re.compile(r"(.+)\.parts/(\d+)-(\d+)-(\d+)")
_OWN = re.compile(rf"\..*|.*\.part|.*-wal|.*-shm|{re.escape(LOCK)}|{re.escape(HELD)}")
"""Names of files that are this machine's affair."""


def assembled(remote: Remote, files: dict[str, int], name: str) -> tuple[int, Callable[[], bytes], list[str]]:
    """Size of a file that lies in parts, how to read it, and all of its parts."""
    parts = sorted((tuple(map(int, m.groups()[1:])), part) for part in files if (m := _PART.fullmatch(part)) and m[1] == name)
    size = 0
    used: list[tuple[int, str]] = []
    for (_, _, offset), part in parts:
        if offset <= size:  # else a late one of a driver that was taken for dead
            used = [(o, p) for o, p in used if o < offset] + [(offset, part)]
            size = offset + files[part]

    def read() -> bytes:
        data = bytearray()
        for offset, part in used:
            del data[offset:]
            data += remote.read(part) or b""
        return bytes(data)

    return size, read, [part for _, part in parts]


def pull(remote: Remote, folder: Path, files: dict[str, int], *, trials: bool = True) -> None:
    """Bring ``folder`` to what the URL has; what else it holds of growing files is lost, since another driver went on without it."""
    plain = [
        name for name in files if name not in (DRIVER, CANCEL) and not _PART.fullmatch(name) and (trials or not name.startswith(TRIALS))
    ]
    remote.fetch(plain, folder)
    for name in GROWING:
        _, read, parts = assembled(remote, files, name)
        (folder / name).unlink(missing_ok=True)
        if parts:
            data = read()
            write_atomic(folder / name, data[: data.rfind(b"\n") + 1])


def refresh(home: Path, sweep: str) -> None:
    """Bring a folder for looking at (`orchestration.folder.remote.output_view`) to what its URL has of a sweep, but for trials' files."""
    if (url := url_of(home)) is None:
        return
    remote, folder = Remote(f"{url}/{safe_name(sweep)}"), home / safe_name(sweep)
    if files := remote.files():
        pull(remote, folder, files, trials=False)
        remote.fetch([DRIVER], folder)


@contextlib.contextmanager
def mirrored(folder: Path, url: str | None, say: Callable[[str], object]) -> Iterator[Callable[[], None]]:
    """For the time of a block this driver alone writes to the URL of ``folder``, if it has one. What the block gets is to be called when
    the folder is ready for the run.

    Raises:
        InputError: if another driver writes there, or took it over meanwhile.
    """
    if url is None:
        yield lambda: None
        return
    mirror = Mirror(f"{url}/{folder.name}", folder, say)
    mirror.claim()
    try:
        yield mirror.begin
    except KeyboardInterrupt:
        if mirror.taken:
            raise InputError(f"{mirror.taken} has taken {url} over, so this one stopped; what it had sent is there") from None
        raise
    finally:
        if note := mirror.close():
            say(note)


class Mirror:
    """The URL of a sweep, held by this driver from `claim` to `close`.

    Args:
        say: told what takes long.
    """

    def __init__(self, url: str, folder: Path, say: Callable[[str], object] = print) -> None:
        self._remote, self._folder, self._say = Remote(url), folder, say
        self._id, self.epoch = uuid.uuid4().hex, 0
        self._number = 0
        """Of the next part."""
        self._sizes: dict[str, int] = {}
        """How much of each growing file is at the URL."""
        self._known: dict[str, tuple[int, int]] = {}
        """Time and size of files that are there."""
        self._times: dict[str, int] = {}
        """When the folders of trials that are there were last changed."""
        self._synced = 0.0
        self._stop = threading.Event()
        self._busy = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.error = ""
        self.taken = ""
        """Which driver took the URL over from this one; empty if none did."""

    def claim(self) -> None:
        """Make sure that nobody else writes there, and bring the folder to what lies there.

        Raises:
            InputError: if another driver does.
        """
        if is_active(self._folder):
            raise InputError(f"another run of this machine is writing to {self._remote.url}; wait for it or stop it")
        before = self._driver()
        if before and not before.get("ended"):
            self._watch(before)
        self.epoch = int(before.get("epoch", 0)) + 1
        self._beat()
        time.sleep(0.5)
        if (now := self._driver()).get("id") != self._id:  # somebody else began in the same moment
            raise InputError(f"{_who(now)} is writing to {self._remote.url}; wait for it, stop it, or give another --output")
        files = self._remote.files()
        held = self._held()
        if before and (held.get("epoch"), held.get("url")) != (before.get("epoch"), self._remote.url):
            self._say(f"taking up what lies at {self._remote.url}: {sum(files.values()) / 1e6:.1f} MB")
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True, exist_ok=True)
            pull(self._remote, self._folder, files)
            self._known = {name: stamp for name, stamp in self._files()}
        else:
            self._synced = float(held.get("synced", 0.0))
        self._hold()

    def begin(self) -> None:
        """Let the URL follow from now on. The folder is as the run begins: after a fresh start, what is gone here goes there too."""
        files = self._remote.files()
        for name in GROWING:
            size, _, parts = assembled(self._remote, files, name)
            here = self._whole(name)
            if len(parts) > MOST_PARTS or here < size:
                size = 0
            self._sizes[name] = size
            self._append(name, here, fence=True)
            if size == 0:
                self._remote.remove(parts)
        there = {name for name in files if name != DRIVER and not _PART.fullmatch(name)}
        stamps = dict(self._files())
        self._remote.remove(there - stamps.keys())
        self._known |= {name: stamp for name, stamp in stamps.items() if name in there and stamp[0] < (self._synced - 2) * 1e9}
        for work, seconds in ((self.sync, SYNC_SECONDS), (self._keep_beating, BEAT_SECONDS)):
            self._threads.append(threading.Thread(target=self._repeat, args=(work, seconds), daemon=True))
            self._threads[-1].start()

    def close(self) -> str | None:
        """Send the rest and let others take over; a sentence if not all could be sent."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=END_SECONDS)
        if not self._threads:  # the run did not begin
            with contextlib.suppress(Exception):
                self._beat(ended=True)
            return None
        deadline = time.monotonic() + END_SECONDS
        while not self.taken:
            try:
                self.sync()
                self._beat(ended=True)
                return None
            except Exception as error:  # of any kind of store
                self.error = str(error) or type(error).__name__
                if time.monotonic() > deadline:
                    return (
                        f"{self._remote.url} lacks what ended last ({self.error.splitlines()[0]}); {self._folder} has it, and running the "
                        "sweep again on this machine sends it"
                    )
                time.sleep(1.0)
        return None

    def sync(self) -> None:
        """Send what is new. What ended may be read there only when what it learned is there too, so the ledger follows the rest."""
        with self._busy:
            began = time.time()
            sizes = {name: self._whole(name) for name in GROWING}
            for name, stamp in self._files():
                if self._known.get(name) != stamp:
                    with contextlib.suppress(FileNotFoundError):  # replaced or set aside meanwhile
                        self._remote.write(name, self._content(name))
                        self._known[name] = stamp
            for name in reversed(GROWING):
                self._append(name, sizes[name])
            self._synced = began
            self._hold()

    # --- who writes there

    def _driver(self) -> dict[str, Any]:
        return _read(self._remote, DRIVER)

    def _beat(self, ended: bool = False) -> None:
        about = {
            "id": self._id, "epoch": self.epoch, "host": socket.gethostname(), "pid": os.getpid(), "beat": time.time(), "ended": ended,
        }  # fmt: skip
        self._remote.write(DRIVER, json.dumps(about).encode())

    def _keep_beating(self) -> None:
        now = self._driver()
        if now.get("id") == self._id:
            self._beat()
            if _read(self._remote, CANCEL).get("id") == self._id:
                self._remote.remove([CANCEL])
                os.kill(os.getpid(), signal.SIGTERM)
        elif int(now.get("epoch", 0)) >= self.epoch and not self.taken:
            self.taken = _who(now)
            self._stop.set()
            os.kill(os.getpid(), signal.SIGTERM)  # the driver stops as at Ctrl-C

    def _watch(self, before: dict[str, Any]) -> None:
        """Wait until it is clear that the driver is dead, by this machine's clock alone; InputError if it is not."""
        if before.get("host") == socket.gethostname() and not runs_here(before):
            return
        self._say(f"{_who(before)} did not say that it ended; looking for {SILENT_SECONDS:.0f} s whether it still writes")
        deadline = time.monotonic() + SILENT_SECONDS
        while time.monotonic() < deadline:
            time.sleep(min(1.0, SILENT_SECONDS / 10))
            if (now := self._driver()) != before:
                raise InputError(f"{_who(now)} is writing to {self._remote.url}; wait for it, stop it, or give another --output")

    def _repeat(self, work: Callable[[], object], seconds: float) -> None:
        while not self._stop.wait(seconds):
            try:
                work()
                self.error = ""
            except Exception as error:  # stores fail in many ways; what is missing is sent the next time
                self.error = str(error) or type(error).__name__

    # --- files

    def _held(self) -> dict[str, Any]:
        return read_object(self._folder / HELD) or {}

    def _hold(self) -> None:
        about = {"url": self._remote.url, "epoch": self.epoch, "synced": self._synced}
        write_atomic(self._folder / HELD, json.dumps(about).encode())

    def _files(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Names of the folder's files, but for the growing, with time and size; folders of trials that did not change are passed over."""
        for top in sorted(os.scandir(self._folder), key=lambda e: e.name):
            if top.is_file() and top.name not in GROWING:
                yield from _stamped(self._folder, Path(top.path))
            elif top.is_dir():
                for path in sorted(Path(top.path).rglob("*")) if not top.name.startswith(TRIALS) else self._changed(Path(top.path)):
                    yield from _stamped(self._folder, path)

    def _changed(self, trials: Path) -> Iterator[Path]:
        for one in os.scandir(trials):
            changed = one.stat().st_mtime_ns
            if self._times.get(one.path) != changed:
                yield from sorted(Path(one.path).iterdir())
                if changed < (time.time() - 2) * 1e9:  # within one tick of the clock it may change again
                    self._times[one.path] = changed

    def _content(self, name: str) -> bytes:
        path = self._folder / name
        if path.suffix != Path(STORE).suffix:
            return path.read_bytes()
        with tempfile.TemporaryDirectory(prefix="placewright-") as folder:  # with what its log holds
            copy = Path(folder) / "copy"
            with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(copy)) as target:
                source.backup(target)
            return copy.read_bytes()

    def _whole(self, name: str) -> int:
        """Size of a growing file up to the end of its last whole line."""
        try:
            with (self._folder / name).open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                while end:
                    begin = max(0, end - 65536)
                    file.seek(begin)
                    cut = file.read(end - begin).rfind(b"\n")
                    if cut >= 0:
                        return begin + cut + 1
                    end = begin
        except FileNotFoundError:
            pass
        return 0

    def _append(self, name: str, size: int, fence: bool = False) -> None:
        """Send what a growing file has beyond what is there; ``fence`` also writes an empty part, which voids those of earlier epochs."""
        begin = self._sizes[name]
        if size <= begin and not fence:
            return
        data = b""
        if size > begin:
            with (self._folder / name).open("rb") as file:
                file.seek(begin)
                data = file.read(size - begin)
        self._remote.write(f"{name}.parts/{self.epoch:06d}-{self._number:08d}-{begin:016d}", data)
        self._number += 1
        self._sizes[name] = begin + len(data)


def _read(remote: Remote, name: str) -> dict[str, Any]:
    """A small file of JSON; empty if there is none."""
    with contextlib.suppress(ValueError):
        found = json.loads(remote.read(name) or b"{}")
        return found if isinstance(found, dict) else {}
    return {}


def driven(home: Path, sweep: str) -> bool:
    """Whether a driver on whatever machine has lately written to the URL that ``home`` stands for, by this machine's clock."""
    url = url_of(home)
    driver = {} if url is None else _read(Remote(f"{url}/{safe_name(sweep)}"), DRIVER)
    return bool(driver) and not driver.get("ended") and time.time() - float(driver.get("beat", 0.0)) < SILENT_SECONDS


def stop(url: str, timeout: float) -> bool:
    """Ask the driver that writes to a sweep's URL, on whatever machine, to stop as at Ctrl-C; whether it did so within ``timeout`` seconds.

    Raises:
        InputError: if no driver writes there, or the one that did says nothing any more.
    """
    remote = Remote(url)
    before = _read(remote, DRIVER)
    if not before or before.get("ended"):
        raise InputError(f"no driver is running the sweep at {url}; placewright status shows how far it came")
    remote.write(CANCEL, json.dumps({"id": before.get("id")}).encode())
    deadline, beats = time.monotonic() + timeout, {before.get("beat")}
    while time.monotonic() < deadline:
        now = _read(remote, DRIVER)
        if now.get("ended") or now.get("id") != before.get("id"):
            return True
        beats.add(now.get("beat"))
        time.sleep(0.5)
    if len(beats) == 1:
        remote.remove([CANCEL])
        raise InputError(
            f"{_who(before)} said nothing for {timeout:g} s; it may have died with its machine, and running the sweep again goes on"
        )
    return False


def _stamped(folder: Path, path: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """The file's name in the folder with its time and size; nothing for what is no file, or not to be sent."""
    if not _OWN.fullmatch(path.name):
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            log = path.with_name(path.name + "-wal")  # a database's latest is there
            changed = max(found.st_mtime_ns, log.stat().st_mtime_ns if log.exists() else 0)
            if path.is_file():
                yield path.relative_to(folder).as_posix(), (changed, found.st_size)


def _who(driver: dict[str, Any]) -> str:
    return f"the driver that is process {driver.get('pid')} of {driver.get('host')!r}"
