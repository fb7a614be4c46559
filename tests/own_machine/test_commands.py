"""The commands that measure this machine run, on the smallest of their models."""

import json
import subprocess
import sys

import pytest

from orchestration.commands.machine.accuracy import accuracy, summary
from orchestration.commands.machine.search import Settings
from orchestration.commands.machine.targets import make_target
from tests.envs.hosts.test_openvino_host import write_model
from tests.orchestration.commands.machine.test_torch import ON, ROOT


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_models_are_placed_one_by_one(tmp_path):
    words = ["experts", "--rounds", "2", "--budget", "20", "--corrections", "0", "--on", ON, "--output", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-m", "tests.own_machine", *words], check=True, cwd=ROOT, capture_output=True, text=True)
    about = json.loads((tmp_path / "out" / "experts.json").read_text())
    assert about["gain"]["low"] <= about["gain"]["ratio"] <= about["gain"]["high"] and about["commit"]
    assert "| experts | " in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("runtime", ["torch", "openvino"])
def test_simulations_are_held_against_runs_near_the_best(runtime, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path / "cache"))
    write_model(tmp_path / "small.xml")
    target = make_target("experts", ON) if runtime == "torch" else make_target("small.xml", "openvino", instances=2)
    try:
        found = accuracy(target, 4, 2, Settings(budget=30))
    finally:
        target.close()
    assert [f.model for f in found][:3] == ["operations alone", "and cuts", "and overlap"] and len(found) == 5
    assert all(f.error >= 0 and f.ratio > 0 for f in found)
    assert found[1].ratio >= found[0].ratio, "cuts cost something"
    assert "and residuals" in summary(found, "title")
