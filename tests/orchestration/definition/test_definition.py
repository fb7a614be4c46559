"""What sweeps mean: axes, groups, stages, hold-out, ablations, searches, identity."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from envs.problem.errors import InputError
from orchestration.definition.issues import SweepErrors
from orchestration.definition.sweep import Sweep, load_sweep
from orchestration.specs.sources import build_problem
from orchestration.specs.trial import Budget, Trial

pytestmark = pytest.mark.usefixtures("toy_methods")

PROBLEMS = """
problems:
  graphs:
    chain: {synthetic: {tasks: 6, shape: 0.2}}
    layered: {synthetic: {tasks: 12}, seeds: 0..2}
  networks: {two: {synthetic: {devices: 2}}, three: {synthetic: {devices: 3}}}
  groups: {train: [layered/0, layered/1], test: [layered/2, chain]}
"""


@pytest.fixture
def write(tmp_path: Path):
    """Writes a sweep of the usual problems and reads it."""

    def make(text: str, problems: str = PROBLEMS) -> Sweep:
        path = tmp_path / "sweep.yaml"
        path.write_text("sweep: test\n" + problems + textwrap.dedent(text))
        return load_sweep(path)

    return make


def by_stage(trials: list[Trial]) -> dict[str, list[Trial]]:
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.stage, []).append(trial)
    return found


def test_crosses_methods_problems_and_seeds(write) -> None:
    trials = write("methods: [random, heft]\nseeds: [3, 5]\nbudget: 10\n").expand()
    assert len(trials) == 2 * (4 * 2) * 2
    assert len({t.content_hash for t in trials}) == len(trials)
    assert [(t.label, t.problem_label, t.seed) for t in trials[:3]] == [
        ("random", "chain@two", 3), ("random", "chain@two", 5), ("random", "chain@three", 3),
    ]  # fmt: skip
    assert build_problem(trials[0].problems[0]).name == "chain@two"
    assert {build_problem(t.problems[0]).n_nodes for t in trials} == {6, 12}
    assert all(t.budget == Budget(10) and t.kind == "search" and t.parent is None for t in trials)


def test_on_selects_groups_patterns_and_samples(write) -> None:
    text = """
    methods: [random]
    budget: 10
    stages:
      group: {kind: search, on: train}
      pattern: {kind: search, on: {graphs: "layered/*", networks: two}}
      sample: {kind: search, on: {sample: {count: 3, seed: 7}}}
    """
    stages = by_stage(write(text).expand())
    assert [t.problem_label for t in stages["group"]] == ["layered/0@two", "layered/0@three", "layered/1@two", "layered/1@three"]
    assert [t.problem_label for t in stages["pattern"]] == ["layered/0@two", "layered/1@two", "layered/2@two"]
    assert len({t.problem_label for t in stages["sample"]}) == 3


def test_hold_out_each_trains_on_the_others(write) -> None:
    text = """
    methods: [toy-learner, heft]
    seeds: [0, 1]
    budget: 10
    stages:
      pretrain: {on: {graphs: layered, networks: two}, hold_out: each}
      finetune: {from: pretrain, budget: 5}
      zero-shot: {from: pretrain}
      again: {from: finetune, kind: zero-shot}
    """
    trials = write(text).expand()
    stages = by_stage(trials)
    known = {t.content_hash: t for t in trials}
    assert Counter(t.stage for t in trials) == {"pretrain": 6, "finetune": 6, "zero-shot": 6, "again": 6}
    assert {t.label for t in trials} == {"toy-learner"}, "heft does not learn, so it is not in stages that train"
    for child in stages["finetune"] + stages["zero-shot"]:
        parent = known[child.parent]
        held_out = child.problems[0].graph_label
        assert parent.stage == "pretrain" and parent.seed == child.seed
        assert {p.graph_label for p in parent.problems} == {"layered/0", "layered/1", "layered/2"} - {held_out}
    for child in stages["again"]:
        assert known[child.parent].problems == child.problems
    order = {t.content_hash: i for i, t in enumerate(trials)}
    assert all(order[t.parent] < order[t.content_hash] for t in trials if t.parent)
    assert all(t.budget.evaluations == 1 for t in stages["zero-shot"])
    assert stages["finetune"][0].kind == "finetune" and stages["finetune"][0].budget == Budget(5)


def test_hold_out_of_groups_keeps_networks_apart(write) -> None:
    text = """
    methods: [toy-learner]
    budget: 10
    stages:
      pretrain: {hold_out: [test, layered/0], per: network}
      finetune: {from: pretrain}
    """
    trials = write(text).expand()
    known, stages = {t.content_hash: t for t in trials}, by_stage(trials)
    assert [{p.graph_label for p in t.problems} for t in stages["pretrain"]] == [
        {"layered/0", "layered/1"}, {"layered/0", "layered/1"}, *[{"chain", "layered/1", "layered/2"}] * 2,
    ]  # fmt: skip
    assert len(stages["finetune"]) == 3 * 2
    for child in stages["finetune"]:
        parent = known[child.parent]
        assert {p.network_label for p in parent.problems} == {child.problems[0].network_label}
        assert child.problems[0].graph_label not in {p.graph_label for p in parent.problems}


def test_one_training_serves_every_seed_and_problem(write) -> None:
    text = """
    methods: [toy-learner]
    seeds: 0..3
    budget: 10
    stages:
      pretrain: {on: train, seeds: [9]}
      finetune: {from: pretrain, on: test}
    """
    stages = by_stage(write(text).expand())
    assert len(stages["pretrain"]) == 1 and len(stages["finetune"]) == 4 * 4
    assert {t.parent for t in stages["finetune"]} == {stages["pretrain"][0].content_hash}


def test_three_stages_on_the_same_problem(write) -> None:
    text = """
    methods: [toy-learner]
    evaluators:
      noisy: {kind: simulator, noise: 0.1}
      cores: {kind: dataflow, host: cpu2, devices: [cpu:0, cpu:1]}
    budget: 10
    """
    text += """
    stages:
      imitation: {kind: pretrain, per: problem, on: train, budget: 0}
      simulated: {from: imitation, on: train, evaluator: noisy}
      real: {from: simulated, on: train, evaluator: cores, config: {rate: 0.01}}
    """
    trials = write(text).expand()
    known, stages = {t.content_hash: t for t in trials}, by_stage(trials)
    for child in stages["simulated"] + stages["real"]:
        assert known[child.parent].problems == child.problems
    assert stages["simulated"][0].evaluator.options == {"noise": 0.1}
    assert stages["real"][0].evaluator.key == "dataflow:cpu2"
    assert stages["real"][0].config["rate"] == 0.01 and stages["simulated"][0].config["rate"] == 0.1


def test_a_training_for_each_source_graph(write) -> None:
    """Mars's Table 3: trained on one graph, fine-tuned on another."""
    text = """
    methods: [toy-learner]
    budget: 10
    stages:
      train-chain: {kind: pretrain, on: {graphs: chain, networks: two}}
      chain-to-layered: {from: train-chain, on: {graphs: layered, networks: two}}
    """
    stages = by_stage(write(text).expand())
    assert {t.parent for t in stages["chain-to-layered"]} == {stages["train-chain"][0].content_hash}
    assert len(stages["chain-to-layered"]) == 3


