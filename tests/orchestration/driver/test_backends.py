"""Starting Ray on a machine that is busy."""

import pytest
import ray

from envs.problem.errors import InputError
from orchestration.driver import backends
from orchestration.driver.backends import start_ray

TOO_BUSY = Exception("The current node timed out during startup. This could happen because some of the raylet failed to startup")


@pytest.fixture
def starting(monkeypatch):
    """What starts of Ray end with, in turn; None is a start that succeeds."""
    ends = []

    def init(**options):
        assert options["address"] == "local"
        end = ends.pop(0)
        if end is not None:
            raise end

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    return ends


def test_a_start_that_takes_too_long_is_tried_again(starting):
    starting += [TOO_BUSY, TOO_BUSY, None]
    assert start_ray(None, 2)
    assert not starting


def test_a_machine_that_never_gets_that_far_is_named(starting):
    starting += [TOO_BUSY] * backends.START_ATTEMPTS
    with pytest.raises(InputError, match=r"timed out during startup.*the machine may be too busy, so try again later, or with --local"):
        start_ray(None, 2)


def test_so_is_one_in_which_another_part_did_not_come_up(starting):
    starting += [RuntimeError("Failed to start GCS."), None]
    assert start_ray(None, 2)
