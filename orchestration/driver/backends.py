"""Where trials run: in this process, or as tasks of a Ray that is started here or found. What runs when does not belong here."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from envs.problem.errors import InputError
from orchestration.commands.status import write_statistics
from orchestration.driver import capacity, exposure
from orchestration.driver.ray_start import start_ray
from orchestration.folder.ledger import TrialEnd
from orchestration.folder.lock import holder
from orchestration.rewards.evaluators import in_worker, simulates
from orchestration.rewards.fair_queue import NOBODY, Share
from orchestration.specs.canonical import FrozenDict
from orchestration.specs.files import write_atomic
from orchestration.specs.layout import CHECKPOINT, trial_folder
from orchestration.specs.policies import describe_policy
from orchestration.specs.trial import ProblemSpec, Trial, TrialTask
from orchestration.tracking.summary import SweepSummary
from orchestration.tracking.tracker import Tracker, TrackingSpec
from orchestration.trials.worker import CaptureEnd, capture_graph, execute, lost, policy_path

WAIT_SECONDS = 0.25
"""Longest wait for a trial before the driver looks at its display again."""
ACTOR_CHECK_SECONDS = 2.0
"""How often the driver looks after its actors."""
MOST_AHEAD = 4000
"""Trials that wait with the workers for a CPU, at most: each costs the driver 16 kB, and a microsecond in every look at what has ended."""
KEPT_POLICIES = 64
"""Policies kept in the object store for the trials that start from them; the longest unused goes."""


class Backend(Protocol):
    """Something that runs trials."""

    def begin_tracking(self, spec: TrackingSpec) -> list[str]:
        """Open the store; notes about what was found wrong in it. InputError if it cannot be opened."""
        ...

    def end_tracking(self, status: str, artifacts: list[str], timeout: float, summary: SweepSummary | None = None) -> str | None:
        """See `Tracker.end`."""
        ...

    def room(self, resources: FrozenDict) -> int:
        """How many more trials with these resources may be handed over now."""
        ...

    def submit(self, task: TrialTask, sweep: str) -> None:
        """Hand a trial over."""
        ...

    def capture_room(self, others: bool) -> int:
        """How many more graphs may be handed over to be captured now; fewer if there are ``others`` to run meanwhile."""
        ...

    def capture(self, spec: ProblemSpec) -> None:
        """Hand over a problem whose graph is to be captured."""
        ...

    def captured(self) -> list[tuple[ProblemSpec, CaptureEnd]]:
        """What became of those that came back since this was last asked."""
        ...

    def check(self, trials: Sequence[Trial]) -> list[str]:
        """Notes about what these trials need; InputError if there never will be such resources or such a host."""
        ...

    def busy(self) -> int:
        """How many trials and captures are not back yet."""
        ...

    def running(self) -> int:
        """How many of them have room to run now."""
        ...

    def waiting(self) -> str:
        """How many of them wait for what no machine has, in words; empty if none does."""
        ...

    def wait(self) -> list[tuple[TrialTask, TrialEnd]]:
        """Trials that came back, after a short wait; maybe none."""
        ...

    def stop(self) -> None:
        """Stop what is running."""
        ...

    def close(self) -> None:
        """Give back what was started."""
        ...


class LocalBackend:
    """One trial after another in this process; the specification of what the others must give."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: deque[tuple[TrialTask, str]] = deque()
        self._to_capture: deque[ProblemSpec] = deque()
        self._captured: list[tuple[ProblemSpec, CaptureEnd]] = []
        self._tracker: Tracker | None = None

    def begin_tracking(self, spec: TrackingSpec) -> list[str]:
        self._tracker = Tracker(spec)
        self._tracker.begin()
        return self._tracker.notes()

    def end_tracking(self, status: str, artifacts: list[str], timeout: float, summary: SweepSummary | None = None) -> str | None:
        return None if self._tracker is None else self._tracker.end(status, artifacts, timeout, summary)

    def room(self, resources: FrozenDict) -> int:
        return 1 - len(self._waiting)

    def submit(self, task: TrialTask, sweep: str) -> None:
        self._waiting.append((task, sweep))

    def capture_room(self, others: bool) -> int:
        return 0 if others else 1 - len(self._to_capture)

    def capture(self, spec: ProblemSpec) -> None:
        self._to_capture.append(spec)

    def captured(self) -> list[tuple[ProblemSpec, CaptureEnd]]:
        back, self._captured = self._captured, []
        return back

    def check(self, trials: Sequence[Trial]) -> list[str]:
        """Nothing is reserved here."""
        return []

    def busy(self) -> int:
        return len(self._waiting) + len(self._to_capture)

    def running(self) -> int:
        return len(self._waiting)

    def waiting(self) -> str:
        return ""

    def wait(self) -> list[tuple[TrialTask, TrialEnd]]:
        if not self._waiting:
            spec = self._to_capture.popleft()
            self._captured.append((spec, capture_graph(spec)))
            return []
        task, sweep = self._waiting.popleft()
        report = self._tracker.live if self._tracker is not None else lambda _trial, _snapshot: None
        return [(task, execute(task, str(self._folder), sweep, report))]

    def stop(self) -> None:
        self._waiting.clear()
        self._to_capture.clear()

    def close(self) -> None:
        """Nothing was started here."""


