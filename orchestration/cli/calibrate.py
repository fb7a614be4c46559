"""``placewright calibrate``: measure a model's operations on this machine's devices, and what cuts cost."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from orchestration.commands.machine.options import add_target


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright calibrate`` and its options."""
    parser = subparsers.add_parser("calibrate", help="measure a model of yours on the devices of this machine")
    parser.add_argument(
        "model", metavar="MODEL", help="a .pt2, .onnx or OpenVINO .xml file, package.module:function, or a known model's name"
    )
    add_target(parser, required=True)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds of measurements (5)")
    parser.add_argument("--output", type=Path, default=None, metavar="FILE", help="the problem file to write (MODEL.problem.json)")
    parser.add_argument("--json", action="store_true", help="print for programs")


def run(args: argparse.Namespace) -> None:
    """Measure or find what was measured, write, print."""
    import json

    from envs.problem.errors import InputError
    from orchestration.commands.machine.calibration import calibrated, save_problem
    from orchestration.commands.machine.parts import Parts
    from orchestration.commands.machine.targets import make_target

    if args.rounds < 1:
        raise InputError(f"--rounds is {args.rounds}; at least 1 is needed")
    target = make_target(args.model, args.on, args.memory, args.input_shape, args.size, args.instances)
    try:
        with Parts() as tell:
            problem, about = calibrated(target, args.rounds, args.fresh, tell)
    finally:
        target.close()
    path = args.output or Path(f"{Path(target.graph.name).name}.problem.json")
    save_problem(problem, target, path)
    if args.json:
        print(json.dumps({"problem": str(path), **about}, indent=2))
        return
    for d, name in enumerate(problem.network.names):
        print(f"{name:12} {problem.compute_seconds[:, d].sum() * 1e3:10.2f} ms for all {problem.n_nodes} operations one after another")
    when = "kept from before (--fresh measures anew)" if about["kept"] else "measured now"
    print(f"a cut costs {about['cut_seconds'] * 1e6:.1f} us; {when}")
    print(f"{path}  problem for sweeps: graphs: {{{target.graph.name}: {{problem: {path}}}}}")
