"""Optuna's studies: where they are kept, and their samplers, pruners and parameters from a sweep's words. What is asked of them
and when belongs to ``orchestration/search/search.py``."""

from __future__ import annotations

import inspect
import json
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.storages.journal import JournalFileBackend

from envs.problem.errors import InputError
from orchestration.definition.searches import Component, Parameter, SearchSpec
from orchestration.specs.canonical import canonical, content_hash
from orchestration.specs.files import write_atomic
from orchestration.specs.layout import JOURNAL, STUDIES_ID
from orchestration.specs.secrets import masked, resolved_uri


class Studies:
    """The storage of a sweep's searches, opened by its driver alone and only if there is a search.

    Without a URL it is a journal in the sweep's directory; a URL (``postgresql://…``) is a database that a team shares, in
    which every sweep directory has studies of its own, known by an identifier that lies in it: so the sweep goes on from
    another machine that has the directory, and a fresh run, which sets the identifier aside, leaves the old studies alone.
    """

    def __init__(self, folder: Path, sweep: str) -> None:
        self._folder, self._sweep = folder, sweep
        self._storages: dict[str | None, Any] = {}

    def open(self, spec: SearchSpec, keep: int | None = None) -> optuna.Study:
        """The study of a search, made if need be; with ``keep`` it begins anew with so many first trials of what it was.

        Raises:
            InputError: if the storage cannot be opened.
        """
        settings = spec.settings
        url = settings.storage
        name = f"{self._sweep}/{spec.stage}/{spec.label}/{spec.short}"
        if url is not None:
            name += "@" + self._identifier()
        with self._refusals(spec):
            storage = self._storage(url)
            kept: list[optuna.trial.FrozenTrial] = []
            if keep is not None and name in optuna.get_all_study_names(storage):
                kept = optuna.load_study(study_name=name, storage=storage).get_trials()[:keep]
                optuna.delete_study(study_name=name, storage=storage)
            study = optuna.create_study(
                storage=storage, study_name=name, directions=["minimize"] * len(settings.objectives), load_if_exists=True,
                sampler=optuna.samplers.RandomSampler(), pruner=optuna.pruners.NopPruner(),
            )  # fmt: skip
            study.add_trials(kept)
            return study

    def _identifier(self) -> str:
        """Of this directory in shared databases; made when first needed."""
        path = self._folder / STUDIES_ID
        if not path.exists():
            write_atomic(path, uuid.uuid4().hex[:12].encode())
        return path.read_text()

    def reach(self, spec: SearchSpec) -> None:
        """Open the storage of a search that begins later; InputError if it cannot be opened."""
        with self._refusals(spec):
            self._storage(spec.settings.storage)

    @contextmanager
    def _refusals(self, spec: SearchSpec) -> Iterator[None]:
        """What the storage raises, as an InputError."""
        try:
            with quiet():
                yield
        except DamagedJournal as error:
            raise InputError(
                f"{error}; move the file away and run the sweep again: the searches are then told anew from the ledger, without running "
                "what it holds"
            ) from None
        except (optuna.exceptions.OptunaError, ImportError, OSError, ValueError) as error:
            reason, url = (str(error).strip() or type(error).__name__).splitlines()[0], spec.settings.storage
            where = f"storage {masked(url)!r}" if url else f"journal {self._folder / JOURNAL}"
            raise InputError(
                f"{where} of the search in stage {spec.stage!r} cannot be used ({masked(reason)}); repair it or choose another"
            ) from None

    def _storage(self, url: str | None) -> Any:
        if url not in self._storages:
            if url is None:
                path = self._folder / JOURNAL
                try:
                    self._storages[url] = optuna.storages.JournalStorage(CheckedJournal(path, _mend(path)))
                except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:  # of before there were checksums
                    raise DamagedJournal(f"journal {path} of the searches is damaged ({type(error).__name__}: {error})") from None
            else:
                try:
                    self._storages[url] = optuna.storages.RDBStorage(resolved_uri(url), engine_kwargs={"pool_pre_ping": True})
                except sqlalchemy.exc.SQLAlchemyError as error:
                    raise OSError(str(error)) from None
        return self._storages[url]


class DamagedJournal(OSError):
    """The journal of the studies is not what was written."""


class CheckedJournal(JournalFileBackend):
    """Optuna's journal with a checksum in every entry, over the entry and the checksum of the one before: so none can be lost or moved
    from between others. Optuna passes over a key that it does not know.

    Args:
        last: the checksum of the last entry, as `_mend` gives it.
    """

    def __init__(self, path: Path, last: str) -> None:
        super().__init__(str(path))
        self._last = last

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        checked = []
        for log in json.loads(json.dumps(logs)):  # as it will be read again: keys that are numbers (of steps) are words in the file
            self._last = _sum(log, self._last)
            checked.append({**log, "sum": self._last})
        super().append_logs(checked)


