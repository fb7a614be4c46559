"""What is checked on machines of their own. A check is a function of a `Lab` that gives a sentence, and raises where it does not hold."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from orchestration.commands.status import HOSTS
from orchestration.folder.ledger import entries
from orchestration.specs.layout import CHECKPOINT, trial_folder
from orchestration.specs.state_files import load_state
from orchestration.trials.run_trial import evaluations
from tests.cluster.machines import DASHBOARD, PORT, Lab, Machine, wait_for

TABLES = ("runs.csv", "leaderboard.csv")
PROBLEM = """
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 20}, seed: 0}}
"""
LONG = f"""
sweep: long
{PROBLEM}
methods: [local-search]
seeds: [0, 1, 2]
checkpoint_every: 5000
budget: 400000
evaluator: {{kind: simulator, local: true}}
"""
SEARCH = f"""
sweep: away
{PROBLEM}
methods: [local-search, random]
seeds: 0..3
checkpoint_every: 2000
budget: 12000
stages:
  tune:
    kind: search
    methods: [local-search]
    search: {{space: {{batch: {{int: [4, 32]}}}}, configurations: 4, sampler: tpe, seed: 0}}
  tuned: {{kind: search, config_from: tune}}
"""
MEASURED = """
sweep: NAME
problems:
  graphs: {small: {sharded: chainmm, size: 32, element_bytes: 4}}
  networks: {two: {file: two.json}}
