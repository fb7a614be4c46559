"""Checkpoints: nested state to one safetensors file and back. What is in a state is the methods' and the runner's affair.

Arrays and tensors go into the file's tensors, all else as JSON into its metadata, so a checkpoint is one file that is
replaced atomically and holds nothing that could run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from envs.problem.errors import InputError
from orchestration.specs.files import safe_name, write_atomic

FORMAT = "1"


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write nested dicts, lists and tuples of JSON values, NumPy arrays and torch tensors to ``path``, atomically.

    Raises:
        InputError: naming the place in the state, for a value of another type.
    """
    safe_name(path.name)
    tensors: dict[str, np.ndarray] = {}
    tree = _pack(state, "state", tensors)
    metadata = {"format": FORMAT, "state": json.dumps(tree)}
    write_atomic(path, save(tensors, metadata=metadata))


def load_state(path: Path) -> dict[str, Any]:
    """What `save_state` wrote; tensors come back on the CPU.

    Raises:
        InputError: if there is no such file, or it is damaged or of another version.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise InputError(f"checkpoint {path} has format {metadata.get('format')!r}; this version reads {FORMAT!r}")
            tree = json.loads(metadata["state"])
            return _unpack(tree, file)
    except FileNotFoundError:
        raise InputError(f"there is no checkpoint {path}") from None
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"checkpoint {path} is damaged ({error}); delete it to start from the beginning") from error


def _pack(value: Any, where: str, tensors: dict[str, np.ndarray]) -> Any:
    """JSON for ``value``; arrays are moved to ``tensors`` and leave a reference. Special forms are dicts with one ``$`` key."""
    if value is None or (isinstance(value, str | bool | int | float) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, Mapping):
        if all(isinstance(k, str) and not k.startswith("$") for k in value):
            return {k: _pack(v, f"{where}.{k}", tensors) for k, v in value.items()}
        return {"$items": [[_pack(k, where, tensors), _pack(v, f"{where}.{k}", tensors)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        items = [_pack(v, f"{where}[{i}]", tensors) for i, v in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, np.ndarray | np.generic):
        return _pack_array(np.asarray(value), "numpy" if isinstance(value, np.ndarray) else "scalar", where, tensors)
    if type(value).__module__.split(".")[0] == "torch" and hasattr(value, "detach"):
        tensor = value.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":  # NumPy has no such type, so its bits travel as int16
            import torch

            return _pack_array(tensor.view(torch.int16).numpy(), "bfloat16", where, tensors)
        return _pack_array(tensor.numpy(), "torch", where, tensors)
    raise InputError(f"{where} is a {type(value).__name__}; a state holds JSON values, NumPy arrays and torch tensors only")


def _pack_array(array: np.ndarray, kind: str, where: str, tensors: dict[str, np.ndarray]) -> Any:
    if array.dtype.kind not in "biuf":
        raise InputError(f"{where} is an array of {array.dtype}; a state holds arrays of numbers and booleans only")
    name = str(len(tensors))
    tensors[name] = np.asarray(array.astype(array.dtype.newbyteorder("<"), copy=False), order="C")
    return {"$array": name, "$kind": kind}


def _unpack(value: Any, file: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(v, file) for v in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        array = file.get_tensor(value["$array"])
        if value["$kind"] == "numpy":
            return array
        if value["$kind"] == "scalar":
            return array[()]
        import torch

        tensor = torch.from_numpy(array)
        return tensor.view(torch.bfloat16) if value["$kind"] == "bfloat16" else tensor
    if "$tuple" in value:
        return tuple(_unpack(v, file) for v in value["$tuple"])
    if "$items" in value:
        return {_unpack(k, file): _unpack(v, file) for k, v in value["$items"]}
    return {k: _unpack(v, file) for k, v in value.items()}
