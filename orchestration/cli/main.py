"""The command ``placewright``: finds the commands beside this file, runs one, and turns errors into one readable line.

A command is a module with ``add_parser(subparsers)`` and ``run(args) -> int | None``; importing it must be cheap, so its work is
imported inside ``run``. The name of the command is the module's, with hyphens.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import itertools
import logging
import os
import pkgutil
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import orchestration.cli as commands
from envs.problem.errors import InputError, nearest
from orchestration.specs.secrets import secret

OK, FAILED, WRONG_INPUT, STOPPED = 0, 1, 2, 130
MAX_NAME = 255
"""Bytes of one part of a path on common file systems."""
MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG)
"""Errors of writing that are the machine's affair: a full, read-only or broken disk."""
DEBUG = "PLACEWRIGHT_DEBUG"
"""Environment variable; if set, errors come with their traceback."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and takes a word only if it is one of the choices."""

    def error(self, message: str) -> NoReturn:
        """Print the line and end with code 2."""
        self.exit(WRONG_INPUT, f"placewright: {message}; see {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As its parent, but an option that is none is named first: else what it stands in place of would be asked for."""
        if self._subparsers is None and args is not None:
            known = [option for action in self._actions for option in action.option_strings]
            for word in itertools.takewhile(lambda w: w != "--", args):
                name = word.partition("=")[0]
                if re.match(r"-[^.\d]", name) and not any(k.startswith(name) or name.startswith(k) for k in known):
                    self.error(f"unknown option {name!r}{nearest(name, known)}")
        return super().parse_known_args(args, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # The one place where argparse knows the word that it refuses; its message is a sentence of its own.
        if action.choices is not None and value not in action.choices:
            what = "command" if isinstance(action, argparse._SubParsersAction) else (action.option_strings or [str(action.dest)])[-1]
            self.error(f"unknown {what} {value!r}{nearest(str(value), map(str, action.choices))}")


def command_names() -> list[str]:
    """Every command, by listing the modules of this package."""
    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(commands.__path__) if m.name != "main")


def _module(command: str) -> Any:
    return importlib.import_module(f"orchestration.cli.{command.replace('-', '_')}")


def make_parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    parser = Parser(
        prog="placewright",
        description="Run, track and compare device-placement methods.",
        epilog="Begin with: placewright run sweeps/quickstart.yaml",
    )
    parser.add_argument("-V", "--version", action="store_true", help="print the version and end")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name in command_names():
        _module(name).add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (0 done, 1 something failed, 2 wrong input, 130 stopped by Ctrl-C)."""
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.version:
        from importlib.metadata import version

        print(version("placewright"))
        return OK
    if args.command is None:
        parser.print_help()
        return OK
    tell_progress()
    try:
        _check_paths(args)
        if secret(getattr(args, "tracking_uri", None) or ""):
            _say("every user of this machine can see the password in --tracking-uri; write env:NAME or file:PATH instead")
        code = _module(args.command).run(args)
        sys.stdout.flush()
        return code or OK
    except KeyboardInterrupt:
        _say("stopped")
        return STOPPED
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`); Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except InputError as error:
        return _fail(error, WRONG_INPUT)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return _fail(InputError(f"{str(error.filename)[:60]!r} cannot be a path; a name has at most {MAX_NAME} bytes"), WRONG_INPUT)
        return _fail(error, FAILED)
    except Exception as error:
        return _fail(error, FAILED)


class _Progress(logging.Handler):
    """Prints what takes long to wherever stderr goes now."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr, flush=True)


def tell_progress() -> None:
    """Let commands say when a model is captured, which is slow the first time."""
    logger = logging.getLogger("envs.graphs.capture")
    if not any(isinstance(h, _Progress) for h in logger.handlers):
        logger.addHandler(_Progress())
        logger.setLevel(logging.INFO)


def _check_paths(args: argparse.Namespace) -> None:
    """InputError for a path that no file system can hold, which would raise when asked for, or that would break a message in two."""
    for value in vars(args).values():
        for path in value if isinstance(value, list) else [value]:
            if not isinstance(path, Path):
                continue
            try:
                wrong = any(c in str(path) for c in "\0\n\r") or any(len(os.fsencode(part)) > MAX_NAME for part in path.parts)
            except UnicodeEncodeError:
                wrong = True
            if wrong:
                what = f"it holds a NUL, a line break, half a character, or a name of more than {MAX_NAME} bytes"
                raise InputError(f"{str(path)[:60]!r} cannot be a path; {what}")


def _fail(error: Exception, code: int) -> int:
    if os.environ.get(DEBUG):
        import traceback

        traceback.print_exc()
    if isinstance(error, OSError) and error.errno in MACHINE:
        where = f" ({error.filename})" if error.filename else ""
        _say(f"{error.strerror}{where}; mend that, and give the same command again: what is on disk by now is kept")
    elif isinstance(error, InputError):
        for line in str(error).splitlines():
            _say(line)
    else:
        first = (str(error).splitlines() or [""])[0]
        _say(f"{type(error).__name__}: {first} (unexpected; {DEBUG}=1 shows where, please report it)")
    return code


def _say(line: str) -> None:
    print(f"placewright: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
