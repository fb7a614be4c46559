"""Placements in the form that their runtime takes: a folder that runs without Placewright's search, and a short script that shows how."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from envs.hosts.engine.placed import FORMAT
from envs.problem.errors import InputError

RUNTIMES = ("torch", "openvino")
_TORCH_SCRIPT = '''"""Runs the placed program once on its example inputs and prints the shapes of its outputs."""
import sys
from pathlib import Path
import torch
from placewright.runtime import load
here = Path(__file__).parent
placed = load(here)
args, kwargs = torch.load(here / "inputs.pt", weights_only=True)
outputs = placed(*args, **kwargs)
torch.save(outputs, sys.argv[1]) if len(sys.argv) > 1 else print(torch.utils._pytree.tree_map(lambda x: getattr(x, "shape", x), outputs))
'''


def read(path: Path) -> dict[str, Any]:
    """What ``placewright place --on`` wrote.

    Raises:
        InputError: if it is another file.
    """
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} cannot be read: {error}") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise InputError(f"{str(path)!r} is no placement for a machine; make one with placewright place MODEL --on DEVICES")
    return about


def export(path: Path, to: Path, runtime: str | None = None) -> list[tuple[Path, str]]:
    """Write the placement of a file of ``place --on`` as a folder; returns its files and what they are.

    Raises:
        InputError: for another runtime than the placement's, a choice that is no placement, or a model that is gone or has changed.
    """
    about = read(path)
    own = about["runtime"]
    if runtime is not None and runtime != own:
        raise InputError(
            f"{str(path)!r} places a model on devices of {own}, which {runtime} cannot express; place it with --on for {runtime}"
        )
    placement = about["placement"]
    if placement is None:
        raise InputError(
            f"{about['chosen']!r} was faster than every placement, so there is nothing to export; let {own} run the model itself"
        )
    if to.exists() and any(to.iterdir()) and not (to / "placed.json").is_file():
        raise InputError(f"--to {str(to)!r} holds other files; name a new folder")
    to.mkdir(parents=True, exist_ok=True)
    return _torch(about, to)


def _torch(about: dict[str, Any], to: Path) -> list[tuple[Path, str]]:
    import torch

    from envs.graphs.exported.graph import PlaceableProgram
    from envs.graphs.exported.sources import load_program

    source, shapes = about["source"], about["input_shapes"]
    program, _ = load_program(source, shapes, about["options"])
    graph = PlaceableProgram.of(program, about["name"]).graph
    if set(graph.names) != set(about["placement"]):
        raise InputError(f"{source!r} is not the model any more that was placed; place it again")
    if source.endswith(".pt2") and not shapes:
        shutil.copyfile(source, to / "program.pt2")
    else:
        torch.export.save(program, to / "program.pt2")
    kept = {key: about[key] for key in ("format", "runtime", "name", "devices", "strategy", "placement", "chosen", "reason", "machine")}
    (to / "placed.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    torch.save(program.example_inputs, to / "inputs.pt")
    (to / "run.py").write_text(_TORCH_SCRIPT, encoding="utf-8")
    return [
        (to, f"placewright.runtime.load({str(to)!r}) gives a callable"),
        (to / "run.py", "runs it once: python run.py [outputs.pt]"),
    ]