def test_ablations_change_the_base(write) -> None:
    text = """
    methods: {full: {method: toy-learner, steps: 7}}
    ablations:
      base: full
      without-shape: {features.output_shape: false}
      cold: {features: {in_degree: false}, temperature: 0.5}
    budget: 10
    """
    configs = {t.label: t.config for t in write(text).expand()}
    assert configs["full"]["features"] == {"output_shape": True, "in_degree": True}
    assert configs["without-shape"] == {**configs["full"], "features": {"output_shape": False, "in_degree": True}}
    assert configs["cold"] == {**configs["full"], "temperature": 0.5, "features": {"output_shape": True, "in_degree": False}}


def test_vary_makes_rows_and_a_group(write) -> None:
    text = """
    methods: {toy: {method: toy-learner, vary: {steps: [3, 5], start: [random, first]}}, heft: }
    budget: 10
    stages:
      pretrain: {methods: [toy], on: train}
      search: {methods: [heft], on: test}
    """
    stages = by_stage(write(text).expand())
    assert [t.label for t in stages["pretrain"]] == [
        f"toy/steps={s},start={w}" for s in (3, 5) for w in ("random", "first")
    ]  # fmt: skip
    assert stages["pretrain"][3].config["steps"] == 5 and stages["pretrain"][3].config["start"] == "first"
    assert {t.label for t in stages["search"]} == {"heft"}


