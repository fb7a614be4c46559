"""Code blocks of all pages, without running them: files can be read, and commands are spelt as their programs know them.

The language of a block says what is done with it: ``sh`` is typed by `tests/test_pages.py` in tutorials and guides, ``bash`` needs what a
test does not have (Docker, a cluster, other hardware, minutes of measuring), ``console`` and ``text`` are for the eye.
"""

import contextlib
import importlib.util
import io
import itertools
import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from orchestration.cli.main import make_parser

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("infra/*.md"))]
FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHELL = ("sh", "bash", "console")
PARSER = make_parser()
FILES = re.compile(r"(?:^|[\s=])((?:sweeps|infra|tests|docs|results|examples)/[a-z0-9_./-]+\.(?:yaml|py|md))")


def blocks(page, *languages):
    return [body for language, body in FENCED.findall(page.read_text(encoding="utf-8")) if language in languages]


def told(page):
    """Every command that a page gives as a list of words: in blocks, in indented lines and, of ours, in the text."""
    text = page.read_text(encoding="utf-8")
    lines = [line for block in blocks(page, *SHELL) for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"^    (placewright .*)$", FENCED.sub("", text), re.MULTILINE)
    lines += re.findall(r"`(placewright \w+ [^`…]*)`", FENCED.sub("", text))
    for line in lines:
        words = list(itertools.takewhile(lambda word: word not in (">", "|"), shlex.split(line, comments=True)))
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if words:
            yield words


def with_pages(commands):
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES if commands(page)]


def refusal(words):
    """What our parser says against a command; nothing if it takes it."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            PARSER.parse_args(words)
    except SystemExit as end:
        return said.getvalue() if end.code else ""
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_says_what_it_is(page):
    """A language and perhaps the name of a file: with other words the site takes no block for one, but all that follows."""
    known = "|".join(("yaml", "toml", "json", "python", "text", *SHELL))
    fences = re.findall(r"^```.*$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [fence for fence in fences[::2] if not re.fullmatch(rf'```({known})( title="[^"]+")?', fence)] == []
    assert set(fences[1::2]) <= {"```"}


@pytest.mark.parametrize("page", with_pages(lambda page: list(told(page))))
def test_commands_are_spelt_as_their_programs_know_them(page):
    """Subcommands and options of ours, modules, targets of make and files that are named are there."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in told(page):
        line = " ".join(words)
        assert [f for f in FILES.findall(line) if not (ROOT / f).exists()] == [], line
        if words[0] == "placewright":
            assert refusal(words[1:]) == "", line
        elif words[:2] == ["python", "-m"]:
            assert importlib.util.find_spec(words[2]), line
        elif words[0] == "make":
            assert {w for w in words[1:] if "=" not in w} <= targets, line


@pytest.mark.parametrize("page", with_pages(lambda page: blocks(page, *SHELL)))
def test_shell_takes_the_blocks(page):
    done = subprocess.run(["bash", "-n"], input="\n".join(blocks(page, *SHELL)), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("page", with_pages(lambda page: blocks(page, "yaml", "toml", "json", "python")))
def test_files_of_blocks_can_be_read(page):
    for body in blocks(page, "python"):
        compile(body, page.name, "exec")
    for body in blocks(page, "toml"):
        assert tomllib.loads(body)
    for body in blocks(page, "yaml"):
        assert YAML(typ="safe", pure=True).load(body)
    for body in blocks(page, "json"):
        assert json.loads(body if body.startswith("{") else f"{{{body}}}")


@pytest.mark.slow
def test_guides_of_clusters_name_options_that_their_programs_know():
    """Of Ray's, which is installed; Docker and Kubernetes are not."""
    from ray.scripts.scripts import cli

    seen = []
    for page in PAGES:
        for words in told(page):
            if words[0] != "ray":
                continue
            group, rest, seen = cli, words[1:], [*seen, words[1]]
            while hasattr(group, "commands"):
                group, rest = group.commands[rest[0]], rest[1:]
            options = {o for p in group.params for o in (*p.opts, *p.secondary_opts)}
            before = rest[: rest.index("--")] if "--" in rest else rest
            assert [w for w in before if w.startswith("--") and w.split("=")[0] not in options] == [], words
    assert {"up", "job", "dashboard", "get-auth-token"} <= set(seen)


def test_a_misspelt_command_is_noticed(tmp_path):
    """The checks above can fail."""
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nplacewright plan x.yaml --hour  # no such option\n```\n\n`placewright rum x.yaml`\n\n    placewright report x --study\n"
    )
    found = [refusal(words[1:]) for words in told(page)]
    assert "--hour" in found[0] and "'rum'" in found[2] and found[1] == ""
