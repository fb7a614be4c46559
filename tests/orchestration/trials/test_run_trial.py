import json
import time
from dataclasses import replace

import numpy as np
import pytest

from envs.problem.errors import InputError
from envs.problem.measurement import Outcome, Wrapper
from envs.simulators.fifo.evaluator import Simulator
from methods.contract.method import Method, Proposal
from orchestration.rewards import retry
from orchestration.rewards.evaluators import InfrastructureError
from orchestration.rewards.wrappers import Failing, Noisy
from orchestration.specs.layout import CHECKPOINT
from orchestration.specs.results import TrialResult, placement_array
from orchestration.specs.sources import build_problem
from orchestration.specs.state_files import previous
from orchestration.specs.trial import Budget
from orchestration.trials import progress
from orchestration.trials import run_trial as runner
from orchestration.trials.progress import Progress
from orchestration.trials.run_trial import Silent, evaluation_seed, method_seed, run_trial
from tests.orchestration.little_disk import little_disk
from tests.orchestration.sweeps_for_tests import problem_spec, trial


class Stop(Exception):
    pass


class StopAfter(Silent):
    """Ends a trial by force once it has spent so many evaluations."""

    def __init__(self, evaluations):
        self.evaluations = evaluations

    def progress(self, state: Progress):
        if state.evaluations >= self.evaluations:
            raise Stop


@pytest.mark.parametrize("method", ["random", "local-search"])
@pytest.mark.parametrize("evaluations", [1, 63, 150])
def test_the_budget_is_spent_exactly(method, evaluations):
    result = run_trial(trial(method, evaluations), Simulator())
    assert result.evaluations == evaluations == sum(result.outcomes.values()) == result.problems[0].evaluations
    assert result.problems[0].curve[-1].evaluations <= evaluations


def test_the_result_says_what_the_placement_measures():
    t = trial("random", 200)
    found = run_trial(t, Simulator()).problems[0]
    again = Simulator().evaluate(build_problem(t.problems[0]), placement_array(found)[None])
    assert found.objective == again.objective[0] == found.curve[-1].best
    assert found.problem_hash == again.problem_hash
    assert [p.evaluations for p in found.curve] == sorted({p.evaluations for p in found.curve})
    assert all(a.best >= b.best for a, b in zip(found.curve, found.curve[1:], strict=False))


@pytest.mark.parametrize("method", ["random", "local-search"])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_an_interrupted_trial_goes_on_bit_for_bit(tmp_path, method, noise):
    t = trial(method, 500, checkpoint_every=100, batch=16)
    whole = run_trial(t, Simulator(noise=noise))
    for stop in (150, 330):
        with pytest.raises(Stop):
            run_trial(t, Simulator(noise=noise), StopAfter(stop), checkpoint_dir=tmp_path)
    assert (tmp_path / CHECKPOINT).exists()
    resumed = run_trial(t, Simulator(noise=noise), checkpoint_dir=tmp_path)
    assert resumed.resumed == 2
    assert resumed.content() == whole.content()


def test_a_trial_paused_at_rungs_ends_like_one_that_was_not(tmp_path):
    t = trial("local-search", 400, batch=32)
    rung = run_trial(t, Simulator(), checkpoint_dir=tmp_path, until=100)
    assert rung.status == "paused" and 100 <= rung.evaluations < 132
    assert run_trial(t, Simulator(), checkpoint_dir=tmp_path).content() == run_trial(t, Simulator()).content()