def test_vary_of_graphs(write) -> None:
    problems = """
problems:
  graphs: {g: {synthetic: {tasks: 10}, vary: {shape: [0.2, 1.0]}, seeds: [4, 5]}}
  networks: {two: {synthetic: {devices: 2}}}
"""
    trials = write("methods: [random]\nbudget: 10\n", problems).expand()
    assert [t.problems[0].graph_label for t in trials] == ["g/shape=0.2,4", "g/shape=0.2,5", "g/shape=1.0,4", "g/shape=1.0,5"]
    assert len({build_problem(t.problems[0]).graph.content_hash for t in trials}) == 4


def test_execution_of_method_beats_stage_beats_sweep(write) -> None:
    text = """
    methods: {random: , heft: {resources: {gpu: 0.5, custom: {flex170: 1}}}, cpop: {propose: 3, priority: -1}}
    budget: {evaluations: 10, minutes: 2}
    propose: 5
    checkpoint_every: 50
    priority: 1
    stages: {all: {kind: search, resources: {cpu: 2}, on: chain, priority: 2}}
    """
    trials = {t.label: t for t in write(text).expand()}
    assert trials["random"].resources == {"num_cpus": 2, "num_gpus": 0, "custom": {}}
    assert trials["heft"].resources == {"num_cpus": 1, "num_gpus": 0.5, "custom": {"flex170": 1.0}}
    assert [trials[k].batch for k in ("random", "cpop")] == [5, 3]
    assert [trials[k].priority for k in ("random", "heft", "cpop")] == [2, 2, -1]
    assert trials["random"].budget == Budget(10, 120.0) and trials["random"].checkpoint_every == 50


def test_budget_per_node(write) -> None:
    trials = write("methods: [random]\nbudget: {evaluations_per_node: 2}\n").expand()
    assert {t.problem_label: t.budget.evaluations for t in trials}["chain@two"] == 12
    assert {t.problem_label: t.budget.evaluations for t in trials}["layered/1@two"] == 24


SEARCH = """
    methods: [toy-learner]
    seeds: [0, 1]
    budget: 10
    stages:
      tune:
        kind: search
        on: {graphs: train, networks: two}
        search:
          space:
            temperature: {float: [0.1, 10], log: true, when: {start: random}}
            steps: {int: [1, 9], step: 2}
            start: [random, first]
            features.in_degree: {choice: [true, false]}
          configurations: 20
          sampler: {name: tpe, n_startup_trials: 5}
          pruner: median
          seed: 3
      final: {kind: search, config_from: tune, on: test}
"""


def test_search_makes_trials_of_a_configuration(write) -> None:
    sweep = write(SEARCH)
    assert sweep.expand() == [], "everything waits for the search"
    (search,) = sweep.searches()
    assert [p.name for p in search.settings.parameters] == ["steps", "start", "features.in_degree", "temperature"]
    temperature = search.settings.parameters[-1]
    assert temperature.active({"start": "random"}) and not temperature.active({"start": "first"}) and not temperature.active({})
    assert search.settings.sampler.class_name == "TPESampler" and search.settings.sampler.options == {"n_startup_trials": 5}
    trials = search.trials({"steps": 3, "start": "first", "features.in_degree": False})
    assert len(trials) == 2 * 2
    assert trials[0].config == {**search.row.config, "steps": 3, "start": "first", "features": {"output_shape": True, "in_degree": False}}
    assert len({t.content_hash for t in trials} | {t.content_hash for t in search.templates}) == 8
    with pytest.raises(InputError, match="steps"):
        search.trials({"steps": "three"})


