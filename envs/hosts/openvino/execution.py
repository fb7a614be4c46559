"""Placements compiled so that they run: by HETERO, or as segments in turn or overlapping. Measuring them does not belong here."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from envs.graphs.openvino_capture import import_openvino
from envs.hosts.openvino.model import PreparedModel
from envs.problem.graph import ComputationGraph
from envs.simulators.pieces.evaluator import graph_arrays
from envs.simulators.pieces.kernel import cut


def _folded(prepared: PreparedModel) -> Any:
    """A copy in which what depends on weights and shapes alone is a weight of whoever reads it.

    Cut off from what it is computed from, a shape would be unknown to the piece that reads it, and OpenVINO then fails on it.
    """
    import_openvino()
    from openvino import passes

    model = prepared.model.clone()
    manager = passes.Manager()
    manager.register_pass(passes.ConstantFolding())
    manager.run_passes(model)
    return model


class Executable(Protocol):
    """A placement compiled for its devices: takes inputs, gives outputs, and is closed."""

    segments: int
    """Pieces that run on one device each."""

    def run(self) -> None:
        """One inference on the model's inputs."""
        ...

    def outputs(self) -> list[np.ndarray]:
        """Of the last run, copied."""
        ...

    def trace(self) -> dict[str, np.ndarray] | None:
        """When the pieces of the last run began and ended, in seconds since it began; None where that is not known."""
        ...

    def close(self) -> None:
        """End its threads, if it has any."""
        ...


def segments_of(graph: ComputationGraph, placement: np.ndarray, nodes: np.ndarray, early: bool = False) -> np.ndarray:
    """Convex pieces on one device each (`envs.simulators.pieces.kernel.cut`), int64[V]; -1 outside ``nodes`` bool[V]."""
    return cut(np.asarray(placement, dtype=np.int16), nodes, graph_arrays(graph)[1], early)[0]  # type: ignore[no-any-return]


class _Whole:
    """One compiled model and its inputs, set once."""

    def __init__(self, compiled: Any, inputs: Sequence[np.ndarray], segments: int) -> None:
        self.compiled, self.segments = compiled, segments
        self.request = compiled.create_infer_request()
        for i, x in enumerate(inputs):
            self.request.set_input_tensor(i, import_openvino().Tensor(x))

    def run(self) -> None:
        """One inference; the toolkit passes it through its devices."""
        self.request.infer()

    def outputs(self) -> list[np.ndarray]:
        """Copies of the compiled model's outputs, in the model's order."""
        return [self.request.get_output_tensor(i).data.copy() for i in range(len(self.compiled.outputs))]

    def trace(self) -> None:
        """The toolkit does not tell when its pieces run."""

    def close(self) -> None:
        """Nothing to end: the toolkit's threads go with the compiled model."""


class Hetero(_Whole):
    """The whole placement in one compiled model: ``HETERO:…`` with an affinity on every operation. Its pieces run in turn."""

    def __init__(self, prepared: PreparedModel, placement: np.ndarray, devices: Sequence[str]) -> None:
        used = [devices[d] for d in np.unique(placement)]
        target = used[0] if len(used) == 1 else f"HETERO:{','.join(used)}"
        compiled = prepared.core.compile_model(_with_affinities(prepared, placement, devices), target)
        super().__init__(compiled, prepared.inputs, int(segments_of(prepared.graph, placement, prepared.runs).max()) + 1)


def _with_affinities(prepared: PreparedModel, placement: np.ndarray, devices: Sequence[str]) -> Any:
    """A folded copy of the model whose operations each name their device."""
    model = _folded(prepared)
    where = dict(zip(prepared.layers, placement.tolist(), strict=True))
    for op in reversed(model.get_ordered_ops()):
        d = where.get(op.get_friendly_name())
        if op.get_type_name() == "Constant" or d is None:  # folded just now, or not: with what reads it
            readers = [t.get_node().get_friendly_name() for out in op.outputs() for t in out.get_target_inputs()]
            d = next((where[name] for name in readers if name in where), d or 0)
            where[op.get_friendly_name()] = d
        op.get_rt_info()["affinity"] = devices[d]
    return model


