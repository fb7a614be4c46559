"""Standard Task Graphs: Kasahara Laboratory's text format of task graphs for multiprocessors. Placing is not known here.

The first number is the number of tasks, not counting a first and a last one of no time that most files add. Then come for each task its
number (from 0, in order), its processing time and its number of predecessors, followed by those; in files with communication each
predecessor is followed by the cost of its transfer. ``#`` begins a comment. Times are work and costs are bytes, in the file's units.
"""

from __future__ import annotations

import re

import numpy as np

from envs.problem.cost_model import LinearCosts
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.sources.imported import Imported

Row = tuple[float, list[tuple[int, float]]]
"""Processing time, and each predecessor with its transfer's cost."""


def read_stg(text: str, name: str) -> Imported:
    """The graph; tasks are named by their numbers.

    Raises:
        InputError: naming the task at fault.
    """
    words = re.sub(r"#.*", "", text).split()
    if not words:
        raise InputError("the file is empty; a task graph begins with its number of tasks")
    numbers = [_number(word) for word in words]
    count = _whole(numbers[0], "the number of tasks")
    plain = _rows(numbers[1:], count, communication=False)
    rows = plain if isinstance(plain, list) else _rows(numbers[1:], count, communication=True)
    if not isinstance(rows, list):
        raise InputError(str(plain))
    edges = [(u, v) for v, (_, parents) in enumerate(rows) for u, _ in parents]
    graph = ComputationGraph(
        names=tuple(str(i) for i in range(len(rows))),
        op_types=("task",) * len(rows),
        flops=np.array([time for time, _ in rows]),
        output_bytes=_largest(rows),
        edges=np.array(edges, dtype=np.int32).reshape(-1, 2),
        edge_bytes=np.array([cost for _, parents in rows for _, cost in parents], dtype=np.float64),
        name=name,
        provenance="published generator",
    )
    return Imported("STG", graph, {}, None, LinearCosts())


def _largest(rows: list[Row]) -> np.ndarray:
    """Of each task the largest of its transfers, float64[V]."""
    size = np.zeros(len(rows))
    for _, parents in rows:
        for u, cost in parents:
            size[u] = max(size[u], cost)
    return size


def _rows(numbers: list[float], count: int, communication: bool) -> list[Row] | str:
    """All tasks, or what is wrong if the file is read with or without costs of communication."""
    rows: list[Row] = []
    at, width = 0, 2 if communication else 1
    while at < len(numbers):
        where = f"task {len(rows)}"
        if len(rows) == count + 2:
            return f"the file goes on after task {len(rows) - 1}, though it says that it has {count} tasks"
        if numbers[at] != len(rows):
            return f"{where} has the number {numbers[at]:g}; tasks are numbered from 0, in order"
        if at + 3 > len(numbers) or at + 3 + width * numbers[at + 2] > len(numbers):
            return f"the file ends within {where}; it is truncated"
        time, parents = numbers[at + 1], numbers[at + 2]
        if time < 0 or parents < 0 or parents != int(parents):
            return f"{where} has processing time {time:g} and {parents:g} predecessors; neither may be negative"
        given = numbers[at + 3 : at + 3 + width * int(parents)]
        before = [(int(u), cost) for u, cost in zip(given[::width], given[1::width] if communication else [0.0] * len(given), strict=True)]
        wrong = next((u for u in given[::width] if not 0 <= u < count + 2 or u != int(u)), None)
        if wrong is not None:
            return f"{where} has predecessor {wrong:g}, which is no task"
        if any(cost < 0 for _, cost in before):
            return f"{where} has a transfer of negative cost"
        rows.append((time, before))
        at += 3 + len(given)
    if len(rows) not in (count, count + 2):
        return f"the file says that it has {count} tasks, but gives {len(rows)}; it is truncated"
    late = next((u for _, parents in rows for u, _ in parents if u >= len(rows)), None)
    return rows if late is None else f"predecessor {late} is no task"


def _number(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise InputError(f"{word[:40]!r} is not a number; a task graph holds numbers only, and comments after #")
    return value


def _whole(value: float, where: str) -> int:
    if value < 1 or value != int(value):
        raise InputError(f"{where} is {value:g}; it must be a whole number from 1")
    return int(value)
