"""Every malformed sweep of the corpus gives errors that name the place and the cure, all at once, before anything starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestration.cli.main import main
from orchestration.definition.issues import SweepErrors
from orchestration.definition.sweep import load_sweep

CORPUS = Path(__file__).parent / "malformed"
_EXPECT = re.compile(r"^# expect (?:(?P<file>\S+):)?(?P<line>\d+): (?P<message>.*)$")


def expected(path: Path) -> list[tuple[str, int, str]]:
    """(file name, line, fragment of the message) of every ``# expect`` line."""
    found = [_EXPECT.match(line) for line in path.read_text().splitlines() if line.startswith("# expect")]
    return [(Path(m["file"] or path.name).name, int(m["line"]), m["message"]) for m in found if m]


@pytest.fixture(autouse=True)
def _toys(toy_methods: None) -> None:
    pass


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.yaml")), ids=lambda p: p.stem)
def test_names_place_and_cure(path: Path) -> None:
    wanted = expected(path)
    assert wanted, "the file must say what it expects"
    with pytest.raises(SweepErrors) as caught:
        load_sweep(path)
    issues = list(caught.value.issues)
    for file, line, message in wanted:
        match = [i for i in issues if Path(i.mark.file).name == file and i.mark.line == line and message in i.text]
        assert match, f"no error {message!r} at line {line} among:\n{caught.value}"
        issues = [i for i in issues if i is not match[0]]
    assert not issues, f"errors that nobody expects:\n{chr(10).join(map(str, issues))}"
    for issue in caught.value.issues:
        assert ";" in issue.text or ":" in issue.text, f"no cure in {issue.text!r}"
        assert "\n" not in issue.text


def test_corpus_is_large() -> None:
    assert len(list(CORPUS.glob("*.yaml"))) >= 40


def test_command_prints_lines_not_tracebacks(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["validate", "--quick", str(CORPUS / "several_errors.yaml"), str(CORPUS / "empty.yaml")])
    err = capsys.readouterr().err
    assert code == 2
    assert "Traceback" not in err
    lines = err.splitlines()
    assert len(lines) == len(expected(CORPUS / "several_errors.yaml")) + 1
    assert all(line.startswith("placewright: ") for line in lines)