def _sum(entry: Mapping[str, Any], before: str) -> str:
    return content_hash({"entry": entry, "before": before})[:16]


def _mend(path: Path) -> str:
    """Undo what a killed driver left of its last write, and check the rest: the ledger's lock says that nobody else writes now.

    Returns:
        The checksum of the last entry; empty if there is none.

    Raises:
        DamagedJournal: naming the first line that is not as it was written.
    """
    path.with_name(path.name + ".lock").unlink(missing_ok=True)
    last = ""
    if not path.exists():
        return last
    with path.open("r+b") as file:
        end = 0
        for number, raw in enumerate(file, 1):
            if not raw.endswith(b"\n"):
                break
            end += len(raw)
            try:
                entry = json.loads(raw)
                found = entry.pop("sum", None)  # entries of before there were checksums have none
                if found not in (None, _sum(entry, last)):
                    raise ValueError(f"its checksum is not {found}, or the line before it is not what it was")
                last = found or ""
            except (ValueError, AttributeError) as error:
                raise DamagedJournal(f"line {number} of journal {path} is damaged ({error})") from None
        file.truncate(end)
    return last


@contextmanager
def quiet() -> Iterator[None]:
    """No chatter of Optuna's: experimental features are our choice, and what a study does is in our own record."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def make_sampler(spec: SearchSpec, seed: int) -> optuna.samplers.BaseSampler:
    """The sampler of a search; InputError if Optuna refuses its options."""
    component = spec.settings.sampler
    options = {k: _plain(v) for k, v in component.options.items()}
    if component.name == "grid":
        space = {p.name: encoded(p) if p.kind == "choice" else p.grid() for p in spec.settings.parameters}
        options["search_space"] = space
    if component.name == "tpe":
        options.setdefault("warn_independent_sampling", False)
    return _made("sampler", optuna.samplers, component, {**options, "seed": seed})


def make_pruner(component: Component, reports: int) -> optuna.pruners.BasePruner:
    """The pruner of a search, in units of reports; InputError if Optuna refuses its options."""
    options = {k: _plain(v) for k, v in component.options.items()}
    if component.name in ("asha", "hyperband"):
        options.setdefault("min_resource", 1)  # Optuna would first wait for a whole trial to guess these
    if component.name == "hyperband":
        options.setdefault("max_resource", reports)
    return _made("pruner", optuna.pruners, component, options)


def _made(what: str, module: Any, component: Component, options: Mapping[str, Any]) -> Any:
    try:
        with quiet():
            return getattr(module, component.class_name)(**options)
    except (ValueError, TypeError, AssertionError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{what} {component.name!r} refuses its options: {reason}; change them") from None


def arguments(component: Component, module: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every argument of a sampler or pruner, defaults included, as JSON values."""
    signature = inspect.signature(getattr(module, component.class_name))
    values = {name: p.default for name, p in signature.parameters.items() if p.default is not inspect.Parameter.empty}
    values.update(given)
    return {k: v if isinstance(v, str | int | float | bool | None) else repr(v) for k, v in values.items() if k != "search_space"}


def circumstances(spec: SearchSpec) -> dict[str, Any]:
    """Sampler and pruner with all their arguments, and the versions that decide what they do."""
    s = spec.settings
    parts = (("sampler", s.sampler, optuna.samplers), ("pruner", s.pruner, optuna.pruners))
    found: dict[str, Any] = {
        what: {"name": c.name, "class": c.class_name, "arguments": arguments(c, module, c.options)} for what, c, module in parts
    }
    found["optuna"] = optuna.__version__
    if s.sampler.name == "cma-es":
        import cmaes  # what Optuna's CmaEsSampler computes with

        found["cmaes"] = cmaes.__version__
    return found


def _plain(value: Any) -> Any:
    """Options as plain JSON values again."""
    return json.loads(canonical(value))


def encoded(parameter: Parameter) -> list[Any]:
    """The choices of a parameter as Optuna can keep them: lists and mappings as their JSON text."""
    return [c if isinstance(c, str | int | float | bool | None) else canonical(c) for c in parameter.choices]


def decoded(parameter: Parameter, value: Any) -> Any:
    """The choice that an encoded one stands for."""
    return parameter.choices[encoded(parameter).index(value)]
