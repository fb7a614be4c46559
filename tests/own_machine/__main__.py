"""``python -m tests.own_machine``: nine models placed on this machine's cores, measured in turn beside the runtime's own threads.

Writes a record for each model below ``--output``, and a table of all that are there. Run it on a machine that does nothing else.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from envs.hosts.discovery import ranges
from envs.problem.errors import InputError
from orchestration.commands.machine import report
from orchestration.commands.machine.candidates import ratio
from orchestration.commands.machine.parts import Parts
from orchestration.commands.machine.search import Settings, find
from orchestration.commands.machine.targets import make_target

MODELS = {
    "resnet-50": ("resnet-50", ()),
    "inception-v3": ("inception-v3", ()),
    "bert-base": ("bert-base", ()),
    "lstm": ("lstm", ("batch=1",)),
    "rnnlm": ("rnnlm-4", ("batch=8", "length=32", "hidden=512", "vocabulary=8000")),
    "gnmt": ("gnmt-4", ("batch=16", "length=20", "hidden=512", "vocabulary=8000")),
    "amoebanet": ("amoebanet", ("batch=1", "filters=64")),
    "experts": ("experts", ()),
    "own": ("tests.own_machine.module:build", ()),
}
"""Sources, and sizes with which one run takes some tens of milliseconds on two cores."""


def measure(name: str, on: str, instances: int, settings: Settings) -> dict:
    """Place one model; what came of it, and the gains over the runtime's own threads and over the faster core in the same rounds."""
    source, sizes = MODELS.get(name, (name, ()))
    target = make_target(source, on, options=sizes, instances=instances)
    try:
        with Parts() as tell:
            found = find(target, settings, tell)
        about = report.record(found, target)
    finally:
        target.close()
    own = next(c for c in found.candidates if c.kind == "own")
    best = min((c for c in found.candidates if c.samples and c.kind != "own"), key=lambda c: c.median)
    about["gain"] = dict(zip(("ratio", "low", "high"), ratio(best, own), strict=True)) if own.samples else None
    measured = [c for c in found.candidates if c.samples]
    core = min((c for c in measured if c.kind == "single" and "-" not in c.name), key=lambda c: c.median, default=None)
    placed = min((c for c in measured if c.kind == "placed"), key=lambda c: c.median, default=None)
    about["gain_of_dividing"] = dict(zip(("ratio", "low", "high"), ratio(placed, core), strict=True)) if placed and core else None
    about["best"], about["operations"], about["edges"] = best.name, found.problem.n_nodes, found.problem.graph.n_edges
    about["own"], about["seed"], about["settings"] = own.name, settings.seed, {"budget": settings.budget, "rounds": settings.rounds}
    return about


def table(folder: Path) -> str:
    """All records of a folder in Markdown, milliseconds."""
    lines = [
        "| model | operations | all threads | one core, the faster | best placement | chosen | simulated | gain over all threads "
        "| gain of dividing over one core |",
        "|---|--:|--:|--:|--:|---|--:|--:|--:|",
    ]
    order = list(MODELS)
    for path in sorted(folder.glob("*.json"), key=lambda p: (order.index(p.stem) if p.stem in order else len(order), p.stem)):
        name = path.stem
        about = json.loads(path.read_text(encoding="utf-8"))
        if "error" in about:
            lines.append(f"| {name} | {about['error']} |" + " |" * 7)
            continue
        by_name = {c["name"]: c for c in about["candidates"]}
        cores = [c for c in about["candidates"] if c["kind"] == "single" and "-" not in c["name"] and c["measured"]]
        best = by_name[about["best"]]
        shown = [_ms(by_name[about["own"]]), _ms(min(cores, key=lambda c: c["measured"])) if cores else "–", _ms(best)]
        simulated = f"{1e3 * best['simulated']:.2f}" if best["simulated"] else "–"
        gains = f"{_gain(about['gain'])} | {_gain(about['gain_of_dividing'])}"
        lines.append(f"| {name} | {about['operations']} | {' | '.join(shown)} | {about['chosen']} | {simulated} | {gains} |")
    return "\n".join(lines) + "\n"


def _ms(candidate: dict) -> str:
    low, high = candidate["interval"]
    return f"{1e3 * candidate['measured']:.2f} [{1e3 * low:.2f}, {1e3 * high:.2f}]"


def _gain(gain: dict | None) -> str:
    return f"{100 * (1 - gain['ratio']):+.1f} % [{100 * (1 - gain['high']):+.1f}, {100 * (1 - gain['low']):+.1f}]" if gain else "–"


def main() -> None:
    """Measure the models that are named, all by default; one that fails is said and leaves the others."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL", help=f"of {', '.join(MODELS)}; or a file")
    parser.add_argument("--on", default=",".join([*(f"cpu:{c}" for c in cores), f"cpu:{ranges(cores)}"]))
    parser.add_argument("--instances", type=int, default=1, help="of OpenVINO's CPU, with --on openvino")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--budget", type=int, default=2000)
    parser.add_argument("--corrections", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="calibrate anew")
    parser.add_argument("--output", type=Path, default=Path("own-machine"))
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=False, capture_output=True, text=True).stdout.strip()
    settings = Settings(budget=args.budget, rounds=args.rounds, corrections=args.corrections, fresh=args.fresh, seed=args.seed)
    for name in args.models:
        try:
            about = measure(name, args.on, args.instances, settings)
        except InputError as error:
            about = {"error": str(error)}
        path = args.output / f"{Path(name).stem}.json"
        path.write_text(json.dumps({**about, "commit": commit, "command": sys.argv[1:]}, indent=1) + "\n", encoding="utf-8")
        print(f"{path.stem}: {about.get('error') or about['reason']}", flush=True)
    print(table(args.output))


if __name__ == "__main__":
    main()
