"""``place``, ``simulate`` and ``methods``: a user's own files in, placements and times out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.sources import files as formats
from orchestration.cli.main import main
from orchestration.commands.place import place, problem_spec, summary, write
from orchestration.commands.simulate import simulate_file
from orchestration.specs.sources import build_problem


def fork(memory: float = np.inf) -> Problem:
    """Two independent chains: best on two devices, 2 s; on one, 4 s (fast) or 8 s (slow)."""
    graph = ComputationGraph(("a", "b", "c", "d"), ("T",) * 4, [2, 2, 1, 1], [1] * 4, [(0, 1), (2, 3)], [1] * 2, name="fork")
    return Problem(graph, DeviceNetwork(("fast", "slow"), [1.5, 0.75], 1e9, 0.0, memory=memory, name="pair"))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "fork.json"
    formats.save(formats.dump_problem(fork()), path)
    return path


def test_place_beats_every_single_device_and_can_be_simulated_again(own: Path) -> None:
    told: list[int] = []
    placed = place(problem_spec(str(own)), "random", budget=200, progress=lambda n, best: told.append(n))
    # Chain a, b on the fast device takes 8/3 s, chain c, d on the slow one as long.
    assert placed.makespan == pytest.approx(8 / 3)
    assert [(name, why) for name, _, why in placed.single] == [("fast", ""), ("slow", "")]
    assert [value for _, value, _ in placed.single] == pytest.approx([4.0, 8.0])
    assert placed.lower_bound == pytest.approx(8 / 3)
    assert told == sorted(told) and told[-1] == placed.evaluations == 200
    again = place(problem_spec(str(own)), "random", budget=200)
    assert again.placement.tolist() == placed.placement.tolist()
    files = write(placed, own.parent / "out").files
    assert {p.name for p in files} == {f"fork.{e}" for e in ("placement.json", "timeline.html", "trace.json", "graph.png", "graph.svg")}
    repeated = simulate_file(files[0])["placements"]
    assert [r["makespan"] for r in repeated] == [placed.makespan]
    text = summary(placed)
    assert "2,667" in text and "4,000" in text and "8,000" in text and "lower bound" in text and "1.50 × the time" in text


def test_a_single_device_that_is_better_is_kept_and_nothing_is_overwritten(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One chain: to cut it costs more than any device gains."""
    graph = ComputationGraph(("a", "b", "c", "d"), ("T",) * 4, [2, 2, 1, 1], [9] * 4, [(0, 1), (1, 2), (2, 3)], [9] * 3, name="chain")
    network = DeviceNetwork(("fast", "slow"), [1.5, 1.0], 0.1, 0.0, name="pair")
    formats.save(formats.dump_problem(Problem(graph, network)), own)
    words = ["place", str(own), "--method", "random", "--budget", "1", "--seed", "1", "--output", "o"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "fast alone is kept instead" in said and "4 on fast" in said and "; simulated" in said.splitlines()[0]
    assert [r["makespan"] for r in simulate_file(Path("o/fork.placement.json"))["placements"]] == pytest.approx([4.0])
    before = Path("o/fork.placement.json").stat().st_mtime_ns
    assert main([*words, "--seed", "2"]) == 2
    assert "o/fork.placement.json is there already; name another --output" in capsys.readouterr().err
    assert Path("o/fork.placement.json").stat().st_mtime_ns == before
    assert main([*words, "--overwrite"]) == 0
    Path("o/fork.placement.json").rename("o/fork.placed.json")  # as `place --on` leaves it, with a timeline that would be lost
    assert main(words) == 2
    assert "o/fork.placed.json is there already; name another --output" in capsys.readouterr().err


def test_a_graph_needs_a_network_and_takes_one_from_a_file(own: Path) -> None:
    graph, network = own.parent / "graph.json", own.parent / "net.json"
    formats.save(formats.dump_graph(fork().graph), graph)
    formats.save(formats.dump_network(fork().network), network)
    assert place(problem_spec("graph.json", "net.json"), "heft", budget=1).evaluations == 1
    assert build_problem(problem_spec("graph.json", "cpu-gpu-4")).n_devices == 4
    assert build_problem(problem_spec("graph.json", "net.json", objective="energy")).objective == "energy"
    for arguments, message in (
        ((("graph.json",)), "lacks 'network'"),
        (("graph.json", "cpu-gpu-5"), "did you mean 'cpu-gpu-4'"),
        (("resnet-50",), "give --network"),
        (("gone.json", "cpu-gpu-4"), "does not exist"),
        (("graph.json", "gone.json"), "does not exist"),
        (("graph.json", "net.json", "rooflin"), "did you mean 'roofline'"),
    ):
        with pytest.raises(InputError, match=message):
            problem_spec(*arguments)


def test_devices_too_small_are_named(own: Path) -> None:
    formats.save(formats.dump_problem(fork(memory=2.0)), own)
    placed = place(problem_spec(str(own)), "random", budget=300)
    assert [why[:27] for _, _, why in placed.single] == ["OUT_OF_MEMORY: 'fast' needs", "OUT_OF_MEMORY: 'slow' needs"]
    assert "OUT_OF_MEMORY" in summary(placed)
    formats.save(formats.dump_problem(fork(memory=1.0)), own)
    with pytest.raises(InputError, match=r"no placement of fork@pair that runs within 20 evaluations \(20 OUT_OF_MEMORY\)"):
        place(problem_spec(str(own)), "random", budget=20)


def test_simulate_tells_outcomes_apart_and_repeats_noise(own: Path) -> None:
    problem = fork(memory=2.0)
    document = formats.dump_problem(problem, np.array([[0, 0, 1, 1], [0, 0, 0, 0]]))
    formats.save(document, own)
    exact = simulate_file(own)["placements"]
    assert [r["outcome"] for r in exact] == ["OK", "OUT_OF_MEMORY"]
    assert exact[0]["start"] == pytest.approx({"a": 0, "b": 4 / 3, "c": 0, "d": 4 / 3}) and exact[1]["makespan"] is None
    assert "'fast' needs" in exact[1]["why"]
    one, two, other = (simulate_file(own, 0.3, seed)["placements"][0]["makespan"] for seed in (1, 1, 2))
    assert one == two != other and one != exact[0]["makespan"]


def test_commands_print_json_and_one_line_errors(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    formats.save(formats.dump_problem(fork(), np.array([[0, 0, 1, 1]])), own)
    assert main(["simulate", str(own)]) == 0
    assert json.loads(capsys.readouterr().out)["placements"][0]["makespan"] == pytest.approx(8 / 3)
    formats.save(formats.dump_problem(fork()), own)
    for command in (
        ["simulate", str(own)],
        ["simulate", "gone.json"],
        ["place", str(own), "--set", "oops"],
        ["report", "gone"],
        ["ui", "--output", "gone"],
    ):
        assert main(command) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("placewright: "), command
    assert main(["place", str(own), "--method", "random", "--budget", "50", "--output", "o"]) == 0
    assert "o/fork.timeline.html" in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from orchestration.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'numba', 'ray', 'mlflow', 'optuna', 'matplotlib', 'scipy', 'openvino') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
