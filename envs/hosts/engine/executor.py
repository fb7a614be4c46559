"""The work-conserving engine itself: worker threads and one scheduler. Processes, protocols and problems' files are elsewhere.

There is one scheduler: a lock and the state behind it. Whatever ends (an operation, a transfer) is an event, and the thread in
which it ended handles it under the lock: it makes tasks ready, wakes resting workers through one queue each, and takes its own
next task before it rests. So nothing waits for a trip through another thread, and a chain of operations on one device runs
without any hand-over. A device's worker runs one operation at a time; each channel of each link has a worker of its own, so
that transfers overlap with computation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import torch

from envs.hosts.engine.devices import RealDevice, copy_to, inference, precise_sleep, rivals
from envs.hosts.engine.kernels import Result
from envs.hosts.engine.program import Plan, Program
from envs.problem.measurement import Outcome
from envs.simulators.work_conserving.discipline import Discipline

_clock = time.perf_counter


@dataclass
class Execution:
    """How one run ended; times are seconds since its start."""

    outcome: Outcome = Outcome.OK
    note: str = ""
    seconds: float = float("nan")
    start: np.ndarray = field(default_factory=lambda: np.empty(0))
    """float64[V], NaN for inputs, which take no time."""
    finish: np.ndarray = field(default_factory=lambda: np.empty(0))
    transfers: np.ndarray = field(default_factory=lambda: np.empty((0, 5)))
    """Producer, sender, receiver, start, finish of every transfer, float64[T, 5]."""
    peak: np.ndarray = field(default_factory=lambda: np.empty(0))
    """Most bytes held at once on each device, float64[D]."""
    outputs: dict[int, Result] = field(default_factory=dict)
    """Results of the exits, and of nodes that a program returns."""
    clean: bool = True
    """Whether all workers rest again; if not, a kernel is still running."""


class Executor:
    """Worker threads for devices and links, kept between runs.

    Args:
        devices: the real device of each device of the network.
        discipline: what is next, and what transfers contend for.
        emulate_links: whether a transfer takes at least the network's delay + bytes / bandwidth; it is a real copy in any case.
    """

    def __init__(self, devices: tuple[RealDevice, ...], discipline: Discipline, emulate_links: bool = True) -> None:
        self.devices, self.discipline, self.emulate_links = devices, discipline, emulate_links
        self.rivals = rivals(devices)
        self._inboxes: dict[int, list[SimpleQueue[_Run | None]]] = {}
        for d, device in enumerate(devices):
            self._start(d, device)

    def _start(self, resource: int, device: RealDevice | None) -> None:
        inbox: SimpleQueue[_Run | None] = SimpleQueue()
        slot = len(self._inboxes.setdefault(resource, []))
        self._inboxes[resource].append(inbox)
        name = f"device-{resource}" if device else f"link-{resource - len(self.devices)}.{slot}"
        threading.Thread(target=self._work, args=(inbox, resource, slot, device), name=name, daemon=True).start()

    def _work(self, inbox: SimpleQueue[_Run | None], resource: int, slot: int, device: RealDevice | None) -> None:
        if device:
            device.bind()
        else:
            precise_sleep()
        with inference():
            while (run := inbox.get()) is not None:
                run.drive(resource, slot)

    def run(self, program: Program, placement: np.ndarray, limit: float = float("inf")) -> Execution:
        """Execute one valid placement int16[V]; TOO_SLOW after ``limit`` seconds, when its threads may still be busy."""
        try:
            plan = Plan(program, placement, self.discipline, self.emulate_links)
            values = program.inputs(plan.where)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            return Execution(Outcome.OUT_OF_MEMORY, f"the inputs do not fit: {one_line(error)}")
        for transfer in plan.transfers:
            while len(self._inboxes.get(transfer.resource, ())) < self.discipline.channels:
                self._start(transfer.resource, None)
        run = _Run(program, plan, values, self._inboxes, self.discipline.synchronous, self.rivals)
        ended = run.execute(limit)
        if ended.outcome != Outcome.OK:
            ended.clean = run.drain()
        return ended

    def close(self) -> None:
        """End the threads; those in the middle of a kernel end after it."""
        for inbox in (x for slots in self._inboxes.values() for x in slots):
            inbox.put(None)


def out_of_memory(error: BaseException) -> bool:
    """Whether the machine, not the network's limits, had too little memory."""
    return isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or "can't allocate memory" in str(error)