def test_winner_configures_the_next_stage(write) -> None:
    sweep = write(SEARCH)
    (search,) = sweep.searches()
    before = sweep.expansion()
    assert len(before.waiting) == 4 * 2 and {t.stage for t in before.waiting} == {"final"}
    after = sweep.expansion({search.content_hash: {"steps": 7, "start": "first"}})
    assert [t.stage for t in after.trials] == ["final"] * 8 and not after.waiting
    assert all(t.config["steps"] == 7 and t.config["start"] == "first" for t in after.trials)
    assert after.searches == before.searches, "a search does not change when it is over"


def test_search_identity_counts_what_matters(write) -> None:
    first = write(SEARCH).searches()[0].content_hash
    assert write(SEARCH).searches()[0].content_hash == first
    assert write(SEARCH.replace("[0.1, 10]", "[0.1, 9]")).searches()[0].content_hash != first
    assert write(SEARCH.replace("pruner: median", "pruner: asha")).searches()[0].content_hash != first


def test_grid_counts_its_configurations(write) -> None:
    text = """
    methods: [toy-learner]
    budget: 10
    search: {space: {steps: {int: [1, 9], step: 4}, start: [random, first]}, sampler: grid}
    on: chain
    """
    (search,) = write(text).searches()
    assert search.settings.configurations == 6
    assert [p.grid() for p in search.settings.parameters] == [[1, 5, 9], ["random", "first"]]


def test_identity_leaves_out_labels_and_resources(write) -> None:
    base = "methods: {%s: {method: toy-learner, steps: 5%s}}\nbudget: 10\n"
    one = write(base % ("a", "")).expand()[0]
    assert write(base % ("b", ", resources: {cpu: 2}")).expand()[0].content_hash == one.content_hash
    assert write(base % ("a", ", priority: 7")).expand()[0].content_hash == one.content_hash
    assert write(base % ("a", ", propose: 2")).expand()[0].content_hash != one.content_hash
    assert write(base.replace("5%s", "6%s") % ("a", "")).expand()[0].content_hash != one.content_hash


def test_trials_survive_json_and_pickle(write) -> None:
    trial = write(SEARCH).searches()[0].templates[0]
    for copy in (Trial.from_json(json.loads(json.dumps(trial.to_json()))), pickle.loads(pickle.dumps(trial))):
        assert copy.priority == trial.priority
        assert copy == trial and copy.content_hash == trial.content_hash and hash(copy) == hash(trial)
    with pytest.raises(TypeError, match="read-only"):
        trial.config["steps"] = 1


def test_identity_is_equal_in_another_process(write, tmp_path: Path) -> None:
    sweep = write("methods: [random]\nseeds: [1]\nbudget: 10\n")
    code = f"from orchestration.definition.sweep import load_sweep; print(load_sweep({str(tmp_path / 'sweep.yaml')!r}).content_hash)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "5"})
    assert out.stdout.strip() == sweep.content_hash


GRAPH = """{"format": "placewright/1", "graph": {"nodes": [{"name": "a", "work": 1}, {"name": "b", "work": %d}],
 "edges": [{"from": "a", "to": "b", "bytes": 1}]}}"""


