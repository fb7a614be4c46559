"""What runs next: order, resources, priorities, attempts. No Ray, no MLflow."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestration.definition.expansion import Expansion
from orchestration.driver import agenda as work_module
from orchestration.driver.agenda import Agenda, ReadyQueue
from orchestration.folder.ledger import Ledger
from orchestration.specs.canonical import FrozenDict
from orchestration.specs.layout import CHECKPOINT, trial_folder
from orchestration.specs.trial import Trial, TrialTask
from orchestration.trials.worker import lost
from tests.orchestration.sweeps_for_tests import trial

RARE = FrozenDict({"num_cpus": 1, "num_gpus": 0, "custom": {"rare": 1}})


def jobs(count: int, first: int = 0, **changes) -> list[TrialTask]:
    return [TrialTask(trial("heft", 5, seed=s, **changes)) for s in range(first, first + count)]


def drained(ready: ReadyQueue, room=lambda _: 1) -> list[TrialTask]:
    found = []
    while (job := ready.pop(room)) is not None:
        found.append(job)
    return found


@pytest.fixture
def work(tmp_path):
    """Agenda over given trials."""
    with Ledger(tmp_path / "sweep") as ledger:

        def make(trials) -> Agenda:
            return Agenda(SimpleNamespace(expansion=lambda _winners=None: Expansion(tuple(trials), (), (), ())), ledger)

        yield make


def test_what_waits_for_scarce_resources_holds_up_nothing_else(work):
    scarce, plain = jobs(10, resources=RARE), jobs(10, first=10)
    made = work([j.trial for j in (*scarce, *plain)])
    handed = {}

    def room(resources):
        return 4 - handed.get(resources, 0)

    got = []
    while (job := made.next(room)) is not None:
        handed[job.trial.resources] = handed.get(job.trial.resources, 0) + 1
        got.append(job)
        if job.trial.resources != RARE:  # it ends at once; the others never get what they need
            handed[job.trial.resources] -= 1
    assert [j for j in got if j.trial.resources == RARE] == scarce[:4]
    assert [j for j in got if j.trial.resources != RARE] == plain


def test_jobs_that_all_have_room_keep_their_order():
    ready, mixed = ReadyQueue(), [j for pair in zip(jobs(3, resources=RARE), jobs(3), strict=True) for j in pair]
    for job in mixed:
        ready.push(job)
    again = TrialTask(trial("random", 7))
    ready.push(again, front=True)
    assert drained(ready) == [again, *mixed] and not ready


def test_higher_priority_starts_first_whatever_its_resources(work):
    last, first, rare = jobs(2, priority=-1), jobs(2, first=2, priority=5), jobs(2, first=4, priority=5, resources=RARE)
    plain = jobs(2, first=6)
    made = work([j.trial for j in (*last, *plain, *first, *rare)])
    assert drained(made._ready) == [*first, *rare, *plain, *last]


def test_an_older_ledger_knows_no_priority():
    data = trial("heft", 5).to_json()
    del data["priority"]
    assert Trial.from_json(data) == trial("heft", 5)


def test_the_reward_service_learns_the_priority(monkeypatch):
    from orchestration.rewards import client
    from orchestration.trials import worker

    made = {}
    monkeypatch.setattr(client, "ServiceClient", lambda *args, **options: made.update(options))
    worker._evaluator(trial("random", 5, priority=3), object(), Path())
    assert made == {"priority": 3}


def test_attempts_count_from_the_last_checkpoint(work, tmp_path, monkeypatch):
    monkeypatch.setattr(work_module, "FIRST_RETRY_SECONDS", 0.0)
    (job,) = jobs(1)
    made = work([job.trial])
    checkpoint = trial_folder(tmp_path / "sweep", job.trial.content_hash) / CHECKPOINT
    checkpoint.parent.mkdir(parents=True)
    for attempt in range(3 * work_module.RETRIES):  # spot machines that leave again and again, each after some work
        checkpoint.write_bytes(b"")
        os.utime(checkpoint, ns=(attempt, attempt))
        made.returned([(made.next(), lost(job.trial, "the node left", "s"))])
    assert not made.complete
    for _ in range(work_module.RETRIES):  # and now without getting on
        made.returned([(made.next(), lost(job.trial, "the node left", "s"))])
    assert made.complete and made.failed == 1
