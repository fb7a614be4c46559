"""``python -m tests.own_machine.branches``: what the search finds for Inception-V3 on two CPU instances, beside the placement made by hand.

By hand: the branches of the last eight modules dealt out to the two cores by their profiled times. Both are measured in turn with either
instance alone and HETERO's choice. Run it on a machine that does nothing else.
"""

import argparse
import json
from pathlib import Path

from methods.placing.regions import dealt
from orchestration.commands.machine.calibration import calibrated
from orchestration.commands.machine.candidates import Candidate, in_turn, ratio
from orchestration.commands.machine.parts import Parts
from orchestration.commands.machine.search import Settings, find
from orchestration.commands.machine.targets import make_target

MODULES = 8


def main() -> None:
    """Print every contender's median with its interval, and the found placement's ratio to each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="inception-v3")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--budget", type=int, default=2000)
    parser.add_argument("--corrections", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="calibrate anew")
    parser.add_argument("--output", type=Path, default=None, metavar="FILE")
    args = parser.parse_args()
    target = make_target(args.model, "openvino", instances=2)
    try:
        with Parts() as tell:
            settings = Settings(budget=args.budget, rounds=2, corrections=args.corrections, fresh=args.fresh, seed=args.seed)
            problem, _ = calibrated(target, fresh=args.fresh, tell=tell)
            hand = dealt(problem, (0, 1), 0)[:MODULES][-1]
            found = find(target, Settings(**{**vars(settings), "fresh": False}), tell)
        placed = min((c for c in found.candidates if c.kind == "placed"), key=lambda c: c.median)
        simple = [Candidate(c.name, c.kind, c.placement, None) for c in found.candidates if c.kind != "placed"]
        contenders = [
            Candidate(f"found: {placed.name}", "placed", placed.placement, placed.simulated),
            Candidate("by hand", "placed", hand, None),
        ]
        contenders += simple

        def sample(c: Candidate) -> float:
            return target.sample_own(problem, c.name) if c.placement is None else target.sample(problem, c.placement)

        in_turn(contenders, 1, sample, False, None)
        in_turn(contenders, args.rounds, sample, True, None)
    finally:
        target.close()
    rows = []
    for c in contenders:
        if c.why:
            print(f"{c.name}: {c.why}")
            continue
        (low, high), (least, first, last) = c.interval(), ratio(contenders[0], c)
        rows.append(
            {"name": c.name, "median": c.median, "interval": [low, high], "found_over_it": [least, first, last], "samples": c.samples}
        )
        print(
            f"{c.name:40} {1e3 * c.median:7.2f} ms [{1e3 * low:.2f}, {1e3 * high:.2f}]   found is {100 * (least - 1):+.1f} % "
            f"[{100 * (first - 1):+.1f}, {100 * (last - 1):+.1f}]", flush=True,
        )  # fmt: skip
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
