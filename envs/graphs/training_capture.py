"""Any torch module as the graph of a forward pass or of a training step (forward, backward, optimizer), traced with fake tensors.

No weights are allocated: a module is built by a function inside the trace, and `torch.fx`'s make_fx records the ATen operations of one
functional step. What is counted:

- Nodes are ATen operations (``aten.mm``), inputs (``Parameter``), weights of a forward pass (``Constant``), and variables of a training
  step: weights, buffers and the optimizer's state (``ReadValue``); the names are those of `envs.graphs.flops`. Views are part of the
  operation whose output they show.
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

from envs.errors import InputError
from envs.graph import ComputationGraph

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
            step = _Step(module, inputs, mode, training, optimizer)
        except Exception as error:  # whatever the user's module raises
            label = type(module).__name__ if isinstance(module, nn.Module) else getattr(module, "__name__", "module")
            raise InputError(f"torch module {label} cannot be captured: {str(error).strip().splitlines()[0]}") from None
    return _Nodes(step, training, colocate).graph(name or step.name)


class _Step:
    """One traced step: its FX graph, what its placeholders are, and which outputs are new values of which weight."""

    def __init__(self, module: Any, inputs: Sequence[Tensor | TensorSpec], mode: FakeTensorMode, training: bool, optimizer: str) -> None:
        with mode:
            built: nn.Module = module if isinstance(module, nn.Module) else module()
            given = [torch.empty(x.shape, dtype=getattr(torch, x.dtype)) if isinstance(x, TensorSpec) else x for x in inputs]
        fake = lambda t: t if getattr(t, "fake_mode", None) is mode else mode.from_tensor(t.detach())  # noqa: E731
        self.name = type(built).__name__
        parameters = {k: fake(p) for k, p in built.named_parameters()}
        buffers = {k: fake(b) for k, b in built.named_buffers()}
        self.trained = [k for k, p in built.named_parameters() if p.requires_grad] if training else []
        if training and not self.trained:
            raise InputError("it has no weights that learn; capture it with training=False")
        with mode:
            states = [[torch.empty_like(parameters[k]) for _ in range(STATES[optimizer])] for k in self.trained]

        def step(weights: list[Tensor], rest: list[Tensor], states: list[list[Tensor]], given: list[Tensor]) -> Any:
            named = dict(zip(parameters, (w.detach().requires_grad_(w.is_floating_point()) for w in weights), strict=True))
            with torch.enable_grad() if training else torch.no_grad():
                out = functional_call(built, {**named, **dict(zip(buffers, rest, strict=True))}, tuple(given))
                if not training:
                    return out
                learned = [named[k] for k in self.trained]
                gradients = torch.autograd.grad(_loss(out), learned, allow_unused=True)
            with torch.no_grad():
                used = [(p, g, s) for p, g, s in zip(learned, gradients, states, strict=True) if g is not None]
                return [_loss(out), *(g for _, g, _ in used), *(new for p, g, s in used for new in _update(optimizer, p, g, s))]

        was = built.training
        built.train(training)
        try:
            traced = make_fx(step, tracing_mode="fake")(list(parameters.values()), list(buffers.values()), states, [fake(t) for t in given])
        finally:
            built.train(was)
        traced.graph.eliminate_dead_code()
        self.module = traced
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


def _is_view(node: fx.Node) -> bool:
    """Whether a node only shows (part of) its first argument."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    alias = [r.alias_info for r in node.target._schema.returns]
    return node.target._opname in UNSAFE or any(a is not None and not a.is_write for a in alias)


def _bytes(value: Any) -> float:
    return float(sum(t.numel() * t.element_size() for t in _tensors(value)))


def _flops(node: fx.Node) -> float:
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

    def __init__(self, step: _Step, training: bool, colocate: bool) -> None:
        self.step, self.training, self.colocate = step, training, colocate
        everything = list(step.module.graph.nodes)
        self.label = dict(zip((n for n in everything if n.op == "placeholder"), step.placeholders, strict=True))
        self.root: dict[fx.Node, fx.Node] = {}
        for node in everything:
            if node.op == "get_attr":
                node.meta["val"] = getattr(step.module, str(node.target))
            self.root[node] = self.root[node.args[0]] if _is_view(node) else node  # type: ignore[index]
        read = {self.root[a] for n in everything if not _is_view(n) for a in n.all_input_nodes}
        kept = [n for n in everything if self.root[n] is n and n.op != "output" and (n.op == "call_function" or n in read)]
        self.index = {n: i for i, n in enumerate(kept)}

    def graph(self, name: str) -> ComputationGraph:
        nodes = list(self.index)
        weights = {n for n in nodes if n.op == "get_attr" or self.label.get(n, ("", "Parameter"))[1] != "Parameter"}
        size = np.array([_bytes(n.meta.get("val")) for n in nodes])
        held = np.array([n in weights for n in nodes])
        edges, carried = self._edges(size)
        kept = size.copy()
        kept[held] = 0.0
        kept[[self.index[self.root[new]] for update in self.step.updates for new in update]] = 0.0
        shapes = [next((tuple(t.shape) for t in _tensors(n.meta.get("val"))), ()) for n in nodes]
        return ComputationGraph(
            names=tuple(self.label[n][0] if n in self.label else n.name for n in nodes),
            op_types=tuple(self._type(n) for n in nodes),
            flops=np.array([_flops(n) for n in nodes]),
            output_bytes=kept,
            edges=edges,
            edge_bytes=carried,
            parameter_bytes=np.where(held, size, 0.0),
            output_shapes=shapes,  # type: ignore[arg-type]
            colocation=self._groups() if self.colocate else None,  # type: ignore[arg-type]
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
                found[u, v] = min(found.get((u, v), 0.0) + _bytes(argument.meta.get("val")), float(size[u]))
        return np.array(list(found), dtype=np.int64).reshape(-1, 2), np.array(list(found.values()))

    def _groups(self) -> np.ndarray:
        """Co-location groups int32[V]; -1 without one."""
        sets: list[set[int]] = []
        if self.training:
            sets = [self._between(u, self.root[g]) for g, u in zip(self.step.gradients, self.step.updates, strict=True)]
        else:
            for node, i in self.index.items():
                if self.label.get(node, ("", ""))[1] == "Constant" and len(readers := self._readers(node)) == 1:
                    sets.append({i, *readers})
        return _joined(sets, len(self.index))

    def _readers(self, node: fx.Node) -> set[int]:
        found: set[int] = set()
        stack = list(node.users)
        while stack:
            user = stack.pop()
            if _is_view(user):
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


def _joined(sets: list[set[int]], n: int) -> np.ndarray:
    """Group numbers int32[n] such that sets with a common member are one group; -1 outside of all."""
    groups = np.full(n, -1, dtype=np.int32)
    for k, members in enumerate(sets):
        at = np.fromiter(members, dtype=np.int64)
        old = np.unique(groups[at])
        groups[at] = k
        groups[np.isin(groups, old[old >= 0])] = k
    return groups
