"""The lock of a machine: nobody else can hold it, or have us open another file in its place."""

import os
import select
import subprocess
import sys

import pytest

from envs.problem.errors import InputError
from orchestration.rewards.machine_lock import MachineLock, own_folder

WAITING = """
import sys
from pathlib import Path
from orchestration.rewards.machine_lock import MachineLock
lock = MachineLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_is_the_users_own(temporary):
    lock = MachineLock()
    with lock.held():
        folder = temporary / f"placewright-{os.getuid()}"
        assert (folder / "measuring.lock").exists() and folder.stat().st_mode & 0o777 == 0o700
        lock.acquire()  # at once, because it is held
    lock.release()
    assert own_folder(temporary) == folder


def test_a_planted_link_is_not_followed(temporary):
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (temporary / f"placewright-{os.getuid()}").symlink_to(elsewhere)
    with pytest.raises(InputError, match="is a link; have it removed"):
        MachineLock().acquire()
    assert not list(elsewhere.iterdir())


def test_a_planted_file_or_an_open_folder_is_refused(temporary):
    planted = temporary / f"placewright-{os.getuid()}"
    planted.touch()
    with pytest.raises(InputError, match="is no folder"):
        MachineLock().acquire()
    planted.unlink()
    planted.mkdir()
    planted.chmod(0o777)
    with pytest.raises(InputError, match=r"is open to others \(mode 777\)"):
        MachineLock().acquire()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(temporary):
    planted = temporary / f"placewright-{os.getuid()}"
    planted.mkdir(mode=0o700)
    os.chown(planted, 12345, 12345)
    with pytest.raises(InputError, match="belongs to user 12345"):
        MachineLock().acquire()


def test_a_process_that_dies_lets_go(tmp_path):
    path = tmp_path / "lock"
    command = [sys.executable, "-c", WAITING, str(path)]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "held\n"
    second = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert not select.select([second.stdout], [], [], 1)[0], "the second waits"
        first.kill()
        first.wait()
        assert second.stdout.readline() == "held\n"
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