def one_line(error: BaseException) -> str:
    """An error's text on one line, for a measurement's note."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


class _Run:
    """The scheduler's state for one execution."""

    def __init__(
        self,
        program: Program,
        plan: Plan,
        values: dict[tuple[int, int], Any],
        inboxes: dict[int, list[SimpleQueue[_Run | None]]],
        synchronous: bool,
        rivals: list[list[int]],
    ) -> None:
        n = len(plan.where)
        self.rivals, self.busy = rivals, [False] * len(rivals)
        self.program, self.plan, self.inboxes = program, plan, inboxes
        self.n, self.synchronous = n, synchronous
        self.lock = threading.Lock()
        self.ended: SimpleQueue[None] = SimpleQueue()
        self.stopped = False
        self.problem: tuple[Outcome, str] | None = None
        self.ready: dict[int, list[tuple[float, int, int]]] = {r: [] for r in inboxes}
        self.resting = {r: list(range(len(slots))) for r, slots in inboxes.items()}
        self.sequence = 0
        self.missing = list(plan.missing)
        self.uses = dict(plan.uses)
        self.left = plan.tasks
        self.phase_left = list(plan.phase_sizes)
        self.phase = 0
        self.begin = [0.0] * (n + len(plan.transfers))
        self.end = [0.0] * (n + len(plan.transfers))
        self.memory = program.problem.network.memory.tolist()
        self.held = list(plan.resident)
        self.peak = list(plan.resident)
        self.values = values

    def execute(self, limit: float) -> Execution:
        over = [d for d, held in enumerate(self.held) if held > self.memory[d]]
        if over:
            return Execution(Outcome.OUT_OF_MEMORY, self._memory_note(over[0], "its inputs"))
        zero = _clock()
        if self.left:
            with self.lock:
                for v in self.plan.first:
                    self._push(v)
                if self.synchronous:
                    self._advance()
                self._wake(self.ready)
            try:
                self.ended.get(timeout=None if limit == float("inf") else limit)
            except Empty:
                self.stopped = True
                return Execution(Outcome.TOO_SLOW, f"did not end within {limit:g} s")
        return self._execution(zero)

    def drain(self, patience: float = 2.0) -> bool:
        """Wait until no worker is busy with a run that was stopped; False if some still are after ``patience`` seconds."""
        end = _clock() + patience
        while any(len(self.resting[r]) < len(slots) for r, slots in self.inboxes.items()):
            if _clock() > end:
                return False
            time.sleep(1e-3)
        return True

    def _execution(self, zero: float) -> Execution:
        if self.problem:
            return Execution(*self.problem)
        n, plan = self.n, self.plan
        start, finish = np.array(self.begin) - zero, np.array(self.end) - zero
        transfers = np.array([(t.producer, t.source, t.target, 0.0, 0.0) for t in plan.transfers]).reshape(-1, 5)
        transfers[:, 3], transfers[:, 4] = start[n:], finish[n:]
        leaf = self.program.leaf
        for times in (start, finish):
            times[:n][leaf] = np.nan
        return Execution(
            seconds=float(np.nanmax(finish, initial=0.0)), start=start[:n], finish=finish[:n], transfers=transfers,
            peak=np.array(self.peak), outputs={v: self.values[v, plan.where[v]] for v in self.program.kept},
        )  # fmt: skip

    # Everything below runs in worker threads; the underscored methods under the lock.

    def drive(self, resource: int, slot: int) -> None:
        """Run ready tasks of ``resource`` until there is none, then let the worker rest."""
        queue, lock, n = self.ready[resource], self.lock, self.n
        try:
            while True:
                with lock:
                    if self.stopped or not queue or self._must_wait(resource, queue[0]):
                        self.resting[resource].append(slot)
                        return
                    task = heappop(queue)[2]
                    if task < n:
                        self.busy[resource] = True
                    allowed = self._allocate(task)
                if not allowed:
                    continue
                if task < n:
                    self._compute(task, resource)
                else:
                    self._transfer(task)
        except BaseException as error:  # whatever a kernel raises ends the run, never the worker
            what = f"operation {self.program.problem.graph.names[task]!r}" if task < n else "a transfer"
            with lock:
                self._fail(Outcome.OUT_OF_MEMORY if out_of_memory(error) else Outcome.INVALID, f"{what} raised {one_line(error)}")
                self.resting[resource].append(slot)

    def _must_wait(self, resource: int, head: tuple[float, int, int]) -> bool:
        """Whether the next task of a resource may not start yet: for its phase, or for a device that shares cores with its own."""
        if self.synchronous and self.plan.phase[head[2]] != self.phase:
            return True
        rivals = self.rivals[resource] if resource < len(self.rivals) else ()
        return any(self.busy[r] or (self.ready[r] and self.ready[r][0] < head) for r in rivals)

    def _compute(self, v: int, device: int) -> None:
        values = self.values
        reads = self.plan.reads[v]
        operands = [values[read] for read in reads]
        self.begin[v] = _clock()
        result = self.plan.kernels[v](*operands)  # type: ignore[misc]
        self.program.devices[device].wait()
        self.end[v] = _clock()
        values[v, device] = result
        dropped: list[Result] = []
        with self.lock:
            for read in reads:
                if read in self.uses:
                    self._release(*read, dropped)
            missing = self.missing
            for c in self.plan.local[v]:
                missing[c] -= 1
                if not missing[c]:
                    self._push(c)
            sends = self.plan.sends[v]
            for t in sends:
                self._push(t)
            self.busy[device] = False
            wakes = [*self.plan.wakes[v], *self.rivals[device]]
            self._done(v, [*wakes, *(self.plan.transfers[t - self.n].resource for t in sends)] if sends or wakes else ())
        # `dropped` and `operands` are freed here, outside the lock.

    def _transfer(self, task: int) -> None:
        transfer = self.plan.transfers[task - self.n]
        self.begin[task] = began = _clock()
        copied = copy_to(self.values[transfer.producer, transfer.source], self.program.devices[transfer.target])
        rest = began + transfer.seconds - _clock()
        if rest > 0:
            time.sleep(rest)
        self.end[task] = _clock()
        self.values[transfer.producer, transfer.target] = copied
        dropped: list[Result] = []
        with self.lock:
            self._release(transfer.producer, transfer.source, dropped)
            for c in transfer.consumers:
                self.missing[c] -= 1
                if not self.missing[c]:
                    self._push(c)
            self._done(task, (transfer.target,))

    def _resource(self, task: int) -> int:
        return self.plan.where[task] if task < self.n else self.plan.transfers[task - self.n].resource

    def _push(self, task: int) -> None:
        heappush(self.ready[self._resource(task)], (self.plan.priority[task], self.sequence, task))
        self.sequence += 1

    def _done(self, task: int, resources: tuple[int, ...] | list[int]) -> None:
        """Count a task as done, and wake whoever got work by it."""
        self.left -= 1
        if not self.left:
            self.ended.put(None)
            return
        if self.synchronous:
            self.phase_left[self.plan.phase[task]] -= 1
            if not self.phase_left[self.phase]:
                self._advance()
                self._wake(self.ready)
        elif resources:
            self._wake(resources)

    def _advance(self) -> None:
        """The barrier: go on to the next phase that has tasks."""
        while self.phase < len(self.phase_left) - 1 and not self.phase_left[self.phase]:
            self.phase += 1

    def _wake(self, resources: Iterable[int]) -> None:
        """Wake as many resting workers as there are ready tasks."""
        for r in resources:
            resting = self.resting[r]
            ready = self.ready[r]
            if not ready or not resting or self._must_wait(r, ready[0]):
                continue
            for _ in range(min(len(resting), len(ready))):
                self.inboxes[r][resting.pop()].put(self)

    def _allocate(self, task: int) -> bool:
        """Take the memory of a task's result; False, and the run ends, if the device has too little."""
        if task < self.n:
            v, device = task, self.plan.where[task]
        else:
            transfer = self.plan.transfers[task - self.n]
            v, device = transfer.producer, transfer.target
        held = self.held[device] + self.program.bytes[v]
        if held > self.memory[device]:
            self._fail(Outcome.OUT_OF_MEMORY, self._memory_note(device, repr(self.program.problem.graph.names[v])))
            return False
        self.held[device] = held
        self.peak[device] = max(self.peak[device], held)
        return True

    def _release(self, v: int, device: int, dropped: list[Result]) -> None:
        """One reference less to a result on a device; the last one frees it."""
        key = (v, device)
        self.uses[key] -= 1
        if not self.uses[key]:
            self.held[device] -= self.program.bytes[v]
            dropped.append(self.values.pop(key))

    def _memory_note(self, device: int, what: str) -> str:
        name = self.program.problem.network.names[device]
        return f"device {name!r} has {self.memory[device]:.0f} bytes, too few to hold {what} beside the {self.held[device]:.0f} it holds"

    def _fail(self, outcome: Outcome, note: str) -> None:
        if not self.stopped:
            self.stopped, self.problem = True, (outcome, note)
            self.ended.put(None)
