"""Adversarial instances: they stay within their ranges, and what is found for a pair is worse than where the search began."""

import json

import numpy as np
import pytest

from envs.sources.files import load_problem
from orchestration.commands.benchmark.adversary import SPAN, main, random_instance, ratio_of, search, varied


def test_varied_instances_are_problems_within_their_ranges():
    rng = np.random.default_rng(0)
    instance = random_instance(8, 3, rng)
    for _ in range(200):
        instance = varied(instance, rng)
        sizes = instance.bytes[instance.bytes > 0]
        for numbers in (instance.work, instance.speed, instance.rate, sizes):
            assert (numbers >= SPAN[0]).all() and (numbers <= SPAN[1]).all()
        assert (instance.rate == instance.rate.T).all() and not np.tril(instance.bytes).any()
    assert instance.problem().n_nodes == 8


@pytest.mark.thorough
def test_what_is_found_is_worse_than_where_the_search_began_and_is_written(tmp_path, capsys):
    numbers = {"tasks": 8, "devices": 3, "evaluations": 5, "steps": 40, "seeds": 1, "seed": 0}
    found = search("cpop", "heft", **numbers)
    first = search("cpop", "heft", **{**numbers, "steps": 0})
    assert found.ratio > first.ratio and found.ratio > 1.0
    assert ratio_of("cpop", "heft", found.instance.problem(), 5, range(1)) == pytest.approx(np.log(found.ratio))
    path = tmp_path / "pairs.jsonl"
    assert main(["heft", "cpop", "--steps", "2", "--tasks", "5", "--evaluations", "1", "--output", str(path)]) == 0
    assert "How much worse at worst" in capsys.readouterr().out
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["first"], line["second"]) for line in lines] == [("heft", "cpop"), ("cpop", "heft")]
    (tmp_path / "p.json").write_text(json.dumps(lines[0]["problem"]))
    assert load_problem(tmp_path / "p.json").n_nodes == 5
