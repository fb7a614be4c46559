"""Placements in the form that their runtime takes: a folder that runs without Placewright's search, and a short script that shows how."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from envs.graphs import capture, openvino_capture
from envs.graphs.exported.device_map import described, device_map
from envs.graphs.exported.graph import PlaceableProgram
from envs.graphs.exported.sources import load_program, save_program
from envs.hosts.engine.placed import FORMAT
from envs.problem.errors import InputError

MAP = "device_map.json"
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


_OPENVINO_SCRIPT = '''"""Runs the placed model once on random inputs (or those of an .npz file) and prints the shapes of its outputs."""
import sys
from pathlib import Path
import numpy as np
from placewright.runtime import load
placed = load(Path(__file__).parent)
given = dict(np.load(sys.argv[1])) if len(sys.argv) > 1 else {}
inputs = [given.get(name, np.ones(shape, dtype=kind)) for name, shape, kind in placed.inputs]
outputs = placed(*inputs)
np.savez(sys.argv[2], *outputs) if len(sys.argv) > 2 else print([x.shape for x in outputs])
'''
_HETERO_SCRIPT = '''"""The same placement by OpenVINO's HETERO alone, which runs its pieces in turn and forgets limits of threads."""
import json
import sys
from pathlib import Path
import numpy as np
import openvino as ov
here = Path(__file__).parent
about = json.loads((here / "placed.json").read_text())
core, model = ov.Core(), ov.Core().read_model(here / "model.xml")
if about["input_shapes"]:
    model.reshape(about["input_shapes"])
names = {}
for name, given in about["devices"].items():  # several instances of the CPU plugin have names of their own
    names[name] = f"CPU_{name}" if given["device"] == "CPU" else given["device"]
    if given["device"] == "CPU":
        core.register_plugin(str(Path(ov.__file__).parent / "libs" / "libopenvino_intel_cpu_plugin.so"), names[name])
        core.set_property(names[name], {"INFERENCE_PRECISION_HINT": given["precision"]})
for op in model.get_ordered_ops():
    op.get_rt_info()["affinity"] = names[about["placement"].get(op.get_friendly_name(), next(iter(names)))]
compiled = core.compile_model(model, "HETERO:" + ",".join(names.values()))
given = dict(np.load(sys.argv[1])) if len(sys.argv) > 1 else {}
made = [np.ones(tuple(p.shape), dtype=p.get_element_type().to_dtype()) for p in compiled.inputs]
found = compiled([given.get(p.get_friendly_name(), x) for p, x in zip(model.get_parameters(), made, strict=True)])
outputs = [found[p] for p in compiled.outputs]
np.savez(sys.argv[2], *outputs) if len(sys.argv) > 2 else print([x.shape for x in outputs])
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
    if runtime is not None and runtime != own and (runtime, own) != ("accelerate", "torch"):
        raise InputError(
            f"{str(path)!r} places a model on devices of {own}, which {runtime} cannot express; place it with --on for {runtime}"
        )
    placement = about["placement"]
    if placement is None:
        raise InputError(
            f"{about['chosen']!r} was faster than every placement, so there is nothing to export; let {own} run the model itself"
        )
    if to.exists() and any(to.iterdir()) and not any((to / name).is_file() for name in ("placed.json", MAP)):
        raise InputError(f"--to {str(to)!r} holds other files; name a new folder")
    write = {"torch": _torch, "openvino": _openvino, "accelerate": _accelerate}[runtime or own]
    return write(about, to)


def _program(about: dict[str, Any]) -> tuple[Any, PlaceableProgram]:
    """The program that was placed, and what its nodes are."""
    program, _ = load_program(about["source"], about["input_shapes"], about["options"])
    placeable = PlaceableProgram.of(program, about["name"])
    if set(placeable.graph.names) != set(about["placement"]):
        raise InputError(f"{about['source']!r} is not the model any more that was placed; place it again")
    return program, placeable


def _accelerate(about: dict[str, Any], to: Path) -> list[tuple[Path, str]]:
    found = device_map(_program(about)[1], about["placement"])
    to.mkdir(parents=True, exist_ok=True)
    (to / MAP).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return [(to / MAP, f"{described(found)}; accelerate.dispatch_model(model, device_map=json.load(open({str(to / MAP)!r})))")]


def _torch(about: dict[str, Any], to: Path) -> list[tuple[Path, str]]:
    import torch

    source, shapes = about["source"], about["input_shapes"]
    program, _ = _program(about)
    to.mkdir(parents=True, exist_ok=True)
    if source.endswith(".pt2") and not shapes:
        shutil.copyfile(source, to / "program.pt2")
    else:
        save_program(program, to / "program.pt2")
    kept = {key: about[key] for key in ("format", "runtime", "name", "devices", "strategy", "placement", "chosen", "reason", "machine")}
    (to / "placed.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    torch.save(program.example_inputs, to / "inputs.pt")
    (to / "run.py").write_text(_TORCH_SCRIPT, encoding="utf-8")
    return [
        (to, f"placewright.runtime.load({str(to)!r}) gives a callable"),
        (to / "run.py", "runs it once: python run.py [outputs.pt]"),
    ]


def _openvino(about: dict[str, Any], to: Path) -> list[tuple[Path, str]]:
    source = capture.resolve(about["source"], None, about["input_shapes"], about["options"])
    to.mkdir(parents=True, exist_ok=True)
    with capture.written_ir(source) as written:
        graph = openvino_capture.graph_of_ir(written, source.shapes, about["name"])
        if set(graph.names) != set(about["placement"]):
            raise InputError(f"{about['source']!r} is not the model any more that was placed; place it again")
        for suffix in (".xml", ".bin"):
            shutil.copyfile(written.with_suffix(suffix), to / f"model{suffix}")
    kept = {key: about[key] for key in ("format", "runtime", "name", "devices", "placement", "chosen", "reason", "machine")}
    shapes = source.shapes if not isinstance(source.shapes, list) else [list(s) for s in source.shapes]
    (to / "placed.json").write_text(json.dumps({**kept, "input_shapes": shapes}, indent=1) + "\n", encoding="utf-8")
    (to / "run.py").write_text(_OPENVINO_SCRIPT, encoding="utf-8")
    (to / "hetero.py").write_text(_HETERO_SCRIPT, encoding="utf-8")
    return [
        (to, f"placewright.runtime.load({str(to)!r}) gives a callable"),
        (to / "run.py", "runs it once: python run.py [inputs.npz outputs.npz]"),
        (to / "hetero.py", "runs the same affinities by OpenVINO's HETERO alone"),
    ]
