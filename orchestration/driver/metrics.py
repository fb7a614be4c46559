"""How a running sweep gets on, for Prometheus and for whoever restarts what hangs: a small server in the driver's process. It counts what
the display counts, and what `placewright hosts` shows."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from envs.problem.errors import InputError
from orchestration.commands.status import HOSTS
from orchestration.driver.progress import Display
from orchestration.specs.files import read_object
from orchestration.specs.layout import LEDGER, STATE

SILENT_SECONDS = 120.0
"""A driver that hands out trials looks at them several times a second; one that has not for so long hangs."""


class SweepCollector:
    """The numbers of one sweep, read anew each time they are asked for.

    Args:
        sweep: its name, a label of every number.
        folder: where its ledger and the notes of its services lie.
        display: what counts its trials.
    """

    def __init__(self, sweep: str, folder: Path, display: Display) -> None:
        self._sweep, self._folder, self._display = sweep, folder, display

    def collect(self) -> Iterable[Metric]:
        """For `prometheus_client`."""
        d = self._display
        trials = GaugeMetricFamily("placewright_trials", "Trials by state.", labels=["sweep", "state"])
        ended = d.skipped + d.done + d.failed
        states = {
            "finished": d.skipped + d.done - d.pruned, "pruned": d.pruned, "failed": d.failed, "running": d.running,
            "waiting": max(0, d.total - ended - d.running),
        }  # fmt: skip
        for state, count in states.items():
            trials.add_metric([self._sweep, state], count)
        yield trials
        done = CounterMetricFamily("placewright_evaluations", "Placements scored by trials that ended in this run.", labels=["sweep"])
        done.add_metric([self._sweep], d.evaluations)
        yield done
        lag = GaugeMetricFamily("placewright_tracking_lag_bytes", "Of the ledger, what MLflow has not been sent.", labels=["sweep"])
        lag.add_metric([self._sweep], self._lag())
        yield lag
        yield from self._services()

    def _lag(self) -> int:
        """Bytes of the ledger behind what the tracker says it has sent."""
        path = self._folder / LEDGER
        size = path.stat().st_size if path.exists() else 0
        return max(0, size - int((read_object(self._folder / STATE) or {}).get("offset", 0)))

    def _services(self) -> Iterable[Metric]:
        told = read_object(self._folder / HOSTS) or {}
        labels = ["sweep", "key"]
        queued = GaugeMetricFamily("placewright_requests_queued", "Requests that wait for a simulator or a host.", labels=labels)
        used = GaugeMetricFamily("placewright_host_utilisation", "Share of its time in which it measured.", labels=[*labels, "host"])
        lost = GaugeMetricFamily("placewright_host_quarantined", "1 if it faulted too often to be used.", labels=[*labels, "host"])
        rows = CounterMetricFamily("placewright_measurements", "Placements measured or simulated.", labels=[*labels, "host"])
        faults = CounterMetricFamily("placewright_host_faults", "Faults of hosts and simulators.", labels=[*labels, "host"])
        for key, pool in told.get("keys", {}).items():
            queued.add_metric([self._sweep, key], pool["queued"])
            for host in pool["hosts"]:
                names = [self._sweep, key, host["name"]]
                used.add_metric(names, host["utilisation"])
                lost.add_metric(names, float(host["quarantined"]))
                rows.add_metric(names, host["measurements"])
                faults.add_metric(names, host["faults"])
        cached = CounterMetricFamily("placewright_cache_rows", "Placements looked up in the cache.", labels=["sweep", "result"])
        for result, count in told.get("cache", {}).items():
            cached.add_metric([self._sweep, result], count)
        return queued, used, lost, rows, faults, cached


def listening(address: str) -> tuple[str, int]:
    """Of ``PORT`` or ``HOST:PORT``, where the host is this machine alone if none is given.

    Raises:
        InputError: if that is no port.
    """
    host, _, port = address.rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(f"--metrics {address!r} is no port; write 9464, or 0.0.0.0:9464 for other machines to see it")
    return host or "127.0.0.1", int(port)


@contextlib.contextmanager
def serving(address: str, sweep: str, folder: Path, display: Display) -> Iterator[None]:
    """While the block runs, answer ``/metrics``, ``/healthz`` (503 if the driver hangs) and ``/readyz`` (503 before trials are handed out).

    Raises:
        InputError: if the port is taken.
    """
    registry = CollectorRegistry()
    registry.register(SweepCollector(sweep, folder, display))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hangs = display.shown and time.monotonic() - display.ticked > SILENT_SECONDS
            answers = {
                "/metrics": (200, generate_latest(registry), CONTENT_TYPE_LATEST),
                "/healthz": (503 if hangs else 200, b"hangs\n" if hangs else b"well\n", "text/plain"),
                "/readyz": (200 if display.shown and not hangs else 503, b"ready\n" if display.shown else b"not yet\n", "text/plain"),
            }
            status, body, kind = answers.get(self.path.partition("?")[0], (404, b"metrics, healthz, readyz\n", "text/plain"))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: it is asked every few seconds."""

    try:
        server = ThreadingHTTPServer(listening(address), Handler)
    except OSError as error:
        raise InputError(f"--metrics {address} cannot be served ({error}); give another port") from None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
