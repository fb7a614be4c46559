"""Any torch module as the graph of a forward pass or of a training step (forward, backward, optimizer), traced with fake tensors.

No weights are allocated: a module is built by a function inside the trace, and `torch.fx`'s make_fx records the ATen operations of one
functional step. What is counted:

- Nodes are ATen operations (``aten.mm``), inputs (``Parameter``), weights of a forward pass (``Constant``), and variables of a training
  step: weights, buffers and the optimizer's state (``ReadValue``); the names are those of `envs.problem.op_arithmetic`. Views are
  part of the operation whose output they show.
- FLOPs of products and convolutions are those of torch's own counter (`torch.utils.flop_counter`); other arithmetic is one for each
  element (of the output, or of the input where that is larger), moving data is none. Fused attention and LSTMs are traced as
  their parts.
- A variable counts once, as ``parameter_bytes``, and so does its new value; ``output_bytes`` are the results that later operations read.
- An edge carries the bytes of what is read of the producer's result, at most all of it.

How graphs are placed and what they cost on devices does not belong here, nor do the networks' definitions.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import flop_registry

from envs.graphs.grouping import joined, merge_operators
from envs.graphs.trace_origins import FORWARD, LAYER, Origins, counterparts
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph

Layers = Callable[[nn.Module], Sequence[Sequence[nn.Module]]]
Optimizer = Literal["sgd", "momentum", "adam"]
STATES: dict[str, int] = {"sgd": 0, "momentum": 1, "adam": 2}
"""Tensors that each optimizer keeps for every weight."""
MOVES = frozenset({
    "clone", "copy", "copy_", "_to_copy", "cat", "stack", "index", "index_select", "gather", "embedding", "zeros", "zeros_like", "ones",
    "ones_like", "full", "full_like", "empty", "empty_like", "new_zeros", "new_empty", "fill", "fill_", "zero_", "arange", "slice_backward",
    "select_backward", "select_scatter", "slice_scatter", "constant_pad_nd", "repeat", "roll", "flip", "where", "masked_fill", "scatter",
    "scalar_tensor", "lift_fresh_copy", "tril", "triu", "im2col", "one_hot", "contiguous", "rand", "randn", "bernoulli", "unfold_backward",
})  # fmt: skip
"""Data moves or is made, but no arithmetic is done."""

UNSAFE = frozenset({"_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk"})
"""Views that autograd is not told about."""


@dataclass(frozen=True)
class TensorSpec:
    """An input that is known by shape and type alone."""

    shape: tuple[int, ...]
    dtype: str = "float32"


def capture_step(
    module: nn.Module | Callable[[], nn.Module],
    inputs: Sequence[Tensor | TensorSpec],
    *,
    training: bool = True,
    optimizer: Optimizer = "adam",
    colocate: bool = True,
    groups: int = 0,
    layers: Layers | None = None,
    host_inputs: bool = False,
    name: str | None = None,
) -> ComputationGraph:
    """The computation graph of one step of ``module``.

    Args:
        module: a module, or a function that builds one; the latter allocates no memory.
        inputs: positional arguments of ``forward``.
        training: trace the gradients of the loss and the optimizer's update too. The loss is the module's output if that has one element,
            otherwise the sum of the means of all its floating outputs.
        optimizer: ``sgd``, ``momentum`` or ``adam`` (without weight decay or clipping).
        colocate: put a weight in one group with its gradient, its state and its update; without training, with its only reader.
        groups: merge forward operations into about so many groups too, with their gradients and the weights that only one group reads
            (`envs.graphs.grouping.merge_operators`); 0 merges none.
        layers: the modules of each layer, by which ``layer`` of the graph is told; without, that is -1 throughout.
        host_inputs: let the inputs require hardware ``cpu``, from where a training program feeds them.
        name: the graph's name; by default the module's class.

    Raises:
        InputError: if the module cannot be traced on the inputs, or trains nothing.
    """
    if optimizer not in STATES:
        raise InputError(f"unknown optimizer {optimizer!r}; choose one of {', '.join(STATES)}")
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        try:
            step = _Step(module, inputs, mode, training, optimizer, layers)
        except Exception as error:  # whatever the user's module raises
            label = type(module).__name__ if isinstance(module, nn.Module) else getattr(module, "__name__", "module")
            raise InputError(f"torch module {label} cannot be captured: {str(error).strip().splitlines()[0]}") from None
    return _Nodes(step, training).graph(name or step.name, colocate, groups, host_inputs)


class _Step:
    """One traced step: its FX graph, what its placeholders are, and which outputs are new values of which weight."""

    def __init__(
        self, module: Any, inputs: Sequence[Tensor | TensorSpec], mode: FakeTensorMode, training: bool, optimizer: str,
        layers: Layers | None,
    ) -> None:  # fmt: skip
        with mode:
            built: nn.Module = module if isinstance(module, nn.Module) else module()
            given = [torch.empty(x.shape, dtype=getattr(torch, x.dtype)) if isinstance(x, TensorSpec) else x for x in inputs]
        fake = lambda t: t if getattr(t, "fake_mode", None) is mode else mode.from_tensor(t.detach())  # noqa: E731
        self.name = type(built).__name__
        origins = Origins(layers(built) if layers else ())
        parameters = {k: fake(p) for k, p in built.named_parameters()}
        buffers = {k: fake(b) for k, b in built.named_buffers()}
        self.trained = [k for k, p in built.named_parameters() if p.requires_grad] if training else []
        if training and not self.trained:
            raise InputError("it has no weights that learn; capture it with training=False")
        with mode:
            states = [[torch.empty_like(parameters[k]) for _ in range(STATES[optimizer])] for k in self.trained]

        def step(weights: list[Tensor], rest: list[Tensor], states: list[list[Tensor]], given: list[Tensor]) -> Any:
            named = dict(zip(parameters, (w.detach().requires_grad_(w.is_floating_point()) for w in weights), strict=True))
            with origins.marking(), torch.enable_grad() if training else torch.no_grad():
                out = functional_call(built, {**named, **dict(zip(buffers, rest, strict=True))}, tuple(given))
                if not training:
                    return out
                learned = [named[k] for k in self.trained]
                loss = _loss(out)
                origins.follow(loss)
                gradients = torch.autograd.grad(loss, learned, allow_unused=True)
            with torch.no_grad():
                used = [(p, g, s) for p, g, s in zip(learned, gradients, states, strict=True) if g is not None]
                return [loss, *(g for _, g, _ in used), *(new for p, g, s in used for new in _update(optimizer, p, g, s))]

        was = built.training
        built.train(training)
        try:
            traced = make_fx(step, tracing_mode="fake")(list(parameters.values()), list(buffers.values()), states, [fake(t) for t in given])
        finally:
            built.train(was)
        traced.graph.eliminate_dead_code()
        self.module = traced
        self.layer_of_weight = origins.owned(built)
        self.counterparts = counterparts(traced.graph)
        outputs = next(n for n in traced.graph.nodes if n.op == "output").args[0]
        values = 1 + STATES[optimizer]
        used = (len(outputs) - 1) // (1 + values) if training else 0
        self.gradients: list[fx.Node] = list(outputs[1 : 1 + used]) if training else []
        """Of every weight that the loss depends on."""
        self.updates: list[list[fx.Node]] = [list(outputs[at : at + values]) for at in range(1 + used, 1 + used * (1 + values), values)]
        """New values of the same weights and of their states."""
        weight = "ReadValue" if training else "Constant"
        self.placeholders = [(k, weight) for k in parameters] + [(k, weight) for k in buffers]
        self.placeholders += [(f"{k}.state{i}", "ReadValue") for k in self.trained for i in range(STATES[optimizer])]
        self.placeholders += [(f"input{i}", "Parameter") for i in range(len(given))]


def _tensors(value: Any) -> Iterable[Tensor]:
    return (t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, Tensor))


def _loss(out: Any) -> Tensor:
    found = [t for t in _tensors(out) if t.is_floating_point()]
    if not found:
        raise InputError("it returns no floating-point tensor to train on")
    if len(found) == 1 and found[0].numel() == 1:
        return found[0].reshape(())
    return torch.stack([t.float().mean() for t in found]).sum()


def _update(optimizer: str, weight: Tensor, gradient: Tensor, state: list[Tensor]) -> list[Tensor]:
    """New values of a weight and its state; the constants are arbitrary, as no values are computed."""
    if optimizer == "sgd":
        return [weight - 0.1 * gradient]
    if optimizer == "momentum":
        velocity = 0.9 * state[0] + gradient
        return [weight - 0.1 * velocity, velocity]
    first = 0.9 * state[0] + 0.1 * gradient
    second = 0.999 * state[1] + 0.001 * gradient * gradient
    return [weight - 0.1 * first / (second.sqrt() + 1e-8), first, second]


def is_view(node: fx.Node) -> bool:
    """Whether a node only shows (part of) its first argument."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    alias = [r.alias_info for r in node.target._schema.returns]
    return node.target._opname in UNSAFE or any(a is not None and not a.is_write for a in alias)


