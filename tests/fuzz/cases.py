"""Every kind of input, with the sound one that is spoiled and the commands that read it. A case is decided by seed, kind and number."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz import folders
from tests.fuzz.documents import PLACEMENTS, PROBLEM, SOUND, write_documents
from tests.fuzz.mutations import HUGE, NAMES, any_bytes, any_json, any_yaml

ROOT = Path(__file__).resolve().parents[2]
TINY = """
sweep: tiny
problems:
  networks: {n3: {synthetic: {devices: 3}, seed: 0}}
  graphs:
    a: {synthetic: {tasks: 6, shape: 0.5}, seed: 0}
    b: {file: problem.json}
methods:
  random:
  heft:
  moves: {method: local-search, batch: 4}
seeds: [0, 1]
budget: {evaluations: 8}
evaluator: {kind: simulator, local: true, noise: 0.1}
"""


@dataclass(frozen=True)
class Case:
    """An input, and what reads it."""

    commands: list[list[str]]
    names: tuple[str, ...]
    """Of the file or the value that is wrong: a refusal must hold one of them."""
    content: str = ""
    """The input as text."""
    tables: list[tuple[Path, Path]] = field(default_factory=list)
    """Files as they were before, and as they must be again."""


@dataclass(frozen=True)
class Kind:
    """How many of 1,000, and how one is made: ``make(rng, home, folder)``."""

    weight: int
    make: Callable[[Random, Path, Path], Case]


def prepare(home: Path) -> None:
    """Make all sound inputs in ``home``, unless an earlier worker did, and run what is slow the first time."""
    from tests.fuzz.worker import call

    folders.pretend_to_measure()
    if not (home / "prepared").exists():
        shutil.copytree(ROOT / "sweeps", home / "sweeps", dirs_exist_ok=True)
        shutil.copytree(ROOT / "tests/orchestration/cli/malformed", home / "malformed", dirs_exist_ok=True)
        write_documents(home / "sound")
        (home / "sound" / "tiny.yaml").write_text(TINY)
        folders.write_folders(home)
        (home / "prepared").touch()
    else:
        call(["run", str(home / "sound" / "tiny.yaml"), "--local", "--output", str(home / "warm"), "--fresh"])
    for sound in (PROBLEM, "small.onnx", "small.xml"):
        call(["inspect", str(home / "sound" / sound)])
    call(["place", str(home / "sound" / PROBLEM), "--budget", "8", "--output", str(home / "warm" / "placed")])


def make_case(home: Path, folder: Path, seed: int, kind: str, number: int) -> Case:
    """The case of this seed, kind and number, its files in ``folder``."""
    return KINDS[kind].make(Random(f"{seed} {kind} {number}"), home, folder)


def _sweep(rng: Random, home: Path, folder: Path) -> Case:
    """A sweep of this project or of the malformed ones, beside its fragments; its text alone is checked."""
    found = sorted(
        p for part in ("sweeps", "malformed") for p in (home / part).rglob("*.yaml") if not {"parts", "fragments"} & set(p.parts)
    )
    chosen = rng.choice([p for p in found if p.name != "hostile.yaml"])
    path = chosen.with_name("hostile.yaml")
    content = any_yaml(rng, chosen.read_text())
    _put(rng, path, content)
    return _read([["validate", "--quick", str(path)]], path, content)


def _tiny(rng: Random, home: Path, folder: Path) -> Case:
    """A small sweep, whose problems are built."""
    content = any_yaml(rng, (home / "sound" / "tiny.yaml").read_text())
    path = folder / "hostile.yaml"
    shutil.copy(home / "sound" / PROBLEM, folder)
    _put(rng, path, content)
    return _read([[rng.choice(("validate", "plan", "status")), str(path)]], path, content)


def _named(rng: Random, home: Path, folder: Path) -> Case:
    """A small sweep that is run, with a hostile word for a name or an option."""
    import yaml

    sweep, word = yaml.safe_load(TINY), rng.choice(NAMES)
    holder, key = rng.choice(
        [(sweep["problems"]["networks"], "n3"), (sweep["problems"]["graphs"], "a"), (sweep["methods"], "moves"), (sweep, "sweep"),
        (sweep, "description"),
         (sweep["problems"]["graphs"]["b"], "file"), (sweep["evaluator"], "kind"), (sweep["methods"]["moves"], "method"), (sweep,
         "budget")]
    )  # fmt: skip
    if key in ("n3", "a", "moves"):
        holder[word] = holder.pop(key)
    else:
        holder[key] = word
    document = json.loads((home / "sound" / PROBLEM).read_text())
    if rng.random() < 0.5:
        document["network"]["devices"][0]["name"] = word
        document.pop("placements")
    (folder / PROBLEM).write_text(json.dumps(document))
    path = folder / "hostile.yaml"
    content = yaml.safe_dump(sweep).encode("utf-8", "surrogatepass")
    path.write_bytes(content)
    return _read([["run", str(path), "--local", "--output", str(folder / "out")]], path, content)


def _document(name: str) -> Callable[[Random, Path, Path], Case]:
    """A file of a graph or a problem, that is inspected, simulated, placed, or placed on."""

    def make(rng: Random, home: Path, folder: Path) -> Case:
        sound = home / "sound" / name
        data = sound.read_bytes()
        path = folder / f"hostile{sound.suffix}"
        content = any_json(rng, json.loads(data)) if sound.suffix == ".json" and rng.random() < 0.7 else any_bytes(rng, data)
        if sound.suffix == ".xml":
            shutil.copy(sound.with_suffix(".bin"), path.with_suffix(".bin"))
            if rng.random() < 0.2:
                content, _ = data, path.with_suffix(".bin").write_bytes(any_bytes(rng, sound.with_suffix(".bin").read_bytes()))
        _put(rng, path, content)
        place = ["--budget", "8", "--output", str(folder / "placed"), "--method", rng.choice(("heft", "random", "metis", "local-search"))]
        problem, network = str(home / "sound" / PROBLEM), str(home / "sound" / "network.json")
        commands = {
            "network.json": [["place", problem, "--network", str(path), *place]],
            PLACEMENTS: [["simulate", problem, "--placements", str(path)]],
            PROBLEM: [["inspect", str(path)], ["simulate", str(path)], ["place", str(path), *place]],
        }.get(name, [["inspect", str(path)], ["place", str(path), "--network", network, *place]])
        return _read([rng.choice(commands)], path, content)

    return make


_WILD = (*NAMES, "-1", "0", "nan", "inf", "-inf", "1e308", "1e-320", "9" * HUGE, "0x10", "1_0", "٣", "true", "[]", "{}")


def _flags(rng: Random, home: Path, folder: Path) -> Case:
    """A command line with a value that means nothing, or of something else."""
    sound = home / "sound"
    shutil.copy(sound / "tiny.yaml", folder)
    shutil.copy(sound / PROBLEM, folder)
    sweep, problem, finished = str(folder / "tiny.yaml"), str(folder / PROBLEM), str(home / "plain")
    word = rng.choice(_WILD)
    flag = rng.choice(
        ["--seed", "--set", "--costs", "--objective", "--network", "--method", "--budget", "--noise", "--rates", "--stages",
        "--baseline", "--format", "--output", "--tracking-uri", "--placements", "SWEEP", "MODEL", "COMMAND"]
    )  # fmt: skip
    if flag == "--set":
        word = rng.choice((word, f"batch={word}", f"{word}=1", "batch=1e99", "batch"))
    place = ["place", problem, "--budget", "8", "--output", str(folder / "placed")]
    line = {
        "--seed": rng.choice(([*place, flag, word], ["simulate", problem, "--noise", "0.1", flag, word])),
        "--noise": ["simulate", problem, flag, word],
        "--placements": ["simulate", problem, flag, word],
        "--rates": ["plan", sweep, flag, word],
        "--stages": ["plan", sweep, flag, word],
        "--baseline": ["report", "tiny", "--output", finished, flag, word],
        "--format": [rng.choice(("report", "status")), sweep, flag, word],
        "--output": rng.choice(
            (
                ["place", problem, "--budget", "8", flag, word],
                ["status", sweep, flag, word],
                ["report", "tiny", flag, word],
                ["plan", sweep, flag, word],
            )
        ),
        "--tracking-uri": [
            "run",
            sweep,
            "--local",
            "--output",
            str(folder / "out"),
            flag,
            rng.choice((word, "gopher://x", "sqlite:////dev/null/x.db")),
        ],
        "SWEEP": [rng.choice(("validate", "plan", "status", "report", "run")), word],
        "MODEL": [rng.choice(("inspect", "place", "simulate")), word],
        "COMMAND": [word],
    }.get(flag, [*place, flag, word])
    names = (
        flag,
        flag.strip("-"),
        word,
        repr(word),
        ascii(word),
        word.strip(),
        *([repr(word)[1:30]] if len(word) > 30 else []),
        word[:30] or "''",
        str(Path(word)),
    )
    return Case([line], tuple(n for n in names if n), " ".join(line))


def _put(rng: Random, path: Path, content: bytes) -> None:
    """The file; seldom a directory in its place, or nothing."""
    place = rng.randrange(50)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if place == 0:
        path.mkdir()
    elif place != 1:
        path.write_bytes(content)


def _read(commands: list[list[str]], path: Path, content: bytes) -> Case:
    return Case(commands, (path.name, str(path.with_suffix(".bin"))), content.decode("utf-8", "replace"))


def _damaged(name: str, file: str, cuts: bool = True) -> Callable[[Random, Path, Path], Case]:
    """A finished or half finished sweep one of whose files is damaged, and run again."""

    def make(rng: Random, home: Path, folder: Path) -> Case:
        made = folders.damaged(rng, home / name, folder / "out", file)
        command = ["run", str(home / "sound" / f"{name}.yaml"), "--local", "--output", str(folder / "out")]
        tables = [(home / name / table, folder / "out" / table) for table in folders.tables(name)]
        return Case([command], (Path(made).name, Path(made).stem), "", tables)

    return make


def _cache(rng: Random, home: Path, folder: Path) -> Case:
    """A damaged entry of the cache of graphs; what is inspected is the same."""
    made = folders.damaged_cache(rng, home)
    tables = [(home / "placed" / one, folder / "placed" / one) for one in folders.PLACED]
    return Case([[*folders.place_command(home), "--output", str(folder / "placed")]], (made.name,), "", tables)


KINDS: dict[str, Kind] = {
    "sweep": Kind(150, _sweep),
    "small sweep": Kind(90, _tiny),
    "names": Kind(50, _named),
    **{f"{name}": Kind(weight, _document(name)) for name, weight in SOUND.items()},
    "flags": Kind(110, _flags),
    "ledger": Kind(55, _damaged("plain", "ledger.jsonl")),
    "tracking.json": Kind(25, _damaged("plain", "tracking.json")),
    "mlflow.db": Kind(30, _damaged("plain", "mlflow.db")),
    "journal": Kind(40, _damaged("study", "studies.journal")),
    "checkpoint": Kind(35, _damaged("stopped", "checkpoint.safetensors")),
    "policy": Kind(25, _damaged("learned", "policy.safetensors")),
    "measurements": Kind(40, _damaged("measured", "measurements.sqlite")),
    "cache": Kind(40, _cache),
}
