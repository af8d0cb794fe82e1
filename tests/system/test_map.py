"""The house is as its map says: imports go one way, no file goes in circles, no room and no file outgrows its idea."""

import ast
from functools import cache
from pathlib import Path

import pytest

from heddle.rooms import FIRST_WITH_TORCH, ROOMS
from tests.helpers.commands import REPOSITORY

PACKAGE = REPOSITORY / "heddle"
ORDER = list(ROOMS)
MOST_FILES, MOST_LINES, MOST_OF_A_FUNCTION = 15, 320, 60
APART = ("plan/search", "plan/piper", "plan/placement")  # these import nothing from each other
DOCUMENTED = {"heddle/api.py"}  # what users call, each with its documentation


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path, top_only: bool = False) -> set[str]:
    """What a file imports, wherever it does; of Heddle's own the modules, of others the first word."""
    found: set[str] = set()
    nodes = tree(path).body if top_only else list(ast.walk(tree(path)))
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & modules().keys()
            found |= inside or {node.module}
    return {name if name.partition(".")[0] == "heddle" else name.partition(".")[0] for name in found}


def room_of(module: str) -> str:
    return module.split(".")[1] if module.count(".") else ""


def test_the_map_names_every_room():
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(ROOMS)
    table = [
        line.split("|")[1:3]
        for line in (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| `heddle/")
    ]
    assert [(name.strip(" `").removeprefix("heddle/"), about.strip()) for name, about in table] == list(ROOMS.items())


@pytest.mark.parametrize("room", ROOMS)
def test_no_import_goes_against_the_map(room):
    below = set(ORDER[ORDER.index(room) + 1 :])
    against = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in (PACKAGE / room).rglob("*.py")
        for name in imports(path)
        if room_of(name) in below
    ]
    assert not against


@pytest.mark.parametrize("room", ORDER[: ORDER.index(FIRST_WITH_TORCH)])
def test_what_decides_and_shows_never_mentions_torch(room):
    assert not [path for path in (PACKAGE / room).rglob("*.py") if "torch" in imports(path)]


def test_no_file_imports_itself_by_way_of_others():
    # what users call is imported by `heddle` itself when it is asked for, and every file may ask it for its version
    wants = {name: imports(path) & modules().keys() - {name, "heddle"} for name, path in modules().items()}
    # a package's __init__ hands on what its files hold: that they name their own package is no circle
    left = {name: {other for other in others if not name.startswith(f"{other}.")} for name, others in wants.items()}
    while free := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in free}
    assert not left


def test_planners_know_nothing_of_each_other():
    for folder in APART:
        others = [other.replace("/", ".") for other in APART if other != folder]
        for path in (PACKAGE / folder).rglob("*.py"):
            assert not [name for name in imports(path) if name.startswith(tuple(f"heddle.{other}" for other in others))]


def test_no_room_and_no_file_outgrows_its_idea():
    folders = {path.parent for path in modules().values()}
    full = {
        str(folder.relative_to(REPOSITORY)): count
        for folder in folders
        if (count := sum(path.name != "__init__.py" for path in folder.glob("*.py"))) > MOST_FILES
    }
    assert not full
    long = {
        str(path.relative_to(REPOSITORY)): count
        for path in modules().values()
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > MOST_LINES
    }
    assert long.keys() <= DOCUMENTED


def test_long_functions_have_a_reason():
    """Which is that they declare a command's options, a line or two each."""
    long = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name} {node.end_lineno - node.lineno + 1}"
        for name, path in modules().items()
        if room_of(name) not in ("api", "cli")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= MOST_OF_A_FUNCTION
    ]
    assert not long