def test_files_count_by_content_not_place(tmp_path: Path) -> None:
    text = "sweep: s\nproblems:\n  graphs: [g.json]\n  networks: {two: {synthetic: {devices: 2}}}\nmethods: [random]\nbudget: 5\n"
    hashes = []
    for folder, work in (("one", 2), ("two", 2), ("three", 4)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "g.json").write_text(GRAPH % work)
        (tmp_path / folder / "s.yaml").write_text(text)
        hashes.append(load_sweep(tmp_path / folder / "s.yaml").expand()[0].content_hash)
    assert hashes[0] == hashes[1] != hashes[2]
    trial = load_sweep(tmp_path / "one" / "s.yaml").expand()[0]
    (tmp_path / "one" / "g.json").write_text(GRAPH % 3)
    with pytest.raises(InputError, match="changed since the sweep was read"):
        build_problem(trial.problems[0])


def test_whole_problem_in_a_file(tmp_path: Path) -> None:
    network = '"network": {"name": "mine", "devices": [{"name": "x", "speed": 1}, {"name": "y", "speed": 2}], "links": {"bandwidth": 1}}'
    (tmp_path / "p.json").write_text((GRAPH % 2)[:-1] + f', {network}, "objective": "energy"}}')
    (tmp_path / "s.yaml").write_text("sweep: s\nproblems: {graphs: {p: {problem: p.json}}}\nmethods: [random]\nbudget: 5\n")
    (trial,) = load_sweep(tmp_path / "s.yaml").expand()
    problem = build_problem(trial.problems[0])
    assert trial.problem_label == problem.name == "p@mine"
    assert problem.network.names == ("x", "y") and problem.objective == "energy"


def test_include_merges_and_own_keys_win(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "graphs.yaml").write_text("chain: {synthetic: {tasks: 6}}\nlayered: {synthetic: {tasks: 12}}\n")
    (tmp_path / "parts" / "base.yaml").write_text(
        "budget: 99\nseeds: [7]\nproblems:\n  graphs: {include: graphs.yaml}\n  networks: {two: {synthetic: {devices: 2}}}\n"
    )
    (tmp_path / "s.yaml").write_text(
        "sweep: s\ninclude: [parts/base.yaml]\nproblems: {graphs: {chain: {synthetic: {tasks: 8}}}}\nmethods: [random]\nbudget: 5\n"
    )
    sweep = load_sweep(tmp_path / "s.yaml")
    trials = sweep.expand()
    assert {t.problem_label: build_problem(t.problems[0]).n_nodes for t in trials} == {"chain@two": 8, "layered@two": 12}
    assert {(t.seed, t.budget.evaluations) for t in trials} == {(7, 5)}
    assert len(sweep.files) == 3


def test_words_of_yaml_1_1_stay_words(write) -> None:
    text = """
    methods: {no: {method: toy-learner, rate: 1e-4}}
    budget: 1_000
    stages: {on: {kind: search, on: chain}}
    """
    trial = write(text).expand()[0]
    assert (trial.label, trial.stage, trial.config["rate"], trial.budget.evaluations) == ("no", "on", 1e-4, 1000)


def test_check_problems_names_what_cannot_work(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "sweep: s\nproblems:\n  graphs:\n    fine: {synthetic: {tasks: 5}}\n"
        "    stuck: {synthetic: {tasks: 5, hardware_types: 2}}\n  networks: {two: {synthetic: {devices: 2}}}\n"
        "methods:\n  random:\n  other: {method: single-device, device: tpu}\nbudget: 5\n"
    )
    sweep = load_sweep(tmp_path / "s.yaml")
    with pytest.raises(SweepErrors) as caught:
        sweep.check_problems()
    assert [i.mark.line for i in caught.value.issues] == [5, 9]
    assert "no device of network 'two' can run" in caught.value.issues[0].message
    assert "has no device 'tpu'" in caught.value.issues[1].message


