"""Networks known by name whose forward pass or training step is captured operation by operation (`envs.graphs.training_capture`).

The architectures are in `envs.graphs.models`; graphs are cached on disk by what decides them, as all captured graphs are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.graphs import store
from envs.problem.errors import InputError, nearest
from envs.problem.graph import ComputationGraph, digest

if TYPE_CHECKING:
    from torch import nn

OPTIMIZERS = ("adam", "momentum", "sgd")
COMMON: Mapping[str, Any] = {"training": False, "optimizer": "adam", "groups": 0, "host_inputs": False}
"""Options that every step has: gradients and update too, by which optimizer; ``groups`` and ``host_inputs`` of `capture_step`."""


@dataclass(frozen=True)
class StepModel:
    """A definition, what it is built with, and what it reads."""

    module: str
    definition: str
    inputs: tuple[tuple[str, tuple[int | str, ...]], ...]
    """``(torch dtype, shape)``; words in a shape are options."""
    sizes: Mapping[str, int]
    """Options that are whole numbers (batch, length, width …), by name with their defaults."""
    built: tuple[str, ...] = ()
    """Options that are arguments of the definition."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the definition."""


def _words(count: int) -> tuple[tuple[str, tuple[int | str, ...]], ...]:
    return (("int64", ("batch", "length")),) * count


def _images(**sizes: int) -> dict[str, Any]:
    return {"inputs": (("float32", ("batch", 3, "size", "size")), ("int64", ("batch",))), "sizes": {"batch": 32, "size": 224, **sizes}}


_WIDTHS = ("hidden", "vocabulary")
_RECURRENT = "training.recurrent"
STEPS: dict[str, StepModel] = {
    **{
        f"rnnlm-{n}": StepModel(
            _RECURRENT, "Rnnlm", _words(2), {"batch": 64, "length": 40, "hidden": 2048, "vocabulary": 10000}, _WIDTHS, {"depth": n}
        )
        for n in (2, 4, 8)
    },
    **{
        f"gnmt-{n}": StepModel(
            _RECURRENT, "Gnmt", _words(3), {"batch": 128, "length": 50, "hidden": 1024, "vocabulary": 36548}, _WIDTHS, {"depth": n}
        )
        for n in (2, 4, 8)
    },
    **{
        f"transformer-xl-{n}": StepModel(
            "training.transformer", "TransformerXl", _words(2),
            {"batch": 24, "length": 512, "segments": 4, "hidden": 1024, "vocabulary": 32000}, (*_WIDTHS, "segments"), {"depth": n},
        )
        for n in (2, 4, 8)
    },
    **{
        f"wavenet-{stacks}x{depth}": StepModel(
            "training.convolutional", "WaveNet", _words(2), {"batch": 8, "length": 8192, "residual": 128, "skipped": 512},
            ("residual", "skipped"), {"stacks": stacks, "depth": depth},
        )
        for stacks, depth in ((2, 18), (4, 36))
    },
    "amoebanet": StepModel("training.convolutional", "AmoebaNet", **_images(cells=6, filters=128), built=("cells", "filters")),
    "vgg-16": StepModel("training.convolutional", "Vgg16", **_images()),
    "seq2seq": StepModel(
        _RECURRENT, "SequenceToSequence", _words(3),
        {"batch": 128, "length": 50, "hidden": 1024, "vocabulary": 32000}, _WIDTHS, {"depth": 4},
    ),
    "transformer": StepModel(
        "training.transformer", "Transformer", _words(3),
        {"batch": 64, "length": 64, "hidden": 512, "vocabulary": 32000}, _WIDTHS, {"depth": 6},
    ),
    "inception-v3": StepModel("inception_v3", "InceptionV3", (("float32", ("batch", 3, "size", "size")),), {"batch": 1, "size": 299}),
    "bert-base": StepModel("bert", "BertBase", _words(2), {"batch": 1, "length": 128}, (), {"attention": "eager"}),
}  # fmt: skip
"""The benchmarks of GDP (Table 1) and Mars (section 4.1, Table 3).

GDP gives no sizes. Those of the recurrent networks are Mirhoseini et al.'s (2017, 2018: LSTMs of 2048 and 1024 units); of the others, of
the order of their authors' and such that one step keeps a GPU of 2016 busy for some tenths of a second. Mars's GNMT is
``{model: gnmt-4, batch: 256, hidden: 256}``, its BERT ``{model: bert-base, batch: 24, length: 384}``.
"""
SHARED = ("inception-v3", "bert-base")
"""Also known as inference graphs of OpenVINO; only with ``training: true`` is a step of them meant."""


