"""The architecture, checked from the sources: which room imports which, no cycles, declared dependencies, short files and functions."""

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from methods.contract import registry

ROOT = Path(__file__).parents[1]
ROOMS = ("envs", "methods", "orchestration")
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MAY_IMPORT = {"envs": {"envs"}, "methods": {"methods", "envs"}, "orchestration": set(ROOMS)}
THIRD_PARTY = {
    "envs": {"numpy", "numba", "scipy", "simpy", "openvino", "onnx", "google", "torch", "transformers", "platformdirs", "annotated_types"},
    "methods": {"numpy", "numba", "scipy", "torch", "torch_geometric", "pymetis", "ortools", "pydantic", "annotated_types"},
}
"""What the rooms may use besides the standard library; orchestration may use every declared dependency."""
DISTRIBUTIONS = {"yaml": "pyyaml", "ruamel.yaml": "ruamel.yaml", "google.protobuf": "protobuf"}
"""Distributions whose name is not that of their module."""
SUITES = ("methods.testing.", "envs.testing.")
"""Suites of tests for packages outside the tree: they alone may import pytest, and a simulator to try methods on."""
MAX_FILE, MAX_FUNCTION, MAX_COMPILED = 500, 60, 95
"""Lines; compiled event loops carry their state in local variables, so they may be longer."""


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path) for path in FILES}


@cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def type_checking_only(root):
    """Nodes inside ``if TYPE_CHECKING:``, which never run."""
    guarded = [n for n in ast.walk(root) if isinstance(n, ast.If) and ast.unparse(n.test).endswith("TYPE_CHECKING")]
    return {id(inner) for node in guarded for statement in node.body for inner in ast.walk(statement)}


@cache
def imports(path):
    """Every module imported anywhere in a file, inside functions too, as ``(absolute name, line)``."""
    skipped = type_checking_only(tree(path))
    found = []
    for node in ast.walk(tree(path)):
        if id(node) in skipped or not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        else:
            assert node.level == 0, f"{path}:{node.lineno} imports relatively; write the whole name"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.append((inner if inner in MODULES else node.module, node.lineno))
    return found


def room(name):
    return name.split(".")[0]


def is_ours(name):
    return room(name) in ROOMS


def is_third_party(name):
    return not is_ours(name) and room(name) not in sys.stdlib_module_names and room(name) != "tests"


def declared():
    """Names of the distributions in pyproject.toml: needed ones, and all."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [re.split(r"[^A-Za-z0-9_.-]", d)[0].lower() for d in project["dependencies"]]
    extra = [re.split(r"[^A-Za-z0-9_.-]", d)[0].lower() for group in project["optional-dependencies"].values() for d in group]
    return set(needed), set(needed) | set(extra)


def is_suite(path):
    return module_name(path).startswith(SUITES)


def distribution(name):
    for module, dist in DISTRIBUTIONS.items():
        if name == module or name.startswith(module + "."):
            return dist
    return room(name).lower().replace("_", "-")


def complaints(paths, wrong):
    return [f"{path.relative_to(ROOT)}:{line} imports {name}" for path in paths for name, line in imports(path) if wrong(path, name)]


def check(complaints):
    assert not complaints, "\n".join(complaints)


def test_there_is_something_to_check():
    assert len(FILES) > 10
    assert {room(name) for path in FILES for name, _ in imports(path) if is_ours(name)} == {"envs", "methods", "orchestration"}


def test_imports_point_from_orchestration_to_methods_to_envs():
    check(complaints(FILES, lambda path, name: is_ours(name) and room(name) not in MAY_IMPORT[room(module_name(path))]))


def test_nothing_imports_the_tests():
    check(complaints(FILES, lambda path, name: room(name) == "tests"))


def test_rooms_use_only_their_third_party_packages():
    rules = {r: THIRD_PARTY.get(r) for r in ROOMS}

    def wrong(path, name):
        allowed = rules[room(module_name(path))]
        return allowed is not None and is_third_party(name) and room(name) not in allowed and not (is_suite(path) and name == "pytest")

    check(complaints(FILES, wrong))


METHOD_MODULES = set(registry.modules().values())


def test_methods_import_neither_simulators_nor_each_other():
    def wrong(path, name):
        module = module_name(path)
        if room(module) != "methods" or not is_ours(name):
            return False
        if (
            name.startswith("envs.simulators")
            and not is_suite(path)
            and name not in ("envs.simulators.bounds", "envs.simulators.period", "envs.simulators.relocation")
        ):
            return True
        return name in METHOD_MODULES and name != module

    check(complaints(FILES, wrong))


ORDER = {
    "orchestration": (
        "records", "cli", "queueing", "driver", "commands", "report", "plots", "trials", "analysis", "tracking", "search", "folder",
        "definition", "rewards", "specs",
    ),
    "methods": ("", "heuristics", "learning", "searching", "nets", "placing", "testing", "contract"),
    "envs": ("sources", "hosts", "simulators", "graphs", "networks", "costs", "testing", "problem"),
}  # fmt: skip
"""Rooms of each floor from the top down: a room imports only what stands below it. In ``methods`` the papers' methods are the top room."""
MAX_MODULES = 14


def place_of(module):
    """Which room of its floor a module stands in, counted from the top; None for a floor's own package."""
    floor, *rest = module.split(".")
    if not rest:
        return None
    return ORDER[floor].index(rest[0] if rest[0] in ORDER[floor] else "")


