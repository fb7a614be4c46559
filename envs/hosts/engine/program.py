"""A problem made ready to run: kernels bound, inputs in place, the plan of one placement. Nothing runs here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from envs.hosts.engine.devices import RealDevice
from envs.hosts.engine.kernels import Kernel, Result
from envs.problem.problem import Problem
from envs.simulators.work_conserving.discipline import Discipline, free_inputs


class Code(Protocol):
    """What the nodes of one graph compute."""

    by_reference: bool
    """Whether devices that share their memory hand results over without a copy."""
    returned: list[int]
    """Nodes whose results are kept although others read them."""
    operands: list[list[int]]
    """The nodes that each node reads, in the order in which its kernel takes them."""

    def kernel(self, node: int, where: torch.device) -> Kernel:
        """The function of a node that has operands, for tensors on a device."""
        ...

    def leaf(self, node: int) -> Tensor:
        """The data of a node without operands, on the CPU."""
        ...


class Program:
    """What does not depend on the placement: kernels, operands, inputs on every device that wants them, right outputs."""

    def __init__(self, problem: Problem, devices: tuple[RealDevice, ...], code: Code) -> None:
        graph = problem.graph
        self.problem, self.devices, self.code = problem, devices, code
        self.operands = code.operands
        out, ids = graph.out_edges
        self.consumers = [graph.edges[ids[out[v] : out[v + 1]], 1].tolist() for v in range(graph.n_nodes)]
        self.leaf = free_inputs(graph)
        self.order = [v for v in graph.topological_order.tolist() if not self.leaf[v]]
        self.kept = {v for v in range(graph.n_nodes) if not self.consumers[v] and not self.leaf[v]} | set(code.returned)
        """Nodes whose results are the outcome of a run."""
        self.bytes = graph.output_bytes.tolist()
        self._leaves: dict[tuple[int, torch.device], Tensor] = {}
        self._kernels: dict[tuple[int, torch.device], Kernel] = {}

    def leaf_on(self, node: int, where: torch.device) -> Tensor:
        """The data of an input node in the memory of a device."""
        key = (node, where)
        if key not in self._leaves:
            self._leaves[key] = self.code.leaf(node).to(where)
        return self._leaves[key]

    def forget(self, nodes: Iterable[int]) -> None:
        """The data of some input nodes has changed."""
        gone = set(nodes)
        self._leaves = {key: value for key, value in self._leaves.items() if key[0] not in gone}

    def kernel_on(self, node: int, where: torch.device) -> Kernel:
        """The function of a node for one device."""
        key = (node, where)
        if key not in self._kernels:
            self._kernels[key] = self.code.kernel(node, where)
        return self._kernels[key]

    def handed_over(self, source: int, target: int) -> bool:
        """Whether a result gets from one device to the other without a transfer."""
        places = self.devices[source].torch_device, self.devices[target].torch_device
        return source == target or (self.code.by_reference and places[0] == places[1])

    def inputs(self, where: list[int]) -> dict[tuple[int, int], Tensor]:
        """The inputs' data where a placement wants them, by node and device; what runs asks for them before its clock starts."""
        places = [device.torch_device for device in self.devices]
        return {(u, where[v]): self.leaf_on(u, places[where[v]]) for v in self.order for u in self.operands[v] if self.leaf[u]}

    def expected(self) -> dict[int, Result]:
        """What a run keeps, by running every operation on the CPU in a plain loop, where the most memory is."""
        cpu = torch.device("cpu")
        values: dict[int, Result] = {}
        left = [len(c) + (v in self.kept) for v, c in enumerate(self.consumers)]
        for v in self.order:
            operands = [self.leaf_on(u, cpu) if self.leaf[u] else values[u] for u in self.operands[v]]
            values[v] = self.kernel_on(v, cpu)(*operands)
            for u in self.operands[v]:
                left[u] -= 1
                if left[u] == 0:
                    values.pop(u, None)
        return {v: values[v] for v in self.kept}


@dataclass(frozen=True)
class Transfer:
    """The output of ``producer`` goes from one device to another, once for all its consumers there."""

    producer: int
    source: int
    target: int
    consumers: list[int]
    resource: int
    seconds: float
    """What the emulated link takes at least."""


class Plan:
    """What one placement needs: who waits for whom where, transfers, priorities, references, phases."""

    def __init__(self, program: Program, placement: np.ndarray, discipline: Discipline, emulate_links: bool) -> None:
        problem, where = program.problem, [int(d) for d in placement]
        net, d = problem.network, problem.n_devices
        self.where = where
        resources = discipline.link_resources(d)
        priority = discipline.priorities(problem).tolist()
        levels = problem.graph.levels.tolist()
        self.local: list[list[int]] = []
        self.sends: list[list[int]] = []
        self.transfers: list[Transfer] = []
        self.priority = list(priority)
        self.phase = [2 * level for level in levels]
        self.uses: dict[tuple[int, int], int] = {}
        self.resident = [0.0] * d
        for v, consumers in enumerate(program.consumers):
            self.resident[where[v]] += float(problem.graph.parameter_bytes[v])
            by_device: dict[int, list[int]] = {}
            direct: list[int] = []
            for c in consumers:
                here = not program.leaf[v] and program.handed_over(where[v], where[c])
                (direct if here else by_device.setdefault(where[c], [])).append(c)
            if program.leaf[v]:
                for device in by_device:
                    self.resident[device] += program.bytes[v]
                self.local.append([])
                self.sends.append([])
                continue
            self.local.append(direct)
            self.uses[v, where[v]] = len(direct) + len(by_device) + (v in program.kept)
            sends = []
            for device, group in by_device.items():
                seconds = float(net.delay[where[v], device] + program.bytes[v] * net.seconds_per_byte[where[v], device])
                sends.append(len(where) + len(self.transfers))
                self.transfers.append(Transfer(v, where[v], device, group, d + int(resources[where[v], device]), seconds * emulate_links))
                self.priority.append(priority[v] if discipline.synchronous else min(priority[c] for c in group))
                self.phase.append(2 * levels[v] + 1)
                self.uses[v, device] = len(group)
            self.sends.append(sends)
        self.reads = [
            [(u, where[u] if not program.leaf[u] and program.handed_over(where[u], where[v]) else where[v]) for u in operands]
            for v, operands in enumerate(program.operands)
        ]
        """Of which device's copy each node reads its operands."""
        self.wakes = [sorted({where[c] for c in direct} - {where[v]}) for v, direct in enumerate(self.local)]
        """Other devices that may get work when a node ends."""
        self.kernels = [None if program.leaf[v] else program.kernel_on(v, program.devices[d].torch_device) for v, d in enumerate(where)]
        self.missing = [sum(not program.leaf[u] for u in operands) for operands in program.operands]
        self.first = [v for v in program.order if self.missing[v] == 0]
        self.tasks = len(program.order) + len(self.transfers)
        # Phases of the bulk-synchronous mode, with the number of tasks in each.
        runnable = [*program.order, *range(len(where), len(self.phase))]
        self.phase_sizes = np.bincount([self.phase[t] for t in runnable], minlength=1).tolist()
