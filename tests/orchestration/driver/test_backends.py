"""Starting Ray on a machine that is busy."""

import os

import pytest
import ray

from envs.problem.errors import InputError
from orchestration.driver import ray_start
from orchestration.driver.backends import RayBackend
from orchestration.driver.ray_start import start_ray

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
    starting += [TOO_BUSY] * ray_start.START_ATTEMPTS
    with pytest.raises(InputError, match=r"timed out during startup.*the machine may be too busy, so try again later, or with --local"):
        start_ray(None, 2)


def test_so_is_one_in_which_another_part_did_not_come_up(starting):
    starting += [RuntimeError("Failed to start GCS."), None]
    assert start_ray(None, 2)


class Short:
    """An actor that stands for a tracker; its process dies when it begins, if it is to."""

    def __init__(self, dies):
        self.dies = dies

    def begin(self):
        if self.dies:
            os._exit(1)

    def notes(self):
        return ["well"]


@pytest.mark.thorough
@pytest.mark.parametrize("deaths", [2, 3])
def test_a_tracker_that_dies_as_it_starts_is_started_again(ray_session, monkeypatch, deaths):
    started = []

    def new(_backend, spec):
        started.append(spec)
        return ray.remote(num_cpus=0, max_restarts=0)(Short).remote(len(started) <= deaths)

    monkeypatch.setattr(RayBackend, "_new_tracker", new)
    backend = object.__new__(RayBackend)
    backend._ray = ray
    if deaths < 3:
        assert backend.begin_tracking(None) == ["well"] and len(started) == 3
    else:
        with pytest.raises(InputError, match="died three times as it started; look into Ray's logs"):
            backend.begin_tracking(None)
