"""The contributor pages name files, functions and tests: all of them are there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.commands import REPOSITORY

PAGES = sorted((REPOSITORY / "docs/contribute").glob("*.md"))
RECIPES = [page for page in PAGES if page.name.startswith("add-")]
# `heddle/…`, `tests/…` and `docs/…` are paths; `name()` belongs to a file of the same item or paragraph, `NAME` to any
PATH = re.compile(r"`((?:heddle|tests|docs)/[\w./-]*|CHANGELOG\.md)`")
FUNCTION = re.compile(r"`(\w+)\(\)`")
CONSTANT = re.compile(r"`(_?[A-Z][A-Z_]{3,})`")


@cache
def functions(path: Path) -> set[str]:
    """Every function and method that a file defines, those inside others too."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def passages(page: Path) -> list[str]:
    """Items of lists and paragraphs: what a reader takes in at once."""
    return re.split(r"\n\s*\n|\n(?=\s*(?:\*|\d+\.) )", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_is_named_is_there(page):
    named = PATH.findall(page.read_text(encoding="utf-8"))
    assert len(named) > 5
    assert [name for name in named if not (REPOSITORY / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_function_is_in_a_file_named_beside_it(page):
    missing, here = [], set()
    for passage in passages(page):
        # a passage that names no file speaks of those that the page has named before it
        own = {REPOSITORY / name for name in PATH.findall(passage) if name.endswith(".py")}
        here |= own
        known = set().union(*map(functions, here))
        missing += [name for name in FUNCTION.findall(passage) if name not in known]
    assert missing == []


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.name)
def test_every_constant_is_in_a_file_of_the_page(page):
    text = page.read_text(encoding="utf-8")
    files = [REPOSITORY / name for name in PATH.findall(text) if name.endswith(".py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    wanted = set(CONSTANT.findall(text)) - {"NAME"}
    assert {name for name in wanted if not re.search(rf"^{name}\b", code, flags=re.MULTILINE)} == set()


def test_the_step_is_shown_as_it_is_written():
    """The lines of the excerpt are lines of the trainer, in its order; a remark aside."""
    page = (REPOSITORY / "docs/contribute/walk-a-step.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    source = (REPOSITORY / "heddle/train/step/trainer.py").read_text(encoding="utf-8")
    at = 0
    for line in block.splitlines():
        at = source.index(line.split("  #")[0].strip(), at) + 1
