"""The contributor pages name files, functions and tests: all of them are there."""

import ast
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import traceback
from contextlib import chdir
from functools import cache
from pathlib import Path

import pytest

from heddle.parallel.pipeline.transformer import Pipeline
from heddle.schedule import NAMES
from heddle.training.step.trainer import Trainer
from tests.helpers.commands import REPOSITORY, call, write_job

PAGES = sorted(page for page in (REPOSITORY / "docs/contribute").glob("*.md") if page.name != "release.md")
PACKAGE = str(REPOSITORY / "heddle") + os.sep
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
    """The page has all of its lines, a remark aside; and they are few."""
    page = (REPOSITORY / "docs/contribute/walk-a-step.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    shown = [line.split("  #")[0] for line in block.splitlines()]
    written = inspect.getsource(Trainer.start_step).partition('"""')[2].partition('"""')[2].strip("\n")
    assert shown == textwrap.dedent(written).splitlines()
    assert len(shown) <= 15


def test_the_executor_is_few_calls_away_from_the_command(tmp_path, monkeypatch):
    """Processes that are started add the three of heddle.runtime.launch: ten in all."""
    seen = []

    def run(self, *arguments):
        names = [frame.name for frame in traceback.extract_stack() if frame.filename.startswith(PACKAGE)]
        seen.append(names[names.index("train") :])
        return plain(self, *arguments)

    plain = Pipeline.run
    monkeypatch.setattr(Pipeline, "run", run)
    with chdir(write_job(tmp_path).parent):
        assert call("train", "job.toml", "--set", "train.steps=1") == 0
    assert len(seen[0]) + 1 <= 10 - 3, seen[0]


PROMISED = """
import sys
import numpy as np
from heddle.schedule import NAMES, RULES, build, verify
from heddle.simulating.replay import replay
assert build.__globals__["__file__"].startswith(sys.argv[1]), "not the copy"
(name,) = set(NAMES) - set(sys.argv[2:])
rule = RULES[name]
for pipeline in (1, 2, 3, 4):
    for microbatches in (1, 2, 3, 5, 8):
        schedule = build(name, pipeline, microbatches, rule.usual_virtual)
        held = rule.in_flight(pipeline, microbatches, rule.usual_virtual, np.arange(pipeline))
        assert verify(schedule).peak_stash == tuple(held.tolist())
        bubble = rule.bubble(pipeline, microbatches, rule.usual_virtual)
        assert abs(replay(schedule, 1.0, 2.0).bubble - bubble) < 1e-9
"""
JOB = """[model]
preset = "gpt2-xl"
[cluster]
preset = "dgx-a100-80gb"
nodes = 1
[data]
text = "corpus.txt"
[train]
global_batch = 32
[plan]
pipeline = 8
schedule = "early-1f1b"
"""


def test_the_recipe_for_a_schedule_works_on_a_copy(tmp_path):
    """One file and one line, as the page has them; then what it promises: drawn, simulated, and searched among."""
    package = tmp_path / "heddle"
    package.mkdir()
    for entry in (REPOSITORY / "heddle").iterdir():
        if entry.name != "schedule":
            (package / entry.name).symlink_to(entry)
    shutil.copytree(REPOSITORY / "heddle/schedule", package / "schedule", ignore=shutil.ignore_patterns("__pycache__"))
    page = (REPOSITORY / "docs/contribute/add-a-schedule.md").read_text(encoding="utf-8")
    code = dict(re.findall(r'^```python title="(.*?)"\n(.*?)^```$', page, flags=re.MULTILINE | re.DOTALL))
    rules = package / "schedule/rules"
    before = sorted(path.name for path in rules.iterdir())
    (rules / "early_one_f_one_b.py").write_text(code.pop("early_one_f_one_b.py"), encoding="utf-8")
    (line,) = code.pop("__init__.py").splitlines()
    with (rules / "__init__.py").open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    assert sorted(path.name for path in rules.iterdir()) == sorted([*before, "early_one_f_one_b.py"])
    assert not code

    def run(script: str, *arguments: str) -> str:
        command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{script}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(PROMISED, str(tmp_path), *NAMES)
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    main = "from heddle.cli import main; main()"
    assert "complete, no deadlock" in run(main, "schedule", "early-1f1b", "-p", "4", "-m", "6")
    assert "pipeline 8" in run(main, "simulate", "job.toml")
    found = json.loads(run(main, "plan", "job.toml", "--free", "--schedule", "early-1f1b", "--pipeline", "8", "--json"))
    assert {each["plan"]["schedule"] for each in found["plans"]} == {"early-1f1b"}
