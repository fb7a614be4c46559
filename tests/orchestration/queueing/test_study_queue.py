"""The rules by which studies of a cluster take turns."""

import datetime

import pytest

from envs.problem.errors import InputError
from orchestration.queueing.listing import listing_text, moment, period
from orchestration.queueing.study_queue import SILENT_SECONDS, StudyQueue, Wish


class Cluster:
    """A queue and the drivers of its studies, by a clock that the test sets."""

    def __init__(self, *wishes):
        self.now = 1000.0
        self.queue = StudyQueue(clock=lambda: self.now)
        self.drivers = []
        for wish in wishes:
            self.enter(wish)

    def enter(self, wish):
        self.queue.enter(wish, f"token {wish.name}")
        self.drivers.append(wish.name)

    def at(self, now):
        """It is later, and no driver has died meanwhile."""
        self.now = now
        for study in self.queue.studies.values():
            study.heard = now

    def polls(self):
        """What every driver is told now."""
        return {name: self.queue.poll(name, f"token {name}") for name in self.drivers}

    def running(self):
        return [name for name, told in self.polls().items() if told == "run"]

    def ends(self, name, state="finished"):
        self.queue.left(name, f"token {name}", state)

    def order(self):
        """The order in which all run, one at a time."""
        found = []
        while running := self.running():
            assert len(running) == 1
            found += running
            self.ends(running[0])
        return found

    def state(self, name):
        return next(s["state"] for s in self.queue.listing() if s["name"] == name)


def test_studies_run_one_after_another_by_priority_and_then_in_order():
    cluster = Cluster(Wish("a"), Wish("b"), Wish("c", priority=5), Wish("d"), Wish("e", priority=5))
    assert cluster.order() == ["c", "e", "a", "b", "d"]


def test_a_study_waits_for_those_that_it_names_and_they_for_nobody():
    cluster = Cluster(Wish("a"), Wish("b"), Wish("c", priority=9, after=("a", "b")), Wish("d", priority=20, after=("c",)))
    assert cluster.order() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("how", ["failed", "cancelled", "lost"])
def test_what_waits_for_a_study_that_did_not_finish_is_cancelled_and_says_why(how):
    cluster = Cluster(Wish("a"), Wish("b", after=("a",)), Wish("c", after=("b",)), Wish("d"))
    assert cluster.running() == ["a"]
    if how == "lost":
        cluster.now += SILENT_SECONDS + 1
        for name in ("b", "c", "d"):
            cluster.queue.studies[name].heard = cluster.now
    else:
        cluster.ends("a", how)
    cluster.drivers.remove("a")
    assert cluster.polls() == {"b": "cancel", "c": "cancel", "d": "run"}
    notes = {s["name"]: s["note"] for s in cluster.queue.listing()}
    assert notes["b"] == f"it waited for a, which was {how}" and notes["c"] == "it waited for b, which was cancelled"


def test_a_study_begins_at_its_time_and_others_go_on_before():
    cluster = Cluster(Wish("late", priority=9, at=2000.0), Wish("a"))
    assert cluster.running() == ["a"]
    cluster.at(2000.0)
    assert cluster.running() == ["a"], "nobody is interrupted"
    cluster.ends("a")
    assert cluster.running() == ["late"]


def test_a_recurring_study_comes_again_at_its_time_and_keeps_to_the_clock():
    cluster = Cluster(Wish("nightly", at=2000.0, every="day"), Wish("after", after=("nightly",)))
    cluster.at(2000.0)
    assert cluster.running() == ["nightly"]
    cluster.now += 50
    cluster.ends("nightly")
    assert cluster.running() == ["after"], "what waits for it needs one run of it"
    cluster.ends("after")
    cluster.at(2000.0 + 86399)
    assert cluster.polls()["nightly"] == "wait"
    cluster.now += 1
    assert cluster.polls()["nightly"] == "run"
    cluster.at(cluster.now + 3 * 86400 - 10)  # it ran for days
    cluster.ends("nightly", "failed")
    assert cluster.queue.studies["nightly"].at == 2000.0 + 4 * 86400 and cluster.state("nightly") == "waiting"
    cluster.queue.cancel("nightly")
    assert cluster.polls()["nightly"] == "cancel"


def test_more_may_run_at_a_time_but_only_so_many_of_one_user():
    cluster = Cluster(*(Wish(f"a{i}", "ann") for i in range(3)), Wish("b", "bob"))
    cluster.queue.allow(3, 1)
    assert cluster.running() == ["a0", "b"]
    cluster.queue.allow(3)
    assert cluster.running() == ["a0", "a1", "b"]
    with pytest.raises(InputError, match="at least one study"):
        cluster.queue.allow(0)