def bytes_of(value: Any) -> float:
    """Bytes of all tensors in a (nested) value."""
    return float(sum(t.numel() * t.element_size() for t in _tensors(value)))


def flops_of(node: fx.Node) -> float:
    """FLOPs of an ATen operation, from the fake tensors that went through it."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return 0.0
    value = lambda argument: torch.fx.node.map_arg(argument, lambda n: n.meta.get("val"))  # noqa: E731
    counted = flop_registry.get(target._overloadpacket)
    if counted is not None:
        return float(counted(*value(node.args), **value(node.kwargs), out_val=node.meta["val"]))
    if target._opname in MOVES:
        return 0.0
    sizes = [t.numel() for n in (node, *node.all_input_nodes) for t in _tensors(n.meta.get("val"))]
    if torch.Tag.pointwise in target.tags:
        return float(max((t.numel() for t in _tensors(node.meta.get("val"))), default=0))
    return float(max(sizes, default=0))


class _Nodes:
    """The trace with views merged into what they show."""

    def __init__(self, step: _Step, training: bool) -> None:
        self.step, self.training = step, training
        everything = list(step.module.graph.nodes)
        self.label = dict(zip((n for n in everything if n.op == "placeholder"), step.placeholders, strict=True))
        self.root: dict[fx.Node, fx.Node] = {}
        for node in everything:
            if node.op == "get_attr":
                node.meta["val"] = getattr(step.module, str(node.target))
            self.root[node] = self.root[node.args[0]] if is_view(node) else node  # type: ignore[index]
        read = {self.root[a] for n in everything if not is_view(n) for a in n.all_input_nodes}
        kept = [n for n in everything if self.root[n] is n and n.op != "output" and (n.op == "call_function" or n in read)]
        self.index = {n: i for i, n in enumerate(kept)}

    def graph(self, name: str, colocate: bool, groups: int, host_inputs: bool) -> ComputationGraph:
        nodes = list(self.index)
        weights = {n for n in nodes if n.op == "get_attr" or self.label.get(n, ("", "Parameter"))[1] != "Parameter"}
        size = np.array([bytes_of(n.meta.get("val")) for n in nodes])
        held = np.array([n in weights for n in nodes])
        edges, carried = self._edges(size)
        kept = size.copy()
        kept[held] = 0.0
        kept[[self.index[self.root[new]] for update in self.step.updates for new in update]] = 0.0
        shapes = [next((tuple(t.shape) for t in _tensors(n.meta.get("val"))), ()) for n in nodes]
        types = tuple(self._type(n) for n in nodes)
        flops = np.array([flops_of(n) for n in nodes])
        sets, layer = self._groups() if colocate else [], self._layers(edges)
        if groups:
            sets += self._merged(groups, edges, carried, flops, layer, sets)
        return ComputationGraph(
            names=tuple(self.label[n][0] if n in self.label else n.name for n in nodes),
            op_types=types,
            flops=flops,
            output_bytes=kept,
            edges=edges,
            edge_bytes=carried,
            parameter_bytes=np.where(held, size, 0.0),
            output_shapes=shapes,  # type: ignore[arg-type]
            hardware=tuple("cpu" if host_inputs and t == "Parameter" else "" for t in types),
            colocation=joined(sets, len(nodes)),
            layer=layer,
            name=name,
        )

    def _type(self, node: fx.Node) -> str:
        if node in self.label:
            return self.label[node][1]
        return "Constant" if node.op == "get_attr" else f"aten.{node.target._opname}"  # type: ignore[union-attr]

    def _edges(self, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distinct edges [E, 2] in the order in which consumers read, and their bytes [E]."""
        found: dict[tuple[int, int], float] = {}
        for node, v in self.index.items():
            for argument in node.all_input_nodes:
                u = self.index[self.root[argument]]
                found[u, v] = min(found.get((u, v), 0.0) + bytes_of(argument.meta.get("val")), float(size[u]))
        return np.array(list(found), dtype=np.int64).reshape(-1, 2), np.array(list(found.values()))

    def _forward_of(self) -> dict[int, int]:
        """The forward operation of each backward operation, as far as it is known."""
        pairs = ((self.index.get(n), self.index.get(self.root[f])) for n, f in self.step.counterparts.items())
        return {n: f for n, f in pairs if n is not None and f is not None}

    def _layers(self, edges: np.ndarray) -> np.ndarray:
        """The layer of every operation int32[V]: its module's; that of what it differentiates; else of its first input or reader."""
        layer = np.full(len(self.index), -1, dtype=np.int32)
        for node, i in self.index.items():
            name = self.label.get(node, ("", ""))[0].partition(".state")[0]
            layer[i] = node.meta.get(LAYER, self.step.layer_of_weight.get(name, -1))
        for n, f in self._forward_of().items():
            layer[n] = layer[f]
        if (layer >= 0).any():
            for order in (edges, edges[::-1, ::-1]):  # edges lead from earlier to later operations
                for u, v in order.tolist():
                    if layer[v] < 0:
                        layer[v] = layer[u]
        return layer

    def _groups(self) -> list[set[int]]:
        """Weights with what belongs to them."""
        if self.training:
            return [self._between(u, self.root[g]) for g, u in zip(self.step.gradients, self.step.updates, strict=True)]
        found = ((i, self._readers(n)) for n, i in self.index.items() if self.label.get(n, ("", ""))[1] == "Constant")
        return [{i, *readers} for i, readers in found if len(readers) == 1]

    def _merged(
        self, groups: int, edges: np.ndarray, carried: np.ndarray, flops: np.ndarray, layer: np.ndarray, weights: list[set[int]]
    ) -> list[set[int]]:
        """Groups of forward operations of one layer, each with its gradients, and the weights that only one group reads."""
        forward = np.array([n.op == "call_function" and FORWARD in n.meta for n in self.index])
        owner = merge_operators(forward, edges, carried, flops, layer, groups)
        sets: dict[int, set[int]] = {}
        for v in np.flatnonzero(forward).tolist():
            sets.setdefault(int(owner[v]), set()).add(v)
        for n, f in self._forward_of().items():
            if forward[f]:
                sets[int(owner[f])].add(n)
        members = [v for group in weights for v in group]
        taken = np.zeros(len(forward), dtype=bool)
        taken[members] = True
        for group in sets.values():  # a weight's gradient stays with the weight, for that is where it is added up
            group -= {v for v in group if taken[v] and not forward[v]}
        for node, i in self.index.items():
            if self.label.get(node, ("", "Parameter"))[1] != "Parameter":
                heads = {int(owner[r]) for r in self._readers(node) if forward[r]}
                if len(heads) == 1:
                    sets[heads.pop()].add(i)
        self._add_sums(sets.values(), weights)
        return list(sets.values())

    def _add_sums(self, groups: Iterable[set[int]], weights: list[set[int]]) -> None:
        """Sums of gradients, which belong to no operation, join the group of their first reader."""
        of = {v: group for group in (*groups, *weights) for v in group}
        nodes = list(self.index)
        for v in range(len(nodes) - 1, -1, -1):
            if v not in of and nodes[v].op == "call_function":
                reader = min(self._readers(nodes[v]), default=-1)
                if reader in of:
                    of[v] = of[reader]
                    of[v].add(v)

    def _readers(self, node: fx.Node) -> set[int]:
        found: set[int] = set()
        stack = list(node.users)
        while stack:
            user = stack.pop()
            if is_view(user):
                stack += user.users
            elif user in self.index:
                found.add(self.index[user])
        return found

    def _between(self, update: list[fx.Node], gradient: fx.Node) -> set[int]:
        """The operations of one weight's update: from its gradient, weight and state to their new values."""
        group = {self.index[gradient]}
        stack = [self.root[n] for n in update]
        while stack:
            node = stack.pop()
            if self.index[node] not in group:
                group.add(self.index[node])
                stack += [self.root[a] for a in node.all_input_nodes]
        return group