class Choice(_Whole):
    """The toolkit's own choice: no affinities, ``AUTO`` or ``HETERO`` over devices in order of preference."""

    def __init__(self, prepared: PreparedModel, target: str) -> None:
        # AUTO would otherwise answer from the CPU until the chosen device has compiled the model
        settings = {"ENABLE_STARTUP_FALLBACK": False} if target.startswith("AUTO") else {}
        super().__init__(prepared.core.compile_model(prepared.model.clone(), target, settings), prepared.inputs, 1)


class Serial:
    """Every piece compiled by itself for its device; pieces run one after another. Tensors pass between them without a copy.

    Unlike with `Hetero`, each piece keeps to its device's properties: HETERO forgets the limit of threads of a model that it splits.
    """

    early = False
    """See `segments_of`."""

    def __init__(self, prepared: PreparedModel, placement: np.ndarray, devices: Sequence[str]) -> None:
        pieces = _cut(prepared, placement, self.early)
        pieces.fit([str(prepared.core.get_property(d, "INFERENCE_PRECISION_HINT").get_type_name()) for d in devices])
        self.segments = len(pieces.models)
        self.device, self.piece = pieces.device, pieces.piece
        self.times = np.zeros((2, self.segments))
        """Begin and end of each piece in the last run, by the clock."""
        self.began = 0.0
        self.requests = [
            prepared.core.compile_model(model, devices[d]).create_infer_request()
            for model, d in zip(pieces.models, pieces.device, strict=True)
        ]
        tensor = import_openvino().Tensor
        for k, port, source in pieces.feeds:
            if isinstance(source, int):
                self.requests[k].set_input_tensor(port, tensor(prepared.inputs[source]))
            else:
                self.requests[k].set_input_tensor(port, self.requests[source[0]].get_output_tensor(source[1]))
        self.after, self.results = pieces.after, pieces.results
        self.entries = [feed for feed in pieces.feeds if isinstance(feed[2], int)]
        """Piece, port and number of the model's input that goes there."""

    def feed(self, inputs: Sequence[np.ndarray]) -> None:
        """Other inputs of the model, in order, from the next run on."""
        for k, port, number in self.entries:
            self.requests[k].get_input_tensor(port).data[...] = inputs[number]

    def run(self) -> None:
        """One inference, piece after piece in topological order."""
        self.began = time.perf_counter()
        for k in range(self.segments):
            self._infer(k)

    def _infer(self, k: int) -> None:
        begin = time.perf_counter()
        self.requests[k].infer()
        self.times[:, k] = begin, time.perf_counter()

    def trace(self) -> dict[str, np.ndarray]:
        """``piece`` of every operation int64[V], -1 for what is not computed; ``begin`` and ``end`` float64[pieces], seconds."""
        begin, end = self.times - self.began
        return {"piece": self.piece, "begin": begin, "end": end}

    def outputs(self) -> list[np.ndarray]:
        """Copies of the model's outputs, in its order, from the pieces that compute them."""
        known = [r if isinstance(r, np.ndarray) else self.requests[r[0]].get_output_tensor(r[1]).data for r in self.results]
        return [x.copy() for x in known]

    def close(self) -> None:
        """No threads of its own to end."""


