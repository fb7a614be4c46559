"""Torch modules and the named models to OpenVINO models. Architectures are in ``models/``; graphs are made in openvino_capture.

The trace is converted with dynamic shapes (the structure the published counts refer to); concrete shapes come later.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from envs.graphs.openvino_capture import convert, first_line
from envs.problem.errors import InputError, nearest

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class NamedModel:
    """A model definition, the options of its inputs and, if any, the arguments of its definition."""

    module: str
    definition: str
    inputs: tuple[tuple[str, str, tuple[int | str, ...]], ...]
    """``(name, torch dtype, shape)``; words in a shape are options."""
    sizes: Mapping[str, int]
    """Options that are sizes, with their defaults."""
    arguments: Mapping[str, tuple[str, ...]]
    """Options of the definition: the first choice is the default."""


_IMAGE = ("x", "float32", ("batch", 3, "size", "size"))
NAMED: dict[str, NamedModel] = {
    "resnet-50": NamedModel("resnet50", "ResNet50", (_IMAGE,), {"batch": 1, "size": 224}, {}),
    "inception-v3": NamedModel("inception_v3", "InceptionV3", (_IMAGE,), {"batch": 1, "size": 299}, {}),
    "bert-base": NamedModel(
        "bert",
        "BertBase",
        (("input_ids", "int64", ("batch", "length")), ("attention_mask", "int64", ("batch", "length"))),
        {"batch": 1, "length": 128},
        {"attention": ("sdpa", "eager")},
    ),
}
"""HSDAG's three benchmarks. Defaults are one sample of the size that the model was published for; 128 tokens for BERT."""


def resolve_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a named model, defaults filled in; InputError for unknown names and impossible values."""
    model = NAMED[name]
    known = {**model.sizes, **{key: choices[0] for key, choices in model.arguments.items()}}
    for key, value in options.items():
        if key not in known:
            raise InputError(f"model {name!r} has no option {key!r}{nearest(key, known)}")
        if key in model.sizes and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise InputError(f"option {key} of model {name!r} is {value!r}; it must be a positive whole number")
        if key in model.arguments and value not in model.arguments[key]:
            raise InputError(f"option {key} of model {name!r} is {value!r}; it must be one of {', '.join(model.arguments[key])}")
    return {**known, **options}


def named_input_shapes(name: str, options: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """Concrete shapes of a named model's inputs, in order, for resolved options."""
    return [tuple(options[n] if isinstance(n, str) else n for n in shape) for _, _, shape in NAMED[name].inputs]


def build_named(name: str, options: Mapping[str, Any]) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A named model with seeded random weights, and example inputs, for resolved options."""
    import torch

    from envs.graphs.models.seeded import seeded

    model = NAMED[name]
    definition = getattr(import_module(f"envs.graphs.models.{model.module}"), model.definition)
    arguments = {key: options[key] for key in model.arguments}
    shapes = named_input_shapes(name, options)
    # Ones are valid as pixels, tokens and masks alike.
    example = tuple(torch.ones(shape, dtype=getattr(torch, kind)) for (_, kind, _), shape in zip(model.inputs, shapes, strict=True))
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=FutureWarning)
            return seeded(lambda: definition(**arguments)), example
    finally:
        logger.setLevel(level)


def convert_named(name: str, options: Mapping[str, Any]) -> Any:
    """The ``openvino.Model`` of a named model with seeded random weights, for resolved options."""
    module, example = build_named(name, options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=FutureWarning)
        return convert_module(module, example)


def convert_module(module: torch.nn.Module, example_inputs: Sequence[torch.Tensor] | torch.Tensor) -> Any:
    """The ``openvino.Model`` of a torch module, traced with example inputs in evaluation mode.

    Raises:
        InputError: if the module cannot run on the inputs or OpenVINO cannot convert it.
    """
    import torch

    example = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    training = module.training
    module.eval()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", category=torch.jit.TracerWarning)
            warnings.simplefilter("ignore", category=DeprecationWarning)  # OpenVINO traces with torch.jit
            module(*example)  # first by itself: an error in the module reads better than one in its trace
            return convert(module, example_input=example[0] if len(example) == 1 else example)
    except Exception as error:  # whatever the user's module raises
        raise InputError(f"torch module {type(module).__name__} cannot be captured: {first_line(error)}") from None
    finally:
        module.train(training)
