"""Running what ``placewright export`` wrote: ``placewright.runtime.load(FOLDER)`` gives a callable like the module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from envs.problem.errors import InputError

if TYPE_CHECKING:
    from envs.hosts.engine.placed import PlacedModule
    from envs.hosts.openvino.placed import PlacedModel


def load(folder: str | Path) -> PlacedModule | PlacedModel:
    """The callable of a folder that ``placewright export`` wrote.

    For torch it takes the module's arguments and returns what the module does; for OpenVINO it takes the model's inputs in order, as
    arrays, and returns a list of its outputs.

    Raises:
        InputError: if the folder is none, or names devices that this machine does not have.
    """
    folder = Path(folder)
    try:
        about = json.loads((folder / "placed.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{str(folder)!r} is no folder that placewright export wrote: {error}") from None
    if about.get("format") != "placewright-placed/1" or about.get("runtime") not in ("torch", "openvino"):
        raise InputError(f"{str(folder)!r} was written by another version of placewright; export the placement again")
    if about["runtime"] == "torch":
        from envs.hosts.engine import placed as torch_placed

        return torch_placed.load(folder, about)
    from envs.hosts.openvino import placed as openvino_placed

    return openvino_placed.load(folder, about)