class Overlapped(Serial):
    """As `Serial`, but a thread for each device runs pieces as soon as their inputs are there, in topological order."""

    early = True

    def __init__(self, prepared: PreparedModel, placement: np.ndarray, devices: Sequence[str]) -> None:
        super().__init__(prepared, placement, devices)
        self.wakes = [sorted(a) for a in self.after]
        self.needs = [sum(k in a for a in self.after) for k in range(self.segments)]
        self._waiting: list[int] = []
        self._lock, self._done = threading.Lock(), threading.Event()
        self._failure: BaseException | None = None
        self._queues: dict[int, queue.PriorityQueue[int]] = {d: queue.PriorityQueue() for d in set(self.device)}
        self._threads = [threading.Thread(target=self._work, args=(q,), daemon=True) for q in self._queues.values()]
        for thread in self._threads:
            thread.start()

    def run(self) -> None:
        """One inference; raises what a piece raised."""
        self._waiting, self._left, self._failure = list(self.needs), self.segments, None
        self._done.clear()
        self.began = time.perf_counter()
        if not self.segments:
            return
        for k in [k for k, n in enumerate(self.needs) if n == 0]:
            self._queues[self.device[k]].put(k)
        self._done.wait()
        if self._failure is not None:
            raise self._failure

    def _work(self, mine: queue.PriorityQueue[int]) -> None:
        while (k := mine.get()) < self.segments:
            try:
                self._infer(k)
            except BaseException as error:  # reported by `run`, in its thread
                self._failure = error
                self._done.set()
                continue
            with self._lock:
                self._left -= 1
                ready = []
                for after in self.wakes[k]:
                    self._waiting[after] -= 1
                    if self._waiting[after] == 0:
                        ready.append(after)
                if self._left == 0:
                    self._done.set()
            for after in ready:
                self._queues[self.device[after]].put(after)

    def close(self) -> None:
        """End the threads that run the pieces."""
        for q in self._queues.values():
            q.put(self.segments)
        for thread in self._threads:
            thread.join()


class _Entries:
    """The model's operations cut apart: what enters and leaves each piece.

    Args:
        model: whose inputs of pieces are replaced by parameters; it cannot be run afterwards.
        piece: the piece of each operation by its name.
    """

    def __init__(self, model: Any, piece: Mapping[str, int], count: int) -> None:
        self.model, self.piece = model, piece
        self.kinds = {op.get_name(): op.get_type_name() for op in model.get_ordered_ops()}
        self.inputs = {p.get_name(): i for i, p in enumerate(model.get_parameters())}
        self.parameters: list[list[Any]] = [[] for _ in range(count)]
        self.outputs: list[dict[_Port, Any]] = [{} for _ in range(count)]
        self.feeds: list[tuple[int, int, Any]] = []
        """Piece and port that an input of the model feeds, and which input."""
        self.wanted: list[tuple[int, int, _Port]] = []
        """Piece and port that another piece feeds, and with which result."""
        self.after: list[set[int]] = [set() for _ in range(count)]

    def separate(self) -> None:
        """Give every piece parameters for what it reads of the model's inputs and of other pieces, one for each."""
        entries: dict[tuple[int, _Port], Any] = {}
        for op in self.model.get_ordered_ops():
            if self.kinds[op.get_name()] in _NOT_COMPUTED:
                continue
            k = self.piece[op.get_name()]
            for port in op.inputs():
                source = port.get_source_output()
                key = _port_of(source)
                if self.kinds[key[0]] == "Constant" or (self.kinds[key[0]] != "Parameter" and self.piece[key[0]] == k):
                    continue
                if (k, key) not in entries:
                    entries[(k, key)] = self._enter(k, key, source)
                port.replace_source_output(entries[(k, key)].output(0))

    def _enter(self, k: int, key: _Port, source: Any) -> Any:
        """A new parameter of piece ``k`` for ``source``, which its own piece then gives out."""
        from openvino import opset13

        if key[0] in self.inputs:
            self.feeds.append((k, len(self.parameters[k]), self.inputs[key[0]]))
        else:
            self.wanted.append((k, len(self.parameters[k]), key))
            self.outputs[self.piece[key[0]]].setdefault(key, source)
            self.after[self.piece[key[0]]].add(k)
        self.parameters[k].append(opset13.parameter(source.get_partial_shape(), source.get_element_type()))
        return self.parameters[k][-1]

    def results(self, given: Sequence[np.ndarray]) -> list[Any]:
        """The model's results: which operation's output, given out by its piece, or the array where nothing computes it."""
        final: list[Any] = []
        for result in self.model.get_results():
            source = result.input(0).get_source_output()
            key = _port_of(source)
            if self.kinds[key[0]] in _NOT_COMPUTED:
                final.append(np.array(given[self.inputs[key[0]]] if key[0] in self.inputs else source.get_node().data))
                continue
            self.outputs[self.piece[key[0]]].setdefault(key, source)
            final.append(key)
        return final


