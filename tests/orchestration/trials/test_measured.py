"""What reports say of real measurements, from a sweep of a small model on two instances of OpenVINO's CPU plugin."""

import io
from dataclasses import replace

import numpy as np
from rich.console import Console

from orchestration.analysis.comparison import compare
from orchestration.analysis.load import load_sweep_record
from orchestration.analysis.runs import collect
from orchestration.driver.run_sweep import run_sweep
from orchestration.report.tables import measured
from orchestration.rewards.measurement_store import MeasurementStore
from orchestration.specs.layout import STORE
from tests.envs.hosts.test_openvino_host import write_model
from tests.orchestration.sweeps_for_tests import small_sweep

SWEEP = """
sweep: real
problems:
  networks: {two: {file: two.json}}
  graphs: {small: {file: small.xml}}
methods: {a: {method: single-device, device: a}, b: {method: single-device, device: b}}
budget: 1
evaluator: {kind: openvino, devices: {a: CPU, b: {device: CPU, precision: f32}}, models: {small: {file: MODEL}}}
"""
NETWORK = """{"format": "placewright/1", "network": {
  "devices": [{"name": "a", "kind": "cpu", "speed": 1e9}, {"name": "b", "kind": "cpu", "speed": 1e9}],
  "links": {"bandwidth": 1e9, "delay": 0}}}"""


def test_dispersion_compiling_and_devices_are_told(tmp_path, monkeypatch):
    from orchestration.report import finish

    monkeypatch.setattr(finish, "_write_plots", lambda *_: [])
    monkeypatch.setattr(finish, "PLACEMENTS_UP_TO", 0)
    write_model(tmp_path / "small.xml")
    (tmp_path / "two.json").write_text(NETWORK)
    sweep = small_sweep(tmp_path, SWEEP.replace("MODEL", str(tmp_path / "small.xml")))
    done = run_sweep(sweep, local=True, output=tmp_path / "out", console=Console(file=io.StringIO()))
    record = load_sweep_record(done.folder)
    table = measured(compare(record.collection))
    assert [row[1] for row in table.rows] and {row[1] for row in table.rows} == {"a", "b"}
    assert any("a=CPU,b=CPU(precision=f32)" in note and "openvino" in note for note in table.notes)
    store = MeasurementStore(done.folder / STORE)
    for run in record.collection.runs:
        assert run.compile_seconds > 0
        _, result = record.ended[run.trial]
        (found,) = result.problems
        context = store._connection.execute("SELECT context FROM measurements").fetchone()[0]
        assert found.problem_hash in context
        samples, deviation = store._connection.execute(
            "SELECT samples, deviation FROM measurements WHERE placement = ?", (np.array(found.placement, np.int16).tobytes(),)
        ).fetchone()
        assert run.deviation == deviation == np.frombuffer(samples)[-5:].std(ddof=1), "of the five runs that count"
    store.close()
    exact = [replace(r, problems=tuple(replace(p, deviation=None) for p in r.problems)) for _, r in record.ended.values()]
    assert measured(compare(collect(exact))) is None, "simulated times have no such table"