methods: [random]
seeds: [SEEDS]
propose: 40
budget: BUDGET
evaluator: {kind: dataflow, host: cpu2, devices: ["cpu:0", "cpu:0"], measuring: {warm_up: 0, repetitions: 2}}
"""
TWO = """{"format": "placewright/1", "network": {"name": "two", "devices": [{"name": "a", "speed": 1e9}, {"name": "b", "speed": 1e9}],
"links": {"bandwidth": 1e9, "delay": 1e-5}}}"""
SHORT = f"""
sweep: short
{PROBLEM}
methods: [local-search]
seeds: [0]
budget: 4000
evaluator: {{kind: simulator, local: true}}
"""


def _ended(driver: subprocess.Popen[bytes], machine: Machine, log: str, timeout: float = 900) -> None:
    if driver.wait(timeout):
        raise RuntimeError(f"the driver on {machine.name} failed:\n{machine.read('tmp/home/' + log)[-3000:]}")


def _alone(lab: Lab, sweep: str, name: str) -> Path:
    """The folder of a sweep that a machine of its own ran undisturbed, in one process."""
    machine = lab.machine("alone")
    machine.write("tmp/home/s.yaml", sweep)
    _ended(machine.placewright("run", "s.yaml", "--local", "--output", "out"), machine, "log")
    return machine.files / "tmp/home/out" / name


def _same(one: Path, other: Path) -> None:
    for name in TABLES:
        if (one / name).read_bytes() != (other / name).read_bytes():
            raise RuntimeError(f"{name} differs between {one} and {other}")


def node(lab: Lab) -> str:
    """A machine that dies in the middle of training costs its trial an interval at most, though nobody shares its disk."""
    head, *workers = (lab.machine(name) for name in ("head", "one", "two", "three"))
    head.ray(cpus=0)
    for worker in workers:
        worker.ray(head)
    head.write("tmp/home/long.yaml", LONG)
    driver = head.placewright("run", "long.yaml", "--output", "out", "--address", f"{head.ip}:{PORT}")
    folder = head.files / "tmp/home/out/long"

    def sent() -> dict[str, int]:
        return {p.parent.name: evaluations(load_state(p)) for p in folder.glob(f"trials/*/{CHECKPOINT}")}

    wait_for(lambda: [n > 20_000 for n in sent().values()] == [True] * 3, "three trials have not sent checkpoints of 20,000 evaluations")
    before, now = sent(), time.time()
    ages = {p.parent.name: now - p.stat().st_mtime for p in folder.glob(f"trials/*/{CHECKPOINT}")}
    workers[0].off()
    _ended(driver, head, "log")
    found = {trial_folder(folder, t.content_hash).name: r for t, r in entries(folder)}
    again = [key for key, result in found.items() if result.resumed]
    if sorted(before) != sorted(found) or len(again) != 1 or any(r.status != "finished" for r in found.values()):
        ended = ", ".join(f"{r.status}, resumed {r.resumed}" for r in found.values())
        raise RuntimeError(f"one of {len(before)} trials was to go on elsewhere, but they ended as: {ended}")
    _same(folder, _alone(lab, LONG, "long"))
    (key,) = again
    return f"went on elsewhere from {before[key]:,} of 400,000 evaluations, sent {ages[key]:.0f} s before; tables are the same bytes"


def head(lab: Lab) -> str:
    """The head and the driver die; the same command on another machine goes on from the URL."""
    first, worker, second = (lab.machine(name) for name in ("head", "one", "second"))
    first.ray(cpus=1)
    worker.ray(first)
    url, folder = "file:///mnt/bucket/lab", lab.bucket / "lab/away"
    for machine in (first, second):
        machine.write("tmp/home/away.yaml", SEARCH)
    first.placewright("run", "away.yaml", "--output", url, "--address", f"{first.ip}:{PORT}")

    def lines() -> int:
        return sum(p.read_bytes().count(b"\n") for p in folder.glob("ledger.jsonl.parts/*"))

    wait_for(lambda: lines() >= 2, "no trial has reached the bucket")
    before = lines()
    first.off()
    worker.off()
    driver = second.placewright("run", "away.yaml", "--output", url)
    _ended(driver, second, "log")
    _same(folder, _alone(lab, SEARCH, "away"))
    return f"the sweep was taken up with {before} of 20 trials in the bucket; tables are the same bytes"


def host(lab: Lab) -> str:
    """Two sweeps on one measuring machine: shares by weight, nothing measured twice; the machine dies under a lease, another takes over."""
    top, measuring = lab.machine("head"), lab.machine("one")
    top.ray(cpus=2)
    measuring.ray(top, cpus=0, resources='{"dataflow:cpu2": 1}')
    top.write("tmp/home/two.json", TWO)

    def begin(name: str, seed: int, budget: int, weight: int = 1) -> subprocess.Popen[bytes]:
        text = MEASURED.replace("NAME", name).replace("SEEDS", str(seed)).replace("BUDGET", str(budget))
        top.write(f"tmp/home/{name}.yaml", text)
        words = ("run", f"{name}.yaml", "--output", "out", "--address", f"{top.ip}:{PORT}", "--weight", str(weight))
        return top.placewright(*words, log=name)

    def served(by: str) -> dict[str, int]:
        """Placements measured for each sweep, as the sweep ``by`` was told last."""
        text = top.read(f"tmp/home/out/{by}/{HOSTS}")
        told = json.loads(text)["keys"].get("dataflow:cpu2", {}) if text else {}
        return {name.partition(" ")[0]: n for name, n in told.get("served", {}).items()}

    drivers = {"light": begin("light", 0, 240), "heavy": begin("heavy", 1, 600, weight=9)}
    wait_for(lambda: min(served("heavy").get(name, 0) for name in drivers) >= 5, "the two sweeps do not measure side by side")
    before = served("heavy")
    wait_for(lambda: served("heavy")["heavy"] >= before["heavy"] + 100, "the heavier sweep does not get on")
    after = served("heavy")
    got = {name: after[name] - before[name] for name in drivers}
    share = got["heavy"] / sum(got.values())
    if share < 0.85:
        raise RuntimeError(f"the sweep of weight 9 got {100 * share:.0f} % of the leases")
    for name, driver in drivers.items():
        _ended(driver, top, name)
    _ended(begin("third", 1, 120), top, "third")
    again = served("third").get("third", 0)
    if again > 1:  # the best is measured once more, for its timeline
        raise RuntimeError(f"{again} placements that the second sweep had measured were measured again for the third")
    driver = begin("fourth", 2, 200)
    wait_for(lambda: served("fourth").get("fourth", 0) >= 20, "the fourth sweep does not measure")
    measuring.off()
    lab.machine("spare").ray(top, cpus=0, resources='{"dataflow:cpu2": 1}')
    _ended(driver, top, "fourth")
    ((_, result),) = entries(top.files / "tmp/home/out/fourth")
    if result.status != "finished" or result.evaluations != 200:
        raise RuntimeError(f"the trial of the host that died is {result.status} with {result.evaluations} evaluations")
    return (
        f"weight 9 got {100 * share:.0f} % of {sum(got.values())} leases; of 120 placements that another sweep had measured none "
        "was measured again; a host that died under a lease was replaced, and its trial finished"
    )


def queue(lab: Lab) -> str:
    """Five studies, sent from a laptop: priority, dependency, time, and cancelled from another machine."""
    top, laptop, other = (lab.machine(name) for name in ("head", "laptop", "other"))
    top.ray(cpus=2)
    address = f"http://{top.ip}:{DASHBOARD}"
    laptop.do("cp", "-r", "/mnt/code/orchestration", "/mnt/code/envs", "/mnt/code/methods", "/mnt/code/pyproject.toml", ".")
    laptop.write("tmp/home/short.yaml", SHORT)
    soon = time.time() + 60
    wishes = {
        "first": (), "low": ("--priority", "1"), "high": ("--priority", "5"), "behind": ("--priority", "9", "--after", "low"),
        "later": ("--priority", "9", "--at", f"@{soon:.0f}"), "never": ("--after", "behind"),
    }  # fmt: skip
    for name, words in wishes.items():
        submitted = laptop.placewright(
            "submit", "short.yaml", "--address", address, "--output", f"/tmp/home/{name}", "--no-wait", "--name", name,
            *(words or ("--priority", "9")), log=name,
        )  # fmt: skip
        _ended(submitted, laptop, name, 300)
        time.sleep(3)
    other.do("cp", "-r", "/mnt/code/orchestration", "/mnt/code/envs", "/mnt/code/methods", "/mnt/code/pyproject.toml", ".")
    _ended(other.placewright("queue", "cancel", "never", "--address", address, log="cancel"), other, "cancel", 300)
    done = ("first", "low", "high", "behind", "later")
    wait_for(lambda: all((top.files / f"tmp/home/{n}/short/leaderboard.csv").exists() for n in done), "not all studies ended", 1500)
    times = {n: (top.files / f"tmp/home/{n}/short/leaderboard.csv").stat().st_mtime for n in done}
    order = sorted(times, key=times.__getitem__)
    if order.index("high") > order.index("low") or order.index("behind") < order.index("low") or times["later"] < soon:
        raise RuntimeError(f"the studies ended in the order {', '.join(order)}")
    if (top.files / "tmp/home/never/short").exists():
        raise RuntimeError("the study that was cancelled ran")
    return f"ended in the order {', '.join(order)}; one was cancelled from another machine"


CHECKS = {"node": node, "head": head, "host": host, "queue": queue}