def test_check_problems_asks_evaluators_whether_they_fit(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "sweep: s\nproblems:\n  graphs: {fine: {synthetic: {tasks: 5}}}\n  networks: {three: {synthetic: {devices: 3}}}\n"
        "methods: [random]\nbudget: 5\nstages:\n  good: {on: fine, kind: search}\n"
        "  bad: {on: fine, kind: search, evaluator: {kind: work-conserving, processors: [9]}}\n"
        "  real: {on: fine, kind: search, evaluator: {kind: dataflow, devices: ['cpu:0', 'cpu:0']}}\n"
    )
    with pytest.raises(SweepErrors) as caught:
        load_sweep(tmp_path / "s.yaml").check_problems()
    assert [i.mark.line for i in caught.value.issues] == [9, 10]
    assert "processors is [9], but the network has 3 devices; give one for each" in caught.value.issues[0].text
    assert "the engine has 2 devices; network 'three' has 3" in caught.value.issues[1].text


def test_checking_traces_no_training_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from envs.graphs import step_models

    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(step_models, "_build", None)
    (tmp_path / "s.yaml").write_text(
        "sweep: s\nproblems:\n  graphs: {step: {model: gnmt-8, training: true, length: 80}, fine: {synthetic: {tasks: 5}}}\n"
        "  networks: {two: p100-host-2}\nmethods: [gdp]\nbudget: 5\n"
    )
    load_sweep(tmp_path / "s.yaml").check_problems()


def test_thousands_of_trials_expand_in_order(write) -> None:
    sweep = write("methods: [random, heft]\nseeds: 0..624\nbudget: 10\n")
    first, second = sweep.expand(), sweep.expand()
    assert len(first) == 10_000 and first == second


DOCS = Path(__file__).parents[3] / "docs" / "sweeps.md"


def documented() -> list[tuple[str, str]]:
    """(what kind of fragment, text) of every YAML block of the documentation."""
    return re.findall(r"(?:<!-- fragment: (\w+) -->\n)?```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)


@pytest.mark.parametrize(("kind", "text"), documented())
def test_documented_sweeps_are_valid(kind: str, text: str, tmp_path: Path) -> None:
    if kind == "none":
        pytest.skip("includes a file that does not exist")
    for folder, name, content in (
        ("graphs", "mine.json", GRAPH % 1),
        (
            "problems",
            "all-in-one.json",
            (GRAPH % 1)[:-1] + ', "network": {"devices": [{"name": "x", "speed": 1}], "links": {"bandwidth": 1}}}',
        ),
        (
            "networks",
            "lab.json",
            '{"format": "placewright/1", "network": {"devices": [{"name": "x", "speed": 1}], "links": {"bandwidth": 1}}}',
        ),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(content)
    parts = {
        "problems": "graphs: {layered: {synthetic: {}, seeds: 0..2}}\nnetworks: {two: {synthetic: {devices: 2}}}\n",
        "methods": "learner: {method: giph}\n",
    }
    if kind:
        parts[kind] = text
        text = "sweep: part\nbudget: 10\n" + "".join(f"{k}:\n{textwrap.indent(v, '  ')}" for k, v in parts.items())
    (tmp_path / "s.yaml").write_text(text)
    expansion = load_sweep(tmp_path / "s.yaml").expansion()
    assert expansion.trials or expansion.searches


SWEEPS = Path(__file__).parents[3] / "sweeps"
SHIPPED = [p for p in sorted(SWEEPS.rglob("*.yaml")) if re.search(r"^sweep:", p.read_text(), re.MULTILINE)]


@pytest.mark.thorough
@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: str(p.relative_to(SWEEPS)))
def test_shipped_sweeps_are_valid(path: Path) -> None:
    expansion = load_sweep(path).expansion()
    assert expansion.trials or expansion.searches


def test_quickstart_runs_every_method_that_needs_no_training() -> None:
    sweep = load_sweep(SWEEPS / "quickstart.yaml")
    assert {t.method for t in sweep.expand()} == {
        "random", "single-device", "round-robin", "heft", "cpop", "critical-path", "metis", "random-task-eft", "local-search", "cp-sat",
    }  # fmt: skip
    assert len({t.seed for t in sweep.expand()}) == 3
    assert {"resnet-50", "inception-v3", "bert-base"} < {p.graph_label for p in sweep.problems}
