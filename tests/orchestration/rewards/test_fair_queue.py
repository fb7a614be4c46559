"""Who is served next: priorities, turns, and work that is put back."""

from collections import Counter

import pytest

from envs.problem.errors import InputError
from orchestration.rewards.fair_queue import AGING_SECONDS, FairQueue, Share, made_share


def queue_of(*pushes):
    queue: FairQueue[str] = FairQueue()
    for trial, priority, item in pushes:
        queue.push(trial, priority, item)
    return queue


def test_an_empty_queue_has_nothing():
    queue = queue_of()
    assert (len(queue), queue.peek(), queue.pop(), queue.drain()) == (0, None, None, [])


def test_trials_take_turns_and_each_keeps_its_order():
    queue = queue_of(("a", 0, "a1"), ("a", 0, "a2"), ("a", 0, "a3"), ("b", 0, "b1"), ("c", 0, "c1"), ("b", 0, "b2"))
    assert len(queue) == 6
    assert queue.drain() == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert len(queue) == 0


def test_a_higher_priority_goes_first_also_if_it_comes_later():
    queue = queue_of(("a", 0, "low"), ("a", 2, "high"), ("b", 1, "middle"), ("b", -1, "last"))
    assert [queue.pop(), queue.pop()] == ["high", "middle"]
    queue.push("c", 5, "late")
    assert queue.drain() == ["late", "low", "last"]


def test_a_look_takes_nothing():
    queue = queue_of(("a", 0, "a1"), ("b", 1, "b1"))
    assert [queue.peek(), queue.peek(), len(queue)] == ["b1", "b1", 2]
    assert [queue.pop(), queue.peek(), queue.pop(), queue.peek()] == ["b1", "a1", "a1", None]


def test_what_is_put_back_comes_next_before_the_other_items_of_its_trial():
    queue = queue_of(("a", 0, "a1"), ("a", 0, "a2"), ("b", 0, "b1"))
    taken = queue.pop()
    queue.push("a", 0, taken, front=True)
    assert len(queue) == 3 and queue.drain() == ["a1", "b1", "a2"]
    queue = queue_of(("b", 0, "b1"))
    queue.push("a", 0, "again", front=True)
    assert queue.drain() == ["again", "b1"], "also where the trial has nothing else"
    queue = queue_of(("b", 0, "b1"))
    queue.push("a", 0, "new")
    assert queue.drain() == ["b1", "new"]


def test_a_trial_that_had_nothing_left_queues_behind_the_others():
    queue = queue_of(("a", 0, "a1"), ("b", 0, "b1"), ("b", 0, "b2"))
    assert queue.pop() == "a1"
    queue.push("a", 0, "a2")
    assert queue.drain() == ["b1", "a2", "b2"]


def shared_queue(items, *shares):
    queue: FairQueue[str] = FairQueue()
    for share in shares:
        for i in range(items):
            queue.push(f"{share.sweep} {i % 3}", 0, share.sweep, share)
    return queue


def test_sweeps_share_by_weight_while_they_wait():
    heavy, light = Share("u", "heavy", weight=9.0), Share("u", "light")
    queue = shared_queue(300, light, heavy)
    first = Counter(queue.pop() for _ in range(200))
    assert first == {"heavy": 180, "light": 20}
    assert Counter(queue.drain()) == {"heavy": 120, "light": 280}, "who is alone gets all"


def test_users_share_first_and_their_sweeps_share_that():
    shares = [Share("a", f"a{i}") for i in range(4)] + [Share("b", "b0", user_weight=3.0)]
    queue = shared_queue(100, *shares)
    assert Counter(queue.pop() for _ in range(80)) == {"b0": 60, "a0": 5, "a1": 5, "a2": 5, "a3": 5}


def test_who_asks_for_one_at_a_time_gets_no_more_than_its_share():
    """Its turn is remembered while it does not wait; but waiting for nothing saves up nothing."""
    queue = shared_queue(1000, Share("u", "many", weight=9.0))
    for _ in range(50):
        queue.pop()
    one = Share("u", "one")
    seen: Counter[str] = Counter()
    queue.push("t", 0, "one", one)
    for _ in range(100):
        item = queue.pop()
        seen[item] += 1
        if item == "one":
            queue.push("t", 0, "one", one)
    assert 9 <= seen["one"] <= 11


def test_what_is_put_back_costs_no_turn():
    queue = shared_queue(100, Share("u", "heavy", weight=9.0), Share("u", "light"))
    seen: Counter[str] = Counter()
    for i in range(100):
        item = queue.pop()
        if i % 2:
            queue.push(f"{item} 0", 0, item, Share("u", item, weight=9.0 if item == "heavy" else 1.0), front=True)
        else:
            seen[item] += 1
    assert seen["light"] <= 6


def test_a_low_priority_that_waits_is_served_now_and_then():
    now = [0.0]
    queue: FairQueue[str] = FairQueue(clock=lambda: now[0])
    for i in range(2000):
        queue.push("t", 2, "high")
        if i < 20:
            queue.push("t", 0, "low")
    served = []
    for _ in range(100):
        now[0] += AGING_SECONDS / 15
        served.append(queue.pop())
    assert set(served[:29]) == {"high"}
    assert served.count("low") == 3, "one for every two times 30 s"


def test_time_that_passes_between_a_look_and_a_take_changes_nothing():
    now = [0.0]
    queue: FairQueue[str] = FairQueue(clock=lambda: now[0])
    queue.push("t", 0, "low")
    now[0] = 0.9 * AGING_SECONDS
    queue.push("t", 1, "high")
    assert queue.peek() == "high"
    now[0] = 1000.0
    assert queue.pop() == "high"


def test_what_waits_for_a_sweep_that_has_gone_is_dropped():
    gone, other = Share("u", "gone"), Share("v", "other")
    queue = shared_queue(4, gone, other)
    queue.push("t", 3, "gone", gone)
    assert queue.drop("gone") == ["gone"] * 5 and len(queue) == 4 and queue.drop("gone") == []
    assert queue.drain() == ["other"] * 4


def test_shares_are_given_in_words():
    assert made_share("lab-a", 2.0) == Share("lab-a", "", 1.0, 2.0) and made_share("lab-a:3", 1.0).user_weight == 3.0
    for user, weight, what in (("a:b", 1.0, "no number behind the colon"), ("a:0", 1.0, "user's weight is 0"), ("a", -1.0, "weight is -1")):
        with pytest.raises(InputError, match=what):
            made_share(user, weight)
