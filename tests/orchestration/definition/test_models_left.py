"""Which models a check of a sweep captures, and which it leaves to the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestration.definition import sweep as sweep_module
from orchestration.definition.sweep import load_sweep
from orchestration.specs import sources
from orchestration.specs.sources import build_problem
from orchestration.specs.trial import FrozenDict


@pytest.mark.parametrize(("graphs", "left"), [("[bert-base, fine]", ["bert-base"]), ("[resnet-50, bert-base]", ["bert-base"])])
def test_models_are_left_to_the_run_but_for_one_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graphs: str, left: list) -> None:
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(sources, "_ON_DISK", set())  # what other tests have seen captured lies elsewhere
    asked = []
    monkeypatch.setattr(sweep_module, "build_problem", lambda spec: asked.append(spec.graph_label) or build_problem(twin(spec)))

    def twin(spec: Any) -> Any:  # quickly made
        return replace(spec, graph=FrozenDict({"synthetic": {"tasks": 5}, "seed": 0}), costs=FrozenDict({"kind": "linear"}))

    names = graphs.strip("[]").split(", ")
    written = "\n".join(f"    {n}: {'{synthetic: {tasks: 5}}' if n == 'fine' else ''}" for n in names)
    (tmp_path / "s.yaml").write_text(
        f"sweep: s\nproblems:\n  graphs:\n{written}\n  networks: {{desk: cpu-gpu-4}}\nmethods: [random]\nbudget: 5\n"
    )
    sweep = load_sweep(tmp_path / "s.yaml")
    sweep.check_problems(leave=True)
    assert set(asked) == set(names) - set(left)
    asked.clear()
    sweep.check_problems()
    assert set(asked) == set(names), "unless the run is asked to, all are captured now"
