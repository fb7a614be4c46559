"""Checkpoints: nested state to one safetensors file and back. What is in a state is the methods' and the runner's affair.

Arrays and tensors go into the file's tensors, all else as JSON into its metadata, so a checkpoint is one file that is
replaced atomically and holds nothing that could run.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from envs.problem.errors import InputError
from orchestration.specs.files import safe_name, write_atomic

FORMAT = "2"
"""Version 1 had no checksum; it is still read, unchecked."""
_FORMAT = re.compile(rb'"format":"([^"]*)"')
_SUM, _BLANK = b'"sha256":"', b"0" * 64
"""The checksum stands behind the first of these in the file; it is that of the file with zeros in its place. Inside the text of
a state the quotes would be escaped."""


def save_state(path: Path, state: Mapping[str, Any], *, keep_previous: bool = False) -> None:
    """Write nested dicts, lists and tuples of JSON values, NumPy arrays and torch tensors to ``path``, atomically.

    Args:
        keep_previous: leave what was there before beside it, as `previous` calls it.

    Raises:
        InputError: naming the place in the state, for a value of another type.
    """
    safe_name(path.name)
    tensors: dict[str, np.ndarray] = {}
    tree = _pack(state, "state", tensors)
    data = save(tensors, metadata={"format": FORMAT, "state": json.dumps(tree), "sha256": _BLANK.decode()})
    start = data.index(_SUM + _BLANK) + len(_SUM)
    signed = data[:start] + hashlib.sha256(data).hexdigest().encode() + data[start + len(_BLANK) :]
    write_atomic(path, signed, previous(path) if keep_previous else None)


def previous(path: Path) -> Path:
    """Where the state before the last one lies: ``checkpoint.previous.safetensors``."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def damaged(path: Path) -> Path:
    """Where a damaged file is set aside: ``checkpoint.safetensors.damaged``."""
    return path.with_name(f"{path.name}.damaged")


def load_state(path: Path) -> dict[str, Any]:
    """What `save_state` wrote; tensors come back on the CPU. Nothing of it is interpreted before its checksum is right.

    Raises:
        InputError: if there is no such file, or it is damaged or of another version.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no checkpoint {path}") from None
    except OSError as error:
        raise Damaged(f"checkpoint {path} cannot be read ({error.strerror})") from error
    return state_of(data, path)


def state_of(data: bytes, path: Path) -> dict[str, Any]:
    """What is in the bytes of a state's file, which messages call ``path``; raises as `load_state`."""
    _check_sum(path, data)
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return _unpack(json.loads(header["__metadata__"]["state"]), load(data))
    except (SafetensorError, KeyError, ValueError, TypeError) as error:  # a file of before there were checksums
        raise Damaged(f"checkpoint {path} is damaged ({error})") from error


def load_latest(path: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """The state at ``path``, or the one before if that is damaged, and notes about what was damaged.

    A damaged file is set aside (`damaged`), so that it is met once. The state is None if there is none that is sound.
    """
    notes: list[str] = []
    for one in (path, previous(path)):
        try:
            return load_state(one), notes
        except Damaged as error:
            one.replace(damaged(one))
            notes.append(f"{error}; set aside as {damaged(one).name}")
        except InputError as error:
            if one.exists():  # of another version
                notes.append(str(error))
    return None, notes


class Damaged(InputError):
    """A file is not what was written."""


def _check_sum(path: Path, data: bytes) -> None:
    """Raise `Damaged` unless ``data`` is what `save_state` wrote."""
    start = data.find(_SUM) + len(_SUM)
    if start >= len(_SUM):
        blank = data[:start] + _BLANK + data[start + len(_BLANK) :]
        if hashlib.sha256(blank).hexdigest().encode() != data[start : start + len(_BLANK)]:
            raise Damaged(f"checkpoint {path} is damaged: its checksum does not fit")
        if (found := _FORMAT.search(data)) is None or found[1].decode() != FORMAT:
            raise InputError(f"checkpoint {path} has format {found and found[1].decode()!r}; this version reads {FORMAT!r}")
    elif (found := _FORMAT.search(data)) is None or found[1] != b"1":
        raise Damaged(f"checkpoint {path} is damaged: it has no checksum")


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


def _unpack(value: Any, tensors: Mapping[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_unpack(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        array = tensors[value["$array"]]
        if value["$kind"] == "numpy":
            return array
        if value["$kind"] == "scalar":
            return array[()]
        import torch

        tensor = torch.from_numpy(array)
        return tensor.view(torch.bfloat16) if value["$kind"] == "bfloat16" else tensor
    if "$tuple" in value:
        return tuple(_unpack(v, tensors) for v in value["$tuple"])
    if "$items" in value:
        return {_unpack(k, tensors): _unpack(v, tensors) for k, v in value["$items"]}
    return {k: _unpack(v, tensors) for k, v in value.items()}


def untouched(folder: Path, pattern: str, overwrite: bool) -> None:
    """InputError if the folder holds files of that pattern already, unless they may be overwritten."""
    there = sorted(folder.glob(pattern)) if folder.is_dir() and not overwrite else []
    if there:
        raise InputError(f"{there[0]} is there already; name another --output, or give --overwrite to lose it")


def writable_folder(folder: Path) -> None:
    """Makes the folder; InputError if that cannot be, or nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"folder {str(folder)!r} cannot be written to ({reason})", "name another by --output") from None
