"""Who is served next: priorities, turns, and work that is put back."""

from orchestration.rewards.fair_queue import FairQueue


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
