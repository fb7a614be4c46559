"""Calls grouped into fragments, the nodes that are placed: a heavy operation with the light ones behind it. Nothing runs here.

A light operation (pointwise, a view, a normalisation) joins the fragment of what it reads if that makes nobody wait: whatever else it
reads must be ready by the time the fragment starts. So a convolution has its activation with it, and a step of a recurrent cell is one
fragment, while branches stay apart. Views of the program's inputs belong to every fragment that reads them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from envs.graphs.exported import recurrent
from envs.graphs.exported.functional import Calls
from envs.graphs.training_capture import bytes_of, flops_of, is_view
from envs.problem.errors import InputError

_HEAVY = ("pool", "upsample", "interpolate", "grid_sampler", "embedding", "sort", "topk", "fft", "linalg", "lstm")
"""Parts of names of operations that are work although no FLOPs are counted for them."""


@dataclass
class Fragment:
    """Calls that run one after another on one device."""

    name: str
    kind: str
    """Of its first call, such as ``aten.convolution``."""
    calls: list[fx.Node] = field(default_factory=list)
    reads: dict[int, list[fx.Node]] = field(default_factory=dict)
    """Results of earlier fragments that it reads, by fragment."""
    inputs: list[fx.Node] = field(default_factory=list)
    """Inputs of the program that it reads."""
    constants: list[fx.Node] = field(default_factory=list)
    results: list[fx.Node] = field(default_factory=list)
    """What others read of it."""
    flops: float = 0.0


class Fragments:
    """The fragments of a program, in an order in which they can run.

    Raises:
        InputError: if nothing is left to compute.
    """

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.list: list[Fragment] = []
        self.home: dict[fx.Node, int] = {}
        """The fragment of each call, but for views of inputs."""
        self._before: list[int] = []
        """The fragments that have ended when one starts, as bits."""
        self._inline: set[fx.Node] = set()
        for node in calls.calls:
            self._add(node)
        if not self.list:
            raise InputError(f"program {calls.name!r} computes nothing from its inputs, so there is nothing to place")
        self._connect()

    def _add(self, node: fx.Node) -> None:
        producers = {self.home[n] for n in node.all_input_nodes if n in self.home}
        if not producers and is_view(node):
            self._inline.add(node)
            return
        flops = _flops(node)
        before = 0
        for p in producers:
            before |= 1 << p | self._before[p]
        last = max(producers, default=-1)
        light = is_view(node) or not (_counted(node) or any(part in str(node.target) for part in _HEAVY))
        if last >= 0 and light and not before & ~(1 << last | self._before[last]):
            self.home[node] = last
            self.list[last].calls.append(node)
            self.list[last].flops += flops
            return
        self._start(node, before, flops)

    def _start(self, node: fx.Node, before: int, flops: float = 0.0) -> None:
        self.home[node] = len(self.list)
        kind = node.name if node.target is operator.getitem else f"aten.{node.target._opname}"  # type: ignore[union-attr]
        self.list.append(Fragment(node.name, kind, [node], flops=flops))
        self._before.append(before)

    def _connect(self) -> None:
        """Views of inputs to who reads them, and what fragments read of each other."""
        returned = {v for v in self.calls.outputs if isinstance(v, fx.Node)}
        results: dict[int, dict[fx.Node, None]] = {}
        for fragment in self.list:
            whole: dict[fx.Node, None] = {}
            for node in fragment.calls:
                self._take(node, whole)
            fragment.calls = list(whole)
        for i, fragment in enumerate(self.list):
            mine = set(fragment.calls)
            for node in fragment.calls:
                for n in node.all_input_nodes:
                    if n in mine:
                        continue
                    if n in self.home:
                        _once(fragment.reads.setdefault(self.home[n], []), n)
                        results.setdefault(self.home[n], {})[n] = None
                    else:
                        _once(fragment.constants if n in self.calls.constants else fragment.inputs, n)
                if node in returned and node in self.home:
                    results.setdefault(i, {})[node] = None
        for i, fragment in enumerate(self.list):
            fragment.results = list(results.get(i, {}))
            for k, node in enumerate(fragment.results):
                node.meta["position"] = k

    def _take(self, node: fx.Node, whole: dict[fx.Node, None]) -> None:
        """``node`` behind the views of inputs that it reads."""
        for n in node.all_input_nodes:
            if n in self._inline:
                self._take(n, whole)
        whole[node] = None


def _once(found: list[fx.Node], node: fx.Node) -> None:
    if node not in found:
        found.append(node)


def _counted(node: fx.Node) -> bool:
    """Whether FLOPs are counted for an operation as a product, a convolution or attention."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return target._overloadpacket in flop_registry or (_is_composite(target) and _product_flops(node) > 0)


def _is_composite(target: Any) -> bool:
    return bool(target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd))


def _product_flops(node: fx.Node) -> float:
    """FLOPs of the products that a composite operation is made of, from its fake tensors."""
    if "product_flops" not in node.meta:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), _value)
        with FlopCounterMode(display=False) as counter:
            node.target(*args, **kwargs)  # type: ignore[operator]
        node.meta["product_flops"] = float(counter.get_total_flops())
    return float(node.meta["product_flops"])


def _value(node: fx.Node) -> Any:
    return node.meta["val"]


def _flops(node: fx.Node) -> float:
    target = node.target
    if isinstance(target, torch._ops.OpOverload) and not is_view(node) and _is_composite(target) and (found := _product_flops(node)) > 0:
        return found
    return 0.0 if is_view(node) else flops_of(node)


def size_of(nodes: list[fx.Node]) -> float:
    """Bytes of the results of some calls."""
    return sum(bytes_of(n.meta.get("val")) for n in nodes)


Kernel = Callable[..., tuple[Any, ...]]


def compiled(fragment: Fragment, constants: dict[fx.Node, Any], shared: frozenset[fx.Node], where: torch.device) -> Kernel:
    """A function from a fragment's operands to its results, on tensors of one device.

    Operands are those of `envs.graphs.exported.graph`: the inputs, the shared constants, then a tuple of results of each fragment read.
    """
    root: dict[str, Any] = {}
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    own = [n for n in fragment.constants if n not in shared]
    values = [_moved(constants[n], where) for n in own]
    for i, n in enumerate(own):
        env[n] = graph.placeholder(f"c{i}")
    for i, n in enumerate((*fragment.inputs, *(n for n in fragment.constants if n in shared))):
        env[n] = graph.placeholder(f"x{i}")
    for producer, nodes in fragment.reads.items():
        value = graph.placeholder(f"f{producer}")
        for n in nodes:
            env[n] = graph.call_function(operator.getitem, (value, n.meta["position"]))
    for node in fragment.calls:
        copied = graph.node_copy(node, env.__getitem__)
        if copied.target is torch.ops.aten.lstm.input and where.type == "cpu":
            copied.target = recurrent.layer
        if "device" in copied.kwargs:
            copied.kwargs = {**copied.kwargs, "device": where}
        env[node] = copied
    graph.output(tuple(env[n] for n in fragment.results))
    function = fx.GraphModule(root, graph).forward
    return lambda *operands: function(*values, *operands)


def _moved(value: Any, where: torch.device) -> Any:
    return value.to(where) if isinstance(value, Tensor) else value
