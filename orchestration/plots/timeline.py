"""The timeline of a placement: a self-contained HTML page, and a Chrome trace for Perfetto. Only writing belongs here."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from orchestration.analysis.schedule import Schedule

TRACE_TRANSFERS_UP_TO = 20_000
"""A trace with more transfers than this leaves them out: viewers draw each as an arrow."""


def write_page(schedule: Schedule, path: Path, title: str = "", lower_bound: float | None = None, origin: str = "simulated") -> Path:
    """Write one HTML file that needs nothing else: rows of devices and links, zoom and pan, tooltips, transfers, critical path,
    utilisation.

    Args:
        origin: where the times come from, shown below the title.
        lower_bound: seconds no placement can beat, shown beside the makespan.
    """
    page = resources.files("orchestration.plots").joinpath("timeline.html").read_text(encoding="utf-8")
    # "</" would end the script element that holds the data, and U+2028/9 are line ends to some parsers.
    data = json.dumps(page_data(schedule, title, lower_bound, origin), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page.replace("/*DATA*/", data), encoding="utf-8")
    return path


def page_data(schedule: Schedule, title: str = "", lower_bound: float | None = None, origin: str = "simulated") -> dict[str, Any]:
    """What the page draws, as JSON values; times in ms. Links are further rows, and transfers further bars in them."""
    problem, graph, network = schedule.problem, schedule.problem.graph, schedule.problem.network
    types, type_index = np.unique(np.asarray(graph.op_types, dtype=object).astype(str), return_inverse=True)
    u, v = graph.edges[schedule.moved].T
    received, sent = schedule.traffic
    memory = problem.memory_used(schedule.placement[None, :])[0]
    return {
        "title": title or problem.name,
        "note": f"{origin}; {graph.n_nodes} operations on {network.n_devices} devices; transfers overlap computation; times in ms",
        "makespan": _ms(schedule.makespan),
        "facts": _facts(schedule, lower_bound),
        "devices": [
            {
                "name": network.names[d],
                "busy": _ms(schedule.busy[d]),
                "use": float(schedule.utilisation[d]),
                "ops": int(schedule.operations[d]),
                "received": float(received[d]),
                "sent": float(sent[d]),
                "memory": None if network.live_memory else float(memory[d]),
                "capacity": float(network.memory[d]) if np.isfinite(network.memory[d]) else None,
            }
            for d in range(network.n_devices)
        ],
        "names": list(graph.names),
        "types": types.tolist(),
        "type": type_index.tolist(),
        "device": schedule.placement.tolist(),
        "start": _many_ms(schedule.start),
        "finish": _many_ms(schedule.finish),
        "shapes": [" × ".join(map(str, shape)) for shape in graph.output_shapes],
        "critical": schedule.critical_path.tolist(),
        "transfers": {
            "from": u.tolist(),
            "to": v.tolist(),
            "arrive": _many_ms(schedule.arrival[schedule.moved]),
            "bytes": graph.edge_bytes[schedule.moved].tolist(),
        },
        "links": _links(schedule),
    }


def _links(schedule: Schedule) -> list[dict[str, Any]]:
    """Lanes of links, with their transfers."""
    if schedule.transfers is None:
        return []
    names, path = schedule.problem.network.names, schedule.critical_path
    followed = set(zip(path[:-1].tolist(), schedule.placement[path[1:]].tolist(), strict=True))
    made = []
    for sender, receiver, ids in schedule.lanes:
        start, finish = schedule.transfers[ids, 3], schedule.transfers[ids, 4]
        producers, busy = schedule.transfers[ids, 0].astype(int).tolist(), float((finish - start).sum())
        made.append(
            {
                "name": f"{names[sender]} → {names[receiver]}",
                "busy": _ms(busy),
                "use": busy / schedule.makespan if schedule.makespan > 0 else 0.0,
                "sender": sender,
                "receiver": receiver,
                "from": producers,
                "start": _many_ms(start),
                "finish": _many_ms(finish),
                "bytes": schedule.transfer_bytes[ids].tolist(),
                "critical": [(producer, receiver) in followed for producer in producers],
            }
        )
    return made


def _facts(schedule: Schedule, lower_bound: float | None) -> list[tuple[str, str]]:
    """The few numbers at the head of the page, as (value, what it is)."""
    path = schedule.critical_path
    waiting = schedule.makespan - float((schedule.finish[path] - schedule.start[path]).sum())
    waiting = 0.0 if waiting < 1e-9 * schedule.makespan else waiting  # what the sum's rounding leaves over
    count = len(schedule.moved) if schedule.transfers is None else len(schedule.transfers)
    facts = [(f"{schedule.makespan * 1e3:,.4g} ms", "makespan")]
    if lower_bound is not None and lower_bound > 0:
        facts.append((f"{lower_bound * 1e3:,.4g} ms", f"lower bound (makespan {schedule.makespan / lower_bound - 1:+.1%})"))
    facts += [
        (f"{schedule.utilisation.mean():.0%}", "mean utilisation of devices"),
        (f"{len(path)} operations", "on the critical path"),
        (f"{waiting * 1e3:,.4g} ms", "of it waiting for transfers"),
        (f"{count:,}", f"transfers, {schedule.traffic[0].sum() / 1e6:,.4g} MB"),
    ]
    return facts


def write_trace(schedule: Schedule, path: Path, title: str = "") -> Path:
    """Write a Chrome trace (JSON, times in µs), which opens in Perfetto and ``chrome://tracing``: one thread a device or link."""
    graph, network = schedule.problem.graph, schedule.problem.network
    critical = np.zeros(graph.n_nodes, dtype=bool)
    critical[schedule.critical_path] = True
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "tid": 0, "name": "process_name", "args": {"name": title or schedule.problem.name}},
    ]
    for d, name in enumerate(network.names):
        events.append({"ph": "M", "pid": 0, "tid": d + 1, "name": "thread_name", "args": {"name": name}})
        events.append({"ph": "M", "pid": 0, "tid": d + 1, "name": "thread_sort_index", "args": {"sort_index": d}})
    start, length = schedule.start * 1e6, (schedule.finish - schedule.start) * 1e6
    events += [
        {
            "ph": "X", "pid": 0, "tid": int(schedule.placement[i]) + 1, "name": graph.names[i], "cat": graph.op_types[i],
            "ts": float(start[i]), "dur": float(length[i]), "args": {"type": graph.op_types[i], "critical": bool(critical[i])},
        }
        for i in np.lexsort((np.arange(graph.n_nodes), schedule.start))
    ]  # fmt: skip
    if len(schedule.moved) <= TRACE_TRANSFERS_UP_TO:
        events += _flows(schedule) if schedule.transfers is None else _lanes(schedule)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, separators=(",", ":"), allow_nan=False), encoding="utf-8")
    return path