@pytest.mark.parametrize(("broken", "resumed"), [(1, 1), (2, 0)])
def test_a_flipped_bit_is_named_and_the_trial_goes_on_from_the_checkpoint_before(tmp_path, broken, resumed):
    t = trial("local-search", 300, checkpoint_every=64)
    with pytest.raises(Stop):
        run_trial(t, Simulator(), StopAfter(250), checkpoint_dir=tmp_path)
    for path in (tmp_path / CHECKPOINT, previous(tmp_path / CHECKPOINT))[:broken]:
        data = bytearray(path.read_bytes())
        data[-20] ^= 4
        path.write_bytes(data)
    result = run_trial(t, Simulator(), checkpoint_dir=tmp_path)
    assert result.content() == run_trial(t, Simulator()).content()
    assert result.resumed == resumed and len(result.notes) == broken
    assert f"{CHECKPOINT} is damaged" in result.notes[0] and f"{CHECKPOINT}.damaged" in result.notes[0]
    assert (tmp_path / f"{CHECKPOINT}.damaged").exists()
    assert TrialResult.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_a_full_disk_costs_a_trial_its_checkpoints_and_no_more(tmp_path):
    t = trial("local-search", 300, checkpoint_every=64)
    with little_disk():
        result = run_trial(t, Simulator(), checkpoint_dir=tmp_path)
    assert result.content() == run_trial(t, Simulator()).content()
    (note,) = result.notes
    assert CHECKPOINT in note and "could not be written (File too large)" in note


def test_what_others_start_from_must_be_written(tmp_path, toy_methods):
    t = trial("toy-learner", 100, kind="pretrain")
    with little_disk(100), pytest.raises(InfrastructureError, match=r"policy\.safetensors cannot be written"):
        run_trial(t, Simulator(), checkpoint_dir=tmp_path)


def test_measuring_the_best_again_finds_the_best_and_not_the_luckiest():
    exact, noisy = Simulator(), Simulator(noise=0.3)
    biases, chosen = [], []
    for confirm in (0, 80):
        results = [run_trial(trial("random", budget=Budget(200, confirm=confirm), seed=seed), noisy) for seed in range(6)]
        assert all(r.evaluations == 200 + confirm for r in results)
        true = []
        for r in results:
            placement = placement_array(r.problems[0])[None]
            true.append(float(exact.evaluate(build_problem(problem_spec()), placement).objective[0]))
            again = noisy.evaluate(build_problem(problem_spec()), placement, r.problems[0].seed, first=r.problems[0].first)
            assert confirm or again.objective[0] == r.problems[0].objective
        biases.append(np.mean([r.problems[0].objective / t for r, t in zip(results, true, strict=True)]))
        chosen.append(np.mean(true))
    assert biases[0] < 0.94 and abs(biases[1] - 1) < 0.03, biases
    assert chosen[1] <= chosen[0], chosen


def test_the_first_placement_is_measured_again_with_the_best():
    class Asked(Wrapper):
        """The simulator; keeps what it was asked for."""

        def __init__(self):
            self.inner, self.asked = Simulator(noise=0.3), []

        def evaluate(self, problem, placements, seed=0, *, first=0, trace=False):
            self.asked.append((placements, trace))
            return self.inner.evaluate(problem, placements, seed, first=first, trace=trace)

    asked = Asked()
    run_trial(trial("random", budget=Budget(200, confirm=8), seed=1), asked)
    first, again = asked.asked[0][0][0], [placements for placements, trace in asked.asked if trace]
    assert len(again) == 2 and all(len(p) == progress.CONTENDERS and (p == first).all(axis=1).sum() == 1 for p in again)


def test_confirmation_is_part_of_a_trials_identity_only_where_it_is_asked_for():
    plain, confirmed = trial("random", budget=Budget(200)), trial("random", budget=Budget(200, confirm=8))
    assert plain.content_hash != confirmed.content_hash
    assert "confirm" not in plain.to_json()["budget"] and type(confirmed).from_json(confirmed.to_json()) == confirmed
    with pytest.raises(InputError, match="confirms by -1"):
        Budget(1, confirm=-1)


def test_all_that_was_proposed_is_remembered_in_blocks():
    seen = []

    class Listening(Simulator):
        def evaluate(self, *args, **options):
            seen.append(super().evaluate(*args, **options))
            return seen[-1]

    result = run_trial(trial("random", 700, batch=3), Listening()).problems[0]
    ends = [b.evaluations for b in result.proposed]
    assert progress.PROPOSED_BLOCKS <= len(ends) < 2 * progress.PROPOSED_BLOCKS
    assert ends == sorted(set(ends)) and ends[-1] == 700
    objective = np.concatenate([m.objective for m in seen])
    assert len(objective) == 700 and sum(b.valid for b in result.proposed) == np.isfinite(objective).sum()
    for begin, block in zip([0, *ends], result.proposed, strict=False):
        assert block.mean == pytest.approx(objective[begin : block.evaluations].mean())


