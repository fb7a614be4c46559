"""Which layer of a module each traced operation comes from, and which forward operation a gradient belongs to.

Forward operations are told apart by hooks on the modules of each layer; backward ones by autograd's sequence numbers, as each node of
autograd is created together with the forward operation that it differentiates. What is traced, and what comes of it, is not decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import get_proxy_mode

LAYER, FORWARD, BACKWARD = "placewright_layer", "placewright_forward", "placewright_backward"
"""Keys in a node's ``meta``: the layer int; autograd's sequence number of a forward operation; that of what a gradient belongs to."""


class Origins:
    """Marks the nodes of one trace.

    Args:
        layers: the modules of each layer; an operation of none of them has no layer.
    """

    def __init__(self, layers: Sequence[Sequence[nn.Module]]) -> None:
        self.modules = {module: k for k, row in enumerate(layers) for module in row}
        self.stack: list[int] = []
        self.gradient_of: int | None = None
        self.forward = True

    @contextmanager
    def marking(self) -> Iterator[None]:
        """Marks what is traced while it is open; to be entered inside a trace."""
        mode = get_proxy_mode()
        tracer: Any = mode.tracer if mode is not None else None
        if tracer is None:
            yield
            return
        create = tracer.create_node

        def created(*args: Any, **kwargs: Any) -> fx.Node:
            node: fx.Node = create(*args, **kwargs)
            if self.gradient_of is not None:
                node.meta[BACKWARD] = self.gradient_of
            elif self.forward:
                node.meta[FORWARD] = torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]
                if self.stack:
                    node.meta[LAYER] = self.stack[-1]
            return node

        hooks = [h for module, k in self.modules.items() for h in self._hooks(module, k)]
        tracer.create_node = created
        try:
            yield
        finally:
            tracer.create_node = create
            for hook in hooks:
                hook.remove()

    def _hooks(self, module: nn.Module, layer: int) -> list[Any]:
        return [
            module.register_forward_pre_hook(lambda *_: self.stack.append(layer)),
            module.register_forward_hook(lambda *_: self._leave(), always_call=True),
        ]

    def _leave(self) -> None:
        self.stack.pop()

    def follow(self, loss: Tensor) -> None:
        """Ends the forward pass, and lets every node of autograd that ``loss`` depends on say so while its gradient is computed."""
        self.forward = False
        seen: set[Any] = set()
        pending = [loss.grad_fn]
        while pending:
            node = pending.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            pending += [following for following, _ in node.next_functions]
            node.register_prehook(self._entering(node._sequence_nr()))
            node.register_hook(self._leaving)

    def _entering(self, number: int) -> Callable[[Any], None]:
        def enter(_: Any) -> None:
            self.gradient_of = number

        return enter

    def _leaving(self, *_: Any) -> None:
        self.gradient_of = None

    def owned(self, root: nn.Module) -> dict[str, int]:
        """The layer of each parameter and buffer of ``root``, by name, as far as it has one."""
        found: dict[str, int] = {}
        for path, module in root.named_modules(remove_duplicate=False):
            if module in self.modules:
                prefix = f"{path}." if path else ""
                names = [k for k, _ in (*module.named_parameters(), *module.named_buffers())]
                found |= {prefix + k: self.modules[module] for k in names}
        return found


def counterparts(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """The forward operation that each backward operation differentiates, as far as it is in the trace."""
    forward: dict[int, fx.Node] = {}
    for node in graph.nodes:
        if FORWARD in node.meta:
            forward.setdefault(node.meta[FORWARD], node)
    return {n: forward[n.meta[BACKWARD]] for n in graph.nodes if n.meta.get(BACKWARD) in forward}
