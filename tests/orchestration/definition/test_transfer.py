"""The winner of a search travels with the policy that was trained by it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestration.analysis.load import load_sweep_record
from orchestration.cli.main import main
from orchestration.definition.sweep import load_sweep

EXAMPLE = Path(__file__).parents[3] / "sweeps" / "examples" / "tune-pretrain-transfer.yaml"
WINNER = {"hidden": 8, "learning.learning_rate": 0.05}


def test_stages_take_over_what_they_start_from_was_trained_with() -> None:
    sweep = load_sweep(EXAMPLE)
    (search,) = sweep.searches()
    trials = sweep.expand({search.content_hash: WINNER})
    known = {t.content_hash: t for t in trials}
    children = [t for t in trials if t.stage in ("finetune", "zero-shot")]
    assert len(children) == 2 * 3 * 2
    for child in children:
        assert child.config == known[str(child.parent)].config
        assert child.config["hidden"] == 8 and child.config["learning"]["learning_rate"] == 0.05


def test_what_a_stage_says_itself_stands(tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("finetune: {from", "finetune: {config: {learning.learning_rate: 0.002}, from")
    (tmp_path / "s.yaml").write_text(text)
    sweep = load_sweep(tmp_path / "s.yaml")
    (search,) = sweep.searches()
    configs = {t.stage: t.config for t in sweep.expand({search.content_hash: WINNER})}
    assert configs["finetune"]["learning"]["learning_rate"] == 0.002 and configs["finetune"]["hidden"] == 8
    assert configs["zero-shot"]["learning"]["learning_rate"] == 0.05


@pytest.mark.thorough
def test_it_runs_from_the_search_to_the_unseen_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = EXAMPLE.read_text().replace("hidden: [8, 32] ", "hidden: [8, 24] ").replace("seeds: [0, 1]", "seeds: [0]")
    text = re.sub(r"evaluations: (60|240|40)", "evaluations: 30", text).replace("configurations: 4", "configurations: 2")
    (tmp_path / "s.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "s.yaml", "--local", "--output", str(tmp_path / "runs")]) == 0
    record = load_sweep_record(tmp_path / "runs" / "tune-pretrain-transfer")
    stages = [run.stage for run in record.collection.runs]
    assert stages.count("finetune") == stages.count("zero-shot") == 3
