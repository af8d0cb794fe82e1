"""The house is as its map says: imports go one way, no file goes in circles, sizes stay within a budget."""

import ast
from functools import cache
from pathlib import Path

import pytest

from heddle.rooms import FIRST_WITH_TORCH, ROOMS
from heddle.schedule import NAMES
from tests.helpers.commands import REPOSITORY

PACKAGE = REPOSITORY / "heddle"
ORDER = list(ROOMS)
# Sizes are a budget for the whole, not a wall for each: split by idea, never because a counter stands at its end.
LONG_FILE, LONG_FUNCTION, FULL_ROOM = 320, 60, 16
LONGEST_FILE, LONGEST_FUNCTION, FULLEST_ROOM = 500, 100, 25
APART = ("planning/search", "planning/piper", "planning/placement")  # these import nothing from each other


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


def test_no_two_public_classes_share_a_name():
    where: dict[str, list[str]] = {}
    for name, path in modules().items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(name)
    assert {name: files for name, files in where.items() if len(files) > 1} == {}


def within_budget(sizes: dict[str, int], long: int, longest: int, share: float) -> str:
    """What a size report says against its budget: nothing, or which are too large and where to look first."""
    over = sorted(((size, name) for name, size in sizes.items() if size > long), reverse=True)
    if len(over) <= share * len(sizes) and (not over or over[0][0] <= longest):
        return ""
    return f"{len(over)} of {len(sizes)} above {long} (at most {share:.0%} may be, none above {longest}): {over}"


def test_rooms_and_files_stay_within_their_budget():
    rooms: dict[str, int] = {}
    for path in modules().values():
        folder = str(path.parent.relative_to(REPOSITORY))
        rooms[folder] = rooms.get(folder, 0) + (path.name != "__init__.py")
    assert not within_budget(rooms, FULL_ROOM, FULLEST_ROOM, share=0.15)
    files = {str(path.relative_to(REPOSITORY)): path.read_text("utf-8").count("\n") for path in modules().values()}
    files.pop("heddle/spec/hf/families.py")  # a table: a few lines for each family
    assert not within_budget(files, LONG_FILE, LONGEST_FILE, share=0.05)


def test_functions_stay_within_their_budget():
    """Those that declare a command's options, a line or two each, are not counted."""
    functions = {
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for name, path in modules().items()
        if room_of(name) not in ("api", "cli")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef)
    }
    assert not within_budget(functions, LONG_FUNCTION, LONGEST_FUNCTION, share=0.005)


def test_only_one_file_makes_consoles_and_none_reads_markup():
    """What a user wrote, such as the name of a run, is printed as it is: "n[bold]" has no style in it."""
    for name, path in modules().items():
        text = path.read_text(encoding="utf-8")
        calls = [node.func for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
        made = [each for each in calls if isinstance(each, ast.Name) and each.id == "Console"]
        assert not made or name == "heddle.console", f"{name}: use heddle.console.plain_console()"
        assert "from_markup" not in text, name


def test_only_its_own_room_knows_a_schedule_by_name():
    """Others ask for what it does: a new schedule is one file and one line."""
    reads_notes = PACKAGE / "calibrate" / "runs_csv.py"  # of people who measured, in their words
    named = {
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.value}"
        for path in modules().values()
        if path != reads_notes and path.parts[len(PACKAGE.parts)] != "schedule"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and node.value in NAMES
    }
    assert named == set()