def test_every_room_has_its_place():
    rooms = {floor: {p.parent.name for p in (ROOT / floor).glob("*/__init__.py")} for floor in ROOMS}
    unplaced = {f"{floor}/{name}" for floor in ("orchestration", "envs") for name in rooms[floor] - set(ORDER[floor])}
    assert not unplaced, f"{sorted(unplaced)} have no place in ORDER; say what stands above and below them"
    assert all(name in rooms[floor] for floor in ROOMS for name in ORDER[floor] if name), "ORDER names rooms that are gone"


def test_rooms_import_only_what_stands_below_them():
    def wrong(path, name):
        module = module_name(path)
        if not is_ours(name) or room(name) != room(module):
            return False
        here, there = place_of(module), place_of(name)
        return None not in (here, there) and there < here

    check(complaints(FILES, wrong))


def test_folders_do_not_import_each_other_in_a_circle():
    """Folders at every depth: what stands in two folders may not need each other."""
    found = []
    for floor in ROOMS:
        for folder in [ROOT / floor, *(p for p in (ROOT / floor).rglob("*") if p.is_dir() and (p / "__init__.py").exists())]:
            prefix = module_name(folder / "__init__.py") + "."

            def child(name, prefix=prefix):
                return name[len(prefix) :].split(".")[0] if name.startswith(prefix) else None

            edges = {}
            for path in FILES:
                here = child(module_name(path))
                if here:
                    edges.setdefault(here, set()).update({child(n) for n, _ in imports(path)} - {None, here})
            found += [f"{prefix[:-1]}: {cycle}" for cycle in cycles_in(edges)]
    check(found)


def test_report_and_definition_do_not_know_each_other():
    def wrong(path, name):
        pair = {module_name(path), name}
        return all(any(n.startswith(f"orchestration.{r}.") for n in pair) for r in ("report", "definition"))

    check(complaints(FILES, wrong))


@pytest.mark.parametrize("folder", sorted({p.parent for p in FILES}), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_folder_is_crowded(folder):
    modules = [p.name for p in folder.glob("*.py") if p.name != "__init__.py"]
    assert len(modules) <= MAX_MODULES or folder.name == "cli", f"{folder} holds {len(modules)} modules: {modules}"


def cycles_in(edges):
    """Every circle that a walk over ``edges`` (name -> names) meets, as text."""
    state, cycles = {}, []

    def visit(module, trail):
        state[module] = "open"
        for target in sorted(edges.get(module, ())):
            if state.get(target) == "open":
                cycles.append(" -> ".join([*trail[trail.index(target) :], target]))
            elif target not in state:
                visit(target, [*trail, target])
        state[module] = "done"

    for module in sorted(edges):
        if module not in state:
            visit(module, [module])
    return cycles


def test_no_import_cycles():
    edges = {module_name(path): {name for name, _ in imports(path) if name in MODULES} - {module_name(path)} for path in FILES}
    check(cycles_in(edges))


@pytest.mark.parametrize("path", [p for p in FILES if p.name == "__init__.py"], ids=lambda p: str(p.relative_to(ROOT)))
def test_packages_re_export_nothing(path):
    body = tree(path).body
    assert all(isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) for n in body), f"{path} may hold a docstring only"


def test_every_third_party_import_is_declared():
    needed, everything = declared()
    missing = complaints(
        FILES, lambda path, name: is_third_party(name) and distribution(name) not in needed and not (is_suite(path) and name == "pytest")
    )
    missing += complaints(TESTS, lambda path, name: is_third_party(name) and distribution(name) not in everything)
    check(missing)


def test_every_declared_dependency_is_imported():
    needed, _ = declared()
    used = {distribution(name) for path in FILES for name, _ in imports(path) if is_third_party(name)}
    check([f"{name} is declared in pyproject.toml but imported nowhere" for name in sorted(needed - used)])


def test_a_name_stands_for_one_class():
    """But for the sections of a sweep, which are called what they are called in YAML (`orchestration.definition.models`)."""
    where = {}
    for path in FILES:
        if module_name(path) != "orchestration.definition.models":
            for node in tree(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    where.setdefault(node.name, []).append(module_name(path))
    check([f"{name} is a class of {' and of '.join(modules)}" for name, modules in sorted(where.items()) if len(modules) > 1])


COMPILED = ("loop", "part", "fast_loop")
"""Decorators of `envs.problem.compiled`."""


def test_files_are_short():
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in (*FILES, *TESTS)}
    check([f"{path} has {n} lines" for path, n in lengths.items() if n > MAX_FILE])


def test_functions_are_short():
    long = []
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = node.end_lineno - node.lineno + 1
                compiled = any("njit" in (name := ast.unparse(d)) or name in COMPILED for d in node.decorator_list)
                if lines > (MAX_COMPILED if compiled else MAX_FUNCTION):
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {lines} lines")
    check(long)


MAX_LATE = 40
"""Imports inside functions outside ``cli/``: heavy libraries, where something light would wait for them."""


def test_imports_stand_at_the_top():
    late = []
    for path in FILES:
        if path.parent.name == "cli":
            continue
        functions = [n for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        inside = {id(n): n for f in functions for n in ast.walk(f) if isinstance(n, ast.Import | ast.ImportFrom)}
        late += [f"{path.relative_to(ROOT)}:{n.lineno} {ast.unparse(n)}" for n in inside.values()]
    assert len(late) <= MAX_LATE, "\n".join(late)


def test_most_functions_are_very_short():
    lengths = sorted(
        n.end_lineno - n.lineno + 1 for path in FILES for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assert lengths[9 * len(lengths) // 10] <= 20, "a tenth of the functions has more than 20 lines"