def test_a_damaged_checkpoint_costs_time_only(tmp_path):
    t = trial("random", 300, checkpoint_every=64)
    with pytest.raises(Stop):
        run_trial(t, Simulator(), StopAfter(200), checkpoint_dir=tmp_path)
    path = tmp_path / CHECKPOINT
    path.write_bytes(path.read_bytes()[:50])
    assert run_trial(t, Simulator(), checkpoint_dir=tmp_path).content() == run_trial(t, Simulator()).content()


def test_failures_of_infrastructure_change_no_result(monkeypatch):
    monkeypatch.setattr(retry, "MEASUREMENT_PAUSE", 0.0)
    for method in ("random", "local-search"):
        t = trial(method, 300)
        wrapped = run_trial(t, Failing(Simulator(), 0.3))
        assert wrapped.content() == run_trial(t, Simulator()).content()
        assert Outcome.INFRASTRUCTURE.name not in wrapped.outcomes


def test_measurements_that_never_come_are_no_reward(monkeypatch):
    monkeypatch.setattr(retry, "MEASUREMENT_PAUSE", 0.0)
    with pytest.raises(InfrastructureError, match="infrastructure"):
        run_trial(trial("random", 100), Failing(Simulator(), 0.99999))


def test_noise_does_not_depend_on_how_a_batch_is_split():
    problem = build_problem(problem_spec())
    placements = np.zeros((10, problem.n_nodes), dtype=np.int16)
    for evaluator in (Simulator(noise=0.3), Noisy(Simulator(), 0.1)):
        whole = evaluator.evaluate(problem, placements, 5, first=3)
        part = evaluator.evaluate(problem, placements[4:], 5, first=7)
        assert np.array_equal(whole.seconds[4:], part.seconds)
        assert len(set(whole.seconds)) == 10


def test_seeds_differ_between_methods_and_problems_but_not_between_budgets():
    t = trial()
    others = [replace(t, seed=1), replace(t, method="heft"), replace(t, problems=(problem_spec(seed=7),))]
    assert len({evaluation_seed(x) for x in [t, *others]}) == 4
    assert len({tuple(method_seed(x).generate_state(4)) for x in [t, *others]}) == 4
    assert evaluation_seed(t) == evaluation_seed(replace(t, budget=Budget(7), label="x"))


def test_waiting_for_hardware_is_no_use_of_a_budget_of_seconds(monkeypatch):
    class Busy(Simulator):
        queue_seconds = 0.0

        def evaluate(self, *args, **kwargs):
            self.queue_seconds += 100.0
            return super().evaluate(*args, **kwargs)

    busy, clock = Busy(), time.perf_counter
    monkeypatch.setattr(runner, "working_seconds", lambda: clock() + busy.queue_seconds)
    result = run_trial(trial("random", budget=Budget(8, 60.0), batch=1), busy)
    assert result.evaluations == 8 and result.wall_seconds > 800


def test_a_budget_of_seconds_ends_the_trial(monkeypatch):
    now = [0.0]

    class Slow(Simulator):
        def evaluate(self, *args, **kwargs):
            now[0] += 1.0
            return super().evaluate(*args, **kwargs)

    monkeypatch.setattr(runner, "working_seconds", lambda: now[0])
    result = run_trial(trial("random", budget=Budget(seconds=3.5)), Slow())
    assert (result.evaluations, result.wall_seconds) == (3 * 64 + 32, 4.0), "the last batch has half its time"


class Greedy(Method):
    def propose(self, n):
        return [Proposal(0, np.zeros((n + 1, self.problem.n_nodes), dtype=np.int16))]


def test_a_method_that_asks_for_too_much_fails(monkeypatch):
    monkeypatch.setattr(runner, "build", lambda *a: Greedy(None, a[2], a[3]))
    with pytest.raises(ValueError, match="65 placements when asked for at most 64"):
        run_trial(trial("random", 100), Simulator())


def test_records_go_through_json_unchanged():
    result = run_trial(trial("heft", 10), Simulator())
    assert TrialResult.from_json(result.to_json()) == result and result.ok
