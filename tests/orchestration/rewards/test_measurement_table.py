"""The table of what was measured: its slots, what it gives back, and when it forgets."""

import numpy as np
import pytest

from envs.problem.measurement import Outcome, Rows
from orchestration.rewards.measurement_table import MeasurementTable


def placements(*values):
    """Of 500 operations."""
    return np.array([[v, *range(499)] for v in values], dtype=np.int16)


def measured(*values, host="h", **more):
    seconds = np.array(values, dtype=float)
    return Rows(np.zeros(len(values), np.int8), seconds, seconds * 2, host, **more)


def put(table, context, *values, **more):
    slots, new = table.slots(context, placements(*values))
    table.fill(slots[new], measured(*np.array(values)[new], **more))
    return slots


def test_equal_content_has_one_slot_which_is_new_once():
    table = MeasurementTable()
    slots, new = table.slots("c", placements(5, 6, 5))
    assert slots.tolist() == [0, 1, 0] and new.tolist() == [True, True, False]
    assert (table.hits, table.misses) == (1, 2)
    again, new = table.slots("c", placements(6, 7))
    assert again.tolist() == [1, 2] and new.tolist() == [False, True]
    other, new = table.slots("d", placements(6))
    assert other.tolist() == [3] and new.all(), "another problem or protocol"
    assert (table.hits, table.misses) == (2, 4)


def test_a_slot_is_done_when_it_is_filled():
    table = MeasurementTable()
    slots, _ = table.slots("c", placements(5, 6, 7))
    assert table.done(slots).tolist() == [False] * 3
    table.fill(slots[1:2], measured(6))
    assert table.done(slots).tolist() == [False, True, False]
    rows = table.read(slots[1:2])
    assert (rows.outcome.tolist(), rows.seconds.tolist(), rows.objective.tolist(), rows.host) == ([Outcome.OK], [6.0], [12.0], "h")


def test_what_was_retracted_is_asked_for_again():
    table = MeasurementTable()
    put(table, "c", 5, 6)
    table.retract("c", placements(6))
    table.retract("never asked for", placements(6))
    slots, new = table.slots("c", placements(5, 6))
    assert slots.tolist() == [0, 2] and new.tolist() == [False, True]


def test_rows_come_from_their_slots_in_the_order_asked_for():
    table = MeasurementTable()
    slots = put(table, "c", 5, 6, 7)
    assert table.read(slots[[2, 0, 2]]).seconds.tolist() == [7, 5, 7]


def test_each_row_knows_who_measured_it():
    table = MeasurementTable()
    a, b, c = put(table, "c", 5, host="b"), put(table, "c", 6, host="a"), put(table, "c", 7, host="b")
    assert table.read(a).host == table.read(np.concatenate([a, c])).host == "b"
    assert table.read(b).host == "a" and table.read(np.concatenate([a, b, c])).host == "a+b"


def test_what_only_some_rows_have_is_missing_in_the_others():
    table = MeasurementTable()
    samples = (np.array([1.0, 2.0]), np.array([3.0]))
    full = put(table, "c", 5, 6, samples=samples, notes=("", "late"), deviation=np.array([0.5, 0.25]))
    plain = put(table, "c", 7)
    both = table.read(np.concatenate([plain, full]))
    assert np.isnan(both.deviation[0]) and both.deviation[1:].tolist() == [0.5, 0.25]
    assert both.notes == ("", "", "late") and [s.tolist() for s in both.samples] == [[], [1, 2], [3]]
    assert both.compile_seconds is None, "no row has it"
    alone = table.read(plain)
    assert alone.deviation is alone.notes is alone.samples is None
    assert table.read(full).notes == ("", "late")


def test_a_slot_that_is_filled_again_forgets_what_it_had():
    table = MeasurementTable()
    slots = put(table, "c", 5, deviation=np.array([0.5]))
    table.fill(slots, measured(8))
    rows = table.read(slots)
    assert rows.seconds.tolist() == [8.0] and rows.deviation is None


@pytest.mark.parametrize("step", [1, 700, 5000])
def test_it_grows_without_losing_anything(step):
    table, values = MeasurementTable(), np.arange(5000)
    first = put(table, "c", 20_000, deviation=np.array([0.5]))
    slots = np.concatenate([put(table, "c", *values[i : i + step]) for i in range(0, len(values), step)])
    assert table.read(slots).seconds.tolist() == values.tolist() and table.done(slots).all()
    assert slots.tolist() == list(range(1, 5001))
    rows = table.read(first)
    assert rows.deviation.tolist() == [0.5] and rows.host == "h"
    fresh, _ = table.slots("c", placements(30_000))
    assert not table.done(fresh)


def test_it_forgets_when_it_is_full_and_nobody_reads():
    one = 500 * 2 + 200  # bytes of an entry: the placement and the rest
    assert MeasurementTable().limit_bytes == 256 * 2**20
    table = MeasurementTable(limit_bytes=2 * one)
    for limit_is_passed, value in ((False, 5), (False, 6), (False, 7), (True, 8)):
        with table.reading():
            slots = put(table, "c", value)
            assert table.read(slots).seconds.tolist() == [value]
            assert (slots[0] == 0) == (limit_is_passed or value == 5), "it is looked at before new rows come"
    with table.reading():
        for value in (9, 10, 11):
            put(table, "c", value)
        with table.reading():
            kept, new = table.slots("c", placements(8, 9))
            assert not new.any() and table.read(kept).seconds.tolist() == [8, 9], "somebody still reads"
    with table.reading():
        assert table.slots("c", placements(9))[1].all()


def test_a_reader_that_fails_reads_no_more():
    table = MeasurementTable(limit_bytes=1)
    with pytest.raises(ValueError), table.reading():
        put(table, "c", 5)
        raise ValueError
    with table.reading():
        assert table.slots("c", placements(5))[1].all()