def test_studies_can_be_moved_paused_and_cancelled():
    cluster = Cluster(Wish("a"), Wish("b", priority=3), Wish("c"), Wish("d"), Wish("e"))
    cluster.queue.move("c", "first")
    cluster.queue.move("b", "last")
    cluster.queue.move("d", "7")
    cluster.queue.pause("a")
    cluster.queue.cancel("e")
    assert cluster.order() == ["d", "c", "b"]
    cluster.queue.resume("a")
    assert cluster.order() == ["a"] and cluster.state("e") == "cancelled"
    for call, what in (
        (lambda: cluster.queue.pause("a"), "no study 'a' waits or runs; it is finished"),
        (lambda: cluster.queue.cancel("nobody"), "no study 'nobody' waits or runs"),
    ):
        with pytest.raises(InputError, match=what):
            call()
    cluster.enter(Wish("f"))
    with pytest.raises(InputError, match="first, last, or"):
        cluster.queue.move("f", "up")


def test_a_running_study_is_told_that_it_was_cancelled():
    cluster = Cluster(Wish("a"), Wish("b"))
    assert cluster.running() == ["a"]
    with pytest.raises(InputError, match="runs already"):
        cluster.queue.pause("a")
    cluster.queue.cancel("a")
    assert cluster.polls() == {"a": "cancel", "b": "run"}
    cluster.ends("a", "cancelled")
    assert cluster.state("a") == "cancelled"


def test_a_driver_that_says_nothing_holds_up_nobody():
    cluster = Cluster(Wish("dead"), Wish("b"))
    assert cluster.running() == ["dead"]
    cluster.drivers.remove("dead")
    for _ in range(3):
        cluster.now += SILENT_SECONDS / 2
        found = cluster.polls()
    assert found == {"b": "run"} and cluster.state("dead") == "lost"


def test_names_are_unique_among_those_that_wait_and_dependencies_known():
    cluster = Cluster(Wish("a"), Wish("b", after=("a",)))
    with pytest.raises(InputError, match="'a' is in the queue already"):
        cluster.queue.enter(Wish("a"), "another driver")
    with pytest.raises(InputError, match="no study 'aa' is in the queue; did you mean 'a'"):
        cluster.enter(Wish("c", after=("aa",)))
    with pytest.raises(InputError, match="no study 'c' is in the queue"):
        cluster.enter(Wish("c", after=("c",)))
    assert cluster.order() == ["a", "b"]
    cluster.enter(Wish("b", after=("a",)))
    with pytest.raises(InputError, match="'a' would wait for itself, since 'b' waits for it"):
        cluster.enter(Wish("a", after=("b",)))


def test_a_queue_that_forgot_everything_is_filled_again_by_those_that_wait():
    cluster = Cluster()
    assert cluster.queue.poll("b", "token b") == "unknown"
    cluster.queue.enter(Wish("b", after=("a",)), "token b", again=True)
    assert cluster.queue.poll("b", "token b") == "run", "what it waited for has ended, or it would be here"
    assert cluster.queue.poll("b", "another") == "unknown"


def test_the_list_says_what_everything_waits_for():
    cluster = Cluster(Wish("a", "ann"), Wish("b", priority=2, after=("a",)), Wish("c", at=4e9, every="week"))
    cluster.running()
    text = listing_text(cluster.queue.listing()).splitlines()
    assert text[0].startswith("a  running   for ") and text[0].endswith("of ann")
    assert text[1] == "b  waiting   after a, priority 2" and text[2].startswith("c  waiting   at ") and text[2].endswith("every week")
    assert "no study is in the queue" in listing_text([])


def test_times_in_words():
    noon = datetime.datetime(2026, 11, 22, 12, 0).timestamp()
    assert moment("22:00", noon) == noon + 10 * 3600 and moment("11:59", noon) == noon + 86400 - 60
    assert moment("2026-11-23T12:00") == noon + 86400 and moment("@17.5") == 17.5
    for wrong in ("22", "25:00", "tonight", "2026-13-01T10:00"):
        with pytest.raises(InputError, match="is no time; write 22:00"):
            moment(wrong)
    assert period("week") == "week" and period(None) == ""
    with pytest.raises(InputError, match="did you mean 'week'"):
        period("weeks")