def _lanes(schedule: Schedule) -> list[dict[str, Any]]:
    """A thread for each lane of a link, with a slice for each transfer."""
    network, events = schedule.problem.network, []
    for tid, link in enumerate(_links(schedule), start=network.n_devices + 1):
        events.append({"ph": "M", "pid": 0, "tid": tid, "name": "thread_name", "args": {"name": link["name"]}})
        events.append({"ph": "M", "pid": 0, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid - 1}})
        columns = (link[key] for key in ("from", "start", "finish", "bytes", "critical"))
        for producer, start, finish, size, critical in zip(*columns, strict=True):
            events.append(
                {
                    "ph": "X", "pid": 0, "tid": tid, "name": schedule.problem.graph.names[producer], "cat": "transfer", "ts": start * 1e3,
                    "dur": (finish - start) * 1e3, "args": {"bytes": size, "critical": critical},
                }
            )  # fmt: skip
    return events


def _flows(schedule: Schedule) -> list[dict[str, Any]]:
    """A pair of flow events (an arrow) for each transfer, from inside the producer's slice to the start of the consumer's."""
    graph, events = schedule.problem.graph, []
    for k, edge in enumerate(schedule.moved):
        u, v = graph.edges[edge]
        common = {"pid": 0, "name": "transfer", "cat": "transfer", "id": k}
        args = {"bytes": float(graph.edge_bytes[edge]), "arrives_us": float(schedule.arrival[edge] * 1e6)}
        # A flow binds to the slice that encloses its time, so it leaves at the producer's start rather than on its end.
        events.append({**common, "ph": "s", "tid": int(schedule.placement[u]) + 1, "ts": float(schedule.start[u] * 1e6), "args": args})
        events.append({**common, "ph": "f", "bp": "e", "tid": int(schedule.placement[v]) + 1, "ts": float(schedule.start[v] * 1e6)})
    return events


def _ms(seconds: float) -> float:
    return float(f"{seconds * 1e3:.9g}")


def _many_ms(seconds: np.ndarray) -> list[float]:
    return [_ms(s) for s in seconds]