def resolve_step(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a step, defaults filled in; InputError for unknown ones and impossible values."""
    model = STEPS[name]
    known = {**model.sizes, **COMMON}
    for key, value in options.items():
        if key not in known:
            raise InputError(f"model {name!r} has no option {key!r}{nearest(key, known)}")
        if isinstance(known[key], bool):
            if not isinstance(value, bool):
                raise InputError(f"option {key} of model {name!r} is {value!r}; it must be true or false")
        elif key == "optimizer":
            if value not in OPTIMIZERS:
                raise InputError(f"option optimizer of model {name!r} is {value!r}; it must be one of {', '.join(OPTIMIZERS)}")
        elif not isinstance(value, int) or isinstance(value, bool) or value < (key != "groups"):
            raise InputError(f"option {key} of model {name!r} is {value!r}; it must be a positive whole number")
    resolved = {**known, **options}
    if resolved["length"] % resolved["segments"] if "segments" in resolved else 0:
        raise InputError(f"model {name!r} has length {resolved['length']}, which {resolved['segments']} segments do not divide")
    return resolved


def capture_named_step(name: str, options: Mapping[str, Any], cache: bool = True) -> ComputationGraph:
    """The graph of a step of a named network for options that `resolve_step` gave."""
    key = graph_key(name, options)
    if cache and (found := store.load_graph(key)) is not None:
        return found
    graph = _build(name, options)
    if cache:
        store.save_graph(key, graph)
    return graph


def _build(name: str, options: Mapping[str, Any]) -> ComputationGraph:
    from envs.graphs.training_capture import TensorSpec, capture_step

    model = STEPS[name]
    definition = getattr(import_module(f"envs.graphs.models.{model.module}"), model.definition)
    arguments = {**model.fixed, **{key: options[key] for key in model.built}}
    inputs = [TensorSpec(tuple(options[n] if isinstance(n, str) else n for n in shape), kind) for kind, shape in model.inputs]
    return capture_step(
        lambda: definition(**arguments), inputs, training=options["training"], optimizer=options["optimizer"],
        groups=options["groups"], host_inputs=options["host_inputs"], layers=_layers, name=name,
    )  # fmt: skip


def build_step(name: str, options: Mapping[str, Any]) -> tuple[nn.Module, tuple[Any, ...]]:
    """The module of a step with seeded random weights and inputs to run its forward pass, for options that `resolve_step` gave."""
    import torch

    from envs.graphs.models.seeded import seeded

    model = STEPS[name]
    definition = getattr(import_module(f"envs.graphs.models.{model.module}"), model.definition)
    arguments = {**model.fixed, **{key: options[key] for key in model.built}}
    shapes = [(kind, tuple(options[n] if isinstance(n, str) else n for n in shape)) for kind, shape in model.inputs]
    inputs = tuple(torch.ones(shape, dtype=getattr(torch, kind)) for kind, shape in shapes)
    return seeded(lambda: definition(**arguments)), inputs


def _layers(module: nn.Module) -> list[list[nn.Module]]:
    """The modules of each layer of a network."""
    if hasattr(module, "layers") and callable(module.layers) and not hasattr(module.layers, "forward"):
        return module.layers()  # type: ignore[no-any-return]
    if hasattr(module, "classifier"):  # Inception
        blocks = [[block] for block in module.layers.children()]  # type: ignore[union-attr]
        return [*blocks[:-1], [*blocks[-1], module.classifier]]  # type: ignore[list-item]
    bert = module.model  # transformers' own
    rows = [[layer] for layer in bert.encoder.layer.children()]  # type: ignore[union-attr]
    return [[bert.embeddings, *rows[0]], *rows[1:-1], [*rows[-1], bert.pooler]]  # type: ignore[list-item, union-attr]


def graph_key(name: str, options: Mapping[str, Any]) -> str:
    """What a step's graph is stored under, for options that `resolve_step` gave."""
    here = Path(__file__).parent
    own = [here / f"{m}.py" for m in ("training_capture", "trace_origins", "grouping", "step_models")] + sorted(
        (here / "models").rglob("*.py")
    )
    content = digest(store.file_hash(*own), store.tool_versions("torch", "transformers"), name, tuple(sorted(options.items())))
    return f"step-{content[:40]}"