_Port = tuple[str, int]
"""An operation's name and which of its outputs."""
_NOT_COMPUTED = ("Constant", "Parameter", "Result")


def _port_of(source: Any) -> _Port:
    return source.get_node().get_name(), source.get_index()


def _cut(prepared: PreparedModel, placement: np.ndarray, early: bool) -> _Cut:
    """The model cut into the pieces of `segments_of` for ``placement`` int16[V]."""
    openvino = import_openvino()
    from openvino import opset13

    model = _folded(prepared)
    where = {name: i for i, name in enumerate(prepared.layers)}
    node = {op.get_name(): where.get(op.get_friendly_name(), -1) for op in model.get_ordered_ops()}
    runs = np.zeros(len(placement), dtype=bool)
    runs[[v for op in model.get_ordered_ops() if op.get_type_name() not in _NOT_COMPUTED and (v := node[op.get_name()]) >= 0]] = True
    piece = segments_of(prepared.graph, placement, runs, early)
    count = int(piece.max()) + 1
    entries = _Entries(model, {name: int(piece[v]) for name, v in node.items()}, count)
    entries.separate()
    final = entries.results(prepared.inputs)
    home = {key: (k, i) for k, made in enumerate(entries.outputs) for i, key in enumerate(made)}
    models = [
        openvino.Model([opset13.result(source) for source in made.values()], given, f"piece{k}")
        for k, (made, given) in enumerate(zip(entries.outputs, entries.parameters, strict=True))
    ]
    feeds = entries.feeds + [(k, port, home[key]) for k, port, key in entries.wanted]
    results = [key if isinstance(key, np.ndarray) else home[key] for key in final]
    device = [int(placement[np.flatnonzero(piece == k)[0]]) for k in range(count)]
    return _Cut(models, feeds, results, entries.after, device, piece)


@dataclass
class _Cut:
    """A model cut into one model a piece, and what feeds what."""

    models: list[Any]
    feeds: list[tuple[int, int, Any]]
    """Piece, port, and what feeds it: the number of an input of the model, or ``(piece, output)``."""
    results: list[Any]
    """The model's results: ``(piece, output)``, or the array where nothing computes it."""
    after: list[set[int]]
    """Pieces that read what each piece computes."""
    device: list[int]
    """Of each piece."""
    piece: np.ndarray
    """Of each operation, int64[V]; -1 for what is not computed."""

    def fit(self, precisions: Sequence[str]) -> None:
        """Let pieces hand on images with channels last, in half precision where all that compute and read them do so in it.

        That is close to how plugins keep them; a plain float32 tensor would be rearranged twice.

        Args:
            precisions: of each device, as ``f32``, ``bf16`` or ``f16``.
        """
        import_openvino()
        from openvino import Layout, Type
        from openvino.preprocess import PrePostProcessor

        readers: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for k, port, source in self.feeds:
            if not isinstance(source, int):
                readers.setdefault(source, []).append((k, port))
        steps = [PrePostProcessor(model) for model in self.models]
        kept = [r for r in self.results if not isinstance(r, np.ndarray)]
        for (k, port), read in readers.items():
            output = self.models[k].outputs[port]
            if (k, port) in kept or output.get_element_type() != Type.f32:
                continue
            used = {precisions[self.device[j]] for j in (k, *(j for j, _ in read))}
            half = {"bf16": Type.bf16, "f16": Type.f16}.get(used.pop()) if len(used) == 1 else None
            rank = output.get_partial_shape().rank
            for end in (steps[k].output(port), *(steps[j].input(i) for j, i in read)):
                if half is not None:
                    end.tensor().set_element_type(half)
                if rank.is_static and rank.get_length() == 4:
                    end.tensor().set_layout(Layout("NHWC"))
                    end.model().set_layout(Layout("NCHW"))
        self.models = [step.build() for step in steps]