class RayBackend:
    """Trials as Ray tasks, the reward service and the tracker as actors on the driver's node.

    Nothing is expected of other nodes' disks: what a trial learned, and its checkpoints as it runs, travel to the driver, which keeps
    them in the sweep's directory, and from there to the trials that start from it, and to wherever it runs again.
    """

    def __init__(
        self, folder: Path, *, address: str | None, cpus: int | None, simulators: int | None, service: bool, share: Share = NOBODY
    ) -> None:
        self._folder = folder.resolve()
        self._started = start_ray(address, cpus)
        import ray

        self._ray = ray
        self._count()
        self._node = ray.get_runtime_context().get_node_id()
        self._service: Any = None
        from orchestration.driver.remote_task import Home, Keeper, run_task
        from orchestration.rewards.cluster_service import shared_by
        from orchestration.rewards.ray_service import actor, on_node, start_service

        if service:
            shared = None if address is None else shared_by(self._node, share)
            self._service = start_service(simulators, self._folder, self._node, shared)
        self._keeper: Any = None
        """Takes the checkpoints of trials on machines that do not see the folder; a Ray of this machine alone has no need of it."""
        if address is not None:
            self._keeper = actor(Keeper, max_restarts=-1, scheduling_strategy=on_node(self._node)).remote(self._folder)
        self._home = Home(self._node, str(self._folder), str(holder(self._folder).get("run", "")), self._keeper)
        self._task: Any = ray.remote(max_retries=0, num_returns=2)(run_task)
        self._capture_task: Any = ray.remote(max_retries=0)(capture_graph)
        self._capturing: dict[Any, ProblemSpec] = {}
        self._captured: list[tuple[ProblemSpec, CaptureEnd]] = []
        self._running: dict[Any, _Running] = {}
        self._handed: Counter[FrozenDict] = Counter()
        """How many of them have which resources."""
        self._policies: OrderedDict[str, Any] = OrderedDict()
        self._tracker: Any = None
        self._spec: TrackingSpec | None = None
        self._asked: dict[str, Any] = {}
        """Calls to the tracker and the service that say how they are."""
        self._looked = 0.0

    def begin_tracking(self, spec: TrackingSpec) -> list[str]:
        """A tracker whose process dies as it starts is started again, twice."""
        self._spec = spec
        for _ in range(3):
            self._tracker = self._new_tracker(spec)
            try:
                self._ray.get(self._tracker.begin.remote())
                return self._ray.get(self._tracker.notes.remote())
            except self._ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, InputError):
                    raise InputError(str(error.cause)) from None
                raise
            except self._ray.exceptions.RayActorError:
                continue
        raise InputError(
            "the process that tells MLflow died three times as it started", "look into Ray's logs, then give the same command again"
        )

    def _new_tracker(self, spec: TrackingSpec) -> Any:
        from orchestration.rewards.ray_service import actor, on_node

        return actor(Tracker, max_concurrency=4, scheduling_strategy=on_node(self._node)).remote(spec)

    def end_tracking(self, status: str, artifacts: list[str], timeout: float, summary: SweepSummary | None = None) -> str | None:
        """A tracker whose process died is started again and goes on where it was."""
        for _ in range(3):
            if self._tracker is None or self._spec is None:
                return None
            try:
                return self._ray.get(self._tracker.end.remote(status, artifacts, timeout, summary))
            except (self._ray.exceptions.RayActorError, self._ray.exceptions.RayTaskError):
                self.begin_tracking(self._spec)
        return "the tracker's process keeps dying; the ledger keeps what is missing and running the sweep again sends it"

    def room(self, resources: FrozenDict) -> int:
        """Enough for every CPU to find its next trial waiting, up to `MOST_AHEAD`, so that memory does not grow with the sweep.

        Trials with other resources do not count: while those wait for something scarce, the CPUs go on.
        """
        return self._cpus + min(self._cpus, MOST_AHEAD) + 2 - self._handed[resources]

    def submit(self, task: TrialTask, sweep: str) -> None:
        r = task.trial.resources
        remote = self._task.options(
            num_cpus=r.get("num_cpus", 1), num_gpus=r.get("num_gpus", 0), resources=dict(r.get("custom", {})) or None
        )
        policy = None if task.trial.parent is None else self._policy(task.trial.parent)
        checkpoint = None if self._keeper is None else self._checkpoint(task.trial)
        ended, learned = remote.remote(task, sweep, self._tracker, self._service, policy, checkpoint, self._home)
        self._running[ended] = _Running(task, sweep, learned)
        self._handed[r] += 1

    def capture_room(self, others: bool) -> int:
        """All CPUs, or half of them while other trials can use the rest."""
        return (max(1, self._cpus // 2) if others else self._cpus) - len(self._capturing)

    def capture(self, spec: ProblemSpec) -> None:
        self._capturing[self._capture_task.remote(spec)] = spec

    def captured(self) -> list[tuple[ProblemSpec, CaptureEnd]]:
        back, self._captured = self._captured, []
        return back

    def _checkpoint(self, trial: Trial) -> list[Any] | None:
        """The object that holds the trial's last checkpoint, as `_policy`; None if it has left none."""
        with contextlib.suppress(FileNotFoundError):
            return [self._ray.put((trial_folder(self._folder, trial.content_hash) / CHECKPOINT).read_bytes())]
        return None

    def _policy(self, parent: str) -> list[Any] | None:
        """The object that holds a trial's policy file, in a list so that only a worker that lacks the file fetches it."""
        if parent not in self._policies:
            path = policy_path(self._folder, parent)
            if not path.exists():
                return None
            self._policies[parent] = self._ray.put(path.read_bytes())
            if len(self._policies) > KEPT_POLICIES:
                self._policies.popitem(last=False)
        self._policies.move_to_end(parent)
        return [self._policies[parent]]

    def check(self, trials: Sequence[Trial]) -> list[str]:
        from orchestration.rewards.ray_service import unserved

        found = self._ray.nodes()
        grows = capacity.may_grow(found)
        kinds = capacity.startable(found, capacity.LAUNCHED) if grows else None
        notes = exposure.notes([n["NodeManagerAddress"] for n in found]) + capacity.check(trials, self._nodes, grows, kinds)
        notes += capacity.hosted(sorted({t.evaluator.key for t in trials}), lambda key: unserved([key]), grows, kinds)
        if self._service is not None:
            for kind in {t.evaluator.kind for t in trials if simulates(t.evaluator.kind) and not in_worker(t.evaluator)}:
                self._service.shards.remote(kind)  # its simulators start meanwhile
        return notes

    def busy(self) -> int:
        return len(self._running) + len(self._capturing)

    def running(self) -> int:
        return capacity.running(self._handed, self._nodes)

    def waiting(self) -> str:
        return capacity.homeless(self._handed, self._nodes)

    def _count(self) -> None:
        """What machines there are now."""
        self._nodes = capacity.alive(self._ray.nodes())
        self._cpus = max(1, int(sum(n.get("CPU", 0) for n in self._nodes)))

    def wait(self) -> list[tuple[TrialTask, TrialEnd]]:
        self._look()
        waiting = [*self._running, *self._capturing]
        done, _ = self._ray.wait(waiting, num_returns=1, timeout=WAIT_SECONDS, fetch_local=True)
        if done and len(waiting) > 1:
            done, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
        back = []
        for reference in done:
            if reference in self._capturing:
                self._take_capture(reference)
                continue
            one = self._running.pop(reference)
            trial = one.task.trial
            self._handed[trial.resources] -= 1
            self._policies.pop(trial.content_hash, None)  # of before it ran again
            try:
                ended, away = self._ray.get(reference)
                path = policy_path(self._folder, trial.content_hash)
                if away and not path.exists():
                    describe_policy(path.parent, trial, one.sweep)
                    write_atomic(path, self._ray.get(one.learned))
            except self._ray.exceptions.RayError as error:  # the worker or its node died; what the trial does ends as a record
                reason = str(error).strip().splitlines()[0]
                ended = lost(trial, f"the worker of trial {trial.short} was lost: {reason}", one.sweep)
            back.append((one.task, ended))
        return back

    def _take_capture(self, reference: Any) -> None:
        spec = self._capturing.pop(reference)
        try:
            self._captured.append((spec, self._ray.get(reference)))
        except self._ray.exceptions.RayError as error:  # the worker died; the trials capture it themselves
            self._captured.append((spec, CaptureEnd(0, 0.0, str(error).strip().splitlines()[0])))

    def _look(self) -> None:
        """Now and then: count machines, start the tracker again if it died, and note how the hosts are for `placewright hosts`."""
        if time.monotonic() - self._looked < ACTOR_CHECK_SECONDS:
            return
        self._looked = time.monotonic()
        self._count()
        for name, actor in (("tracker", self._tracker), ("service", self._service)):
            call = self._asked.get(name)
            if call is not None and not self._ray.wait([call], timeout=0)[0]:
                continue
            if actor is not None:
                self._asked[name] = (actor.begin if name == "tracker" else actor.statistics).remote()
            if call is None:
                continue
            try:
                answer = self._ray.get(call)
            except self._ray.exceptions.RayActorError:
                if name == "tracker" and self._spec is not None:
                    self._tracker = self._new_tracker(self._spec)
                    self._asked[name] = self._tracker.begin.remote()
            except self._ray.exceptions.RayError:
                pass  # a tracking server that is away while the tracker starts: asked again next time
            else:
                if name == "service":
                    write_statistics(self._folder, answer)

    def stop(self) -> None:
        for reference in (*self._running, *self._capturing):
            self._ray.cancel(reference, force=True)
        self._running.clear()
        self._capturing.clear()
        self._handed.clear()

    def close(self) -> None:
        if self._started:
            self._ray.shutdown()
        else:
            for actor in (self._tracker, self._service, self._keeper):
                if actor is not None:
                    self._ray.kill(actor)


class _Running(NamedTuple):
    """A trial that a worker has."""

    task: TrialTask
    sweep: str
    learned: Any
    """Reference to its policy file, if the worker is on another node."""
