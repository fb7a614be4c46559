"""Times of a trial are those of its work: not of compiling, which the first trial of a process would pay for all."""

from numba.core.compiler_lock import global_compiler_lock

from orchestration.trials import clock


def test_the_clock_stands_still_while_machine_code_is_made(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    begin = clock.working_seconds()
    now[0] += 1.0
    with global_compiler_lock, global_compiler_lock:  # as where one function calls another
        now[0] += 165.0
    now[0] += 2.0
    assert clock.working_seconds() - begin == 3.0


def test_a_heuristic_takes_no_time_that_its_process_needed_to_start(monkeypatch):
    """The first trial of a process compiles, imports and builds; none of that is in its record."""
    from dataclasses import replace

    from envs.simulators.fifo.evaluator import Simulator
    from orchestration.trials import run_trial
    from tests.orchestration.sweeps_for_tests import trial

    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    build = run_trial.build_problem

    def slow(spec):
        now[0] += 60.0
        return build(spec)

    class Compiling(Simulator):
        def evaluate_many(self, requests):
            with global_compiler_lock:
                now[0] += 100.0
            now[0] += 0.5
            return super().evaluate_many(requests)

    monkeypatch.setattr(run_trial, "build_problem", slow)
    result = run_trial.run_trial(replace(trial("heft", 5)), Compiling())
    assert (result.evaluation_seconds, result.wall_seconds) == (0.5, 0.5)
