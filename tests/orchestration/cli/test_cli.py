"""The command line: fast help, one readable line an error, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from envs.problem.errors import InputError
from orchestration.cli import plan as plan_command
from orchestration.cli.main import _fail, command_names, main, make_parser
from tests.orchestration.little_disk import little_disk

SWEEP = """
sweep: tiny
problems:
  graphs: {layered: {synthetic: {tasks: 12}, seeds: [0, 1]}}
  networks: {two: {synthetic: {devices: 2}}}
methods: [random, heft]
budget: 20
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    return tmp_path / "tiny.yaml"


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from orchestration.cli.main import make_parser; make_parser(); print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "torch", "ray", "mlflow", "optuna", "openvino", "matplotlib", "numba", "scipy", "yaml", "rich"}
    assert not heavy & set(out.stdout.split()), "commands must import what they need inside run()"


def test_every_command_is_found_and_explained() -> None:
    names = command_names()
    assert {"plan", "run", "validate"} <= set(names) and "main" not in names
    text = make_parser().format_help()
    for name in names:
        assert f"\n    {name} " in text


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in command_names():
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
        assert name in capsys.readouterr().out


def test_version_and_bare_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out[0].isdigit()
    assert main([]) == 0
    assert "usage: placewright" in capsys.readouterr().out


def test_misspelt_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["vaildate", "x.yaml"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "placewright: unknown command 'vaildate'; did you mean 'validate'?; see placewright --help\n"


def test_missing_argument_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan"])
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith("placewright: ") and "SWEEP.yaml" in err


def test_validate_says_valid(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(sweep)]) == 0
    assert capsys.readouterr().out == f"{sweep}: valid, 4 trials and 0 searches\n"


def test_validate_reports_several_files(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = sweep.with_name("bad.yaml")
    bad.write_text(SWEEP.replace("heft", "hefd"))
    assert main(["validate", str(sweep), str(bad), str(sweep.with_name("none.yaml"))]) == 2
    captured = capsys.readouterr()
    assert "tiny.yaml: valid" in captured.out
    assert captured.err.splitlines() == [
        f"placewright: {bad}:6:19: unknown method 'hefd'; did you mean 'heft'?",
        f"placewright: {sweep.with_name('none.yaml')}: cannot be read (No such file or directory); the folder has bad.yaml, tiny.yaml",
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["simulate", "-inf"], "unknown option '-inf'"),
        (["run", "x.yaml", "--outptu=y"], "unknown option '--outptu'; did you mean '--output'"),
    ],
)
def test_an_option_that_is_none_is_named_before_what_is_missing(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("command", ["inspect", "status", "report", "plan"])
def test_a_name_that_no_file_can_have_is_wrong_input(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "9" * 5000]) == 2
    said = capsys.readouterr().err
    assert f"'{'9' * 60}' cannot be a path" in said and len(said) < 250


def test_plan_as_text_and_json(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(sweep), "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("tiny: 1 stage, 4 trials, 42 evaluations\n")
    assert main(["plan", str(sweep), "--output", str(tmp_path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["stages"][0]["trials"] == 4


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("this is wrong; do that"), 2, "placewright: this is wrong; do that"),
        (KeyboardInterrupt(), 130, "placewright: stopped"),
        (RuntimeError("odd\nmore"), 1, "placewright: RuntimeError: odd (unexpected; PLACEWRIGHT_DEBUG=1 shows where, please report it)"),
    ],
)
def test_errors_are_one_line(
    error: BaseException, code: int, line: str, sweep: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_args: object) -> int:
        raise error

    monkeypatch.setattr(plan_command, "run", fails)
    assert main(["plan", str(sweep)]) == code
    assert capsys.readouterr().err == line + "\n"


def test_closed_pipe_is_quiet(sweep: Path) -> None:
    command = f"{sys.executable} -m orchestration.cli.main plan {sweep} --format json | true"
    out = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert out.stderr == "" and out.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "-1"], "seed '-1' must be a whole number from 0"),
        (["--budget", "0"], "budget '0' must be a whole number from 1"),
        (["--output", "/dev/null/x"], "folder '/dev/null/x' cannot be written to"),
    ],
)
def test_place_refuses_what_it_could_not_do_before_it_searches(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestration.commands import place

    monkeypatch.setattr(place, "place", None)
    try:
        code = main(["place", "resnet-50", "--network", "cpu-gpu-4", *arguments])
    except SystemExit as ended:
        code = ended.code
    assert code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, f"out/{'x' * 256}/y", "\ud800"])
@pytest.mark.parametrize("line", [("plan", "sweep.yaml", "--output"), ("validate",), ("report", "small", "--output"), ("simulate",)])
def test_a_path_that_no_file_system_holds_is_wrong_input(capsys, line, path):
    assert main([*line, path]) == 2
    said = capsys.readouterr().err
    assert path[:20].encode("unicode_escape").decode()[:3] in said and "unexpected" not in said


def test_an_unknown_command_is_quoted_once(capsys):
    with pytest.raises(SystemExit):
        main(["a\nb"])
    assert r"unknown command 'a\nb';" in capsys.readouterr().err


def test_a_full_disk_is_no_fault_of_the_program(tmp_path, capsys):
    with pytest.raises(OSError) as full, little_disk(10), (tmp_path / "x").open("wb", buffering=0) as file:
        file.write(b"x" * 10)
        file.write(b"x")
    assert _fail(full.value, 1) == 1
    assert (
        capsys.readouterr().err
        == "placewright: File too large; mend that, and give the same command again: what is on disk by now is kept\n"
    )
