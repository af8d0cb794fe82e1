"""The Python interface: what users call, with real signatures, however its parts were imported."""

from __future__ import annotations

import ast
import doctest
import inspect
import pickle
import re
import subprocess
import sys
from contextlib import chdir
from dataclasses import replace

import pytest

import heddle
import heddle.api
import heddle.train.loop
from tests.helpers.commands import ENVIRONMENT, REPOSITORY, write_job
from tests.helpers.launching import python

PAGE = REPOSITORY / "docs" / "reference/api.md"
FUNCTIONS = [name for name in heddle.__all__ if inspect.isfunction(getattr(heddle, name))]


def test_dir_shows_what_users_call_and_nothing_else():
    assert dir(heddle) == sorted(heddle.__all__)
    assert all(getattr(heddle, name) is not None for name in heddle.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = heddle.nothing


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_plain_typed_and_described(name):
    function = getattr(heddle, name)
    signature = inspect.signature(function)
    assert "args" not in signature.parameters
    assert "kwargs" not in signature.parameters
    assert all(each.annotation is not inspect.Parameter.empty for each in signature.parameters.values())
    assert signature.return_annotation is not inspect.Signature.empty
    described = inspect.getdoc(function)
    assert described
    assert type(function).__name__ == "function"
    named = set(re.findall(r"^    (\w+): ", described, flags=re.MULTILINE))
    assert named <= set(signature.parameters)
    assert len(signature.parameters) < 2 or named == set(signature.parameters), "every argument is explained, or none"
    assert pickle.loads(pickle.dumps(function)) is function


def test_the_documented_examples_run():
    with chdir(REPOSITORY):
        found = doctest.testmod(heddle.api)
    assert found.attempted > 15
    assert not found.failed


ORDERS = {
    "a part first": "import heddle.train.loop, heddle.plan.search.search, heddle.capture.placed, heddle.report.page",
    "the package first": "import heddle; import heddle.train.loop, heddle.plan.search.search, heddle.simulate.chunks",
    "from": "from heddle.train.loop import train; from heddle.plan import search; import heddle",
    "as": "import heddle.train.loop as loop, heddle.plan.search.search as search; import heddle",
    "by name": "import importlib; importlib.import_module('heddle.train.loop'); import heddle",
}
AFTERWARDS = """
import inspect, sys
for name in ("train", "plan", "simulate", "capture", "report"):
    function = getattr(heddle, name)
    assert inspect.isfunction(function), name
    assert callable(function)
import heddle.train.loop, heddle.plan.search.search
assert inspect.isfunction(heddle.train)
assert heddle.train.loop is sys.modules["heddle.train.loop"]
assert heddle.plan.search.search.search is sys.modules["heddle.plan.search.search"].search
import heddle.train.loop as loop
assert loop is sys.modules["heddle.train.loop"]
from heddle import train, plan
assert train is heddle.train and plan is heddle.plan
"""


def test_functions_stay_functions_whatever_is_imported_when():
    code = "\n".join(
        f"""
def order_{number}():
    for name in [name for name in sys.modules if name.partition('.')[0] == 'heddle']:
        del sys.modules[name]
    space = {{}}
    exec({(order + AFTERWARDS)!r}, space)
order_{number}()
"""
        for number, order in enumerate(ORDERS.values())
    )
    process = python("-c", "import sys\nimport torch\n" + code, cwd=REPOSITORY)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def test_importing_heddle_imports_neither_torch_nor_numpy():
    code = "import heddle, sys; dir(heddle); heddle.train; heddle.Job; print({'torch', 'numpy'} & set(sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=ENVIRONMENT | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "set()\n"


def test_training_from_python_after_its_loop_was_imported(tmp_path):
    job = heddle.load_job(write_job(tmp_path), ["train.steps=2"])
    result = heddle.train(job)
    assert result.step == 2
    assert result.run.name == "small"
    again = heddle.train(replace(job, train=replace(job.train, steps=3)), resume=True)
    assert again.first_step == 2
    text = heddle.generate(result.run, "The weaver", tokens=4, seed=1)
    assert text == heddle.generate(str(result.run), "The weaver", tokens=4, seed=1)
    page = heddle.report(result.run, output="page.html")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(heddle.HeddleError, match="exists already"):
        heddle.train(str(tmp_path / "job.toml"))


def test_reprs_are_short():
    job = heddle.load_job(REPOSITORY / "examples" / "plans" / "gpt3-175b.toml")
    made = [
        job,
        heddle.plan(job, top=3),
        heddle.simulate(job),
        heddle.simulate(job).trace,
        heddle.place(REPOSITORY / "examples" / "operators.json"),
        heddle.piper(REPOSITORY / "examples" / "layers.json", devices=4),
    ]
    for each in made:
        assert len(repr(each)) < 200
        assert repr(each).startswith(f"<{type(each).__name__}")


def test_the_page_names_every_function_and_its_arguments():
    page = PAGE.read_text(encoding="utf-8")
    for name in heddle.__all__:
        assert f"`heddle.{name}" in page, name
    for name in FUNCTIONS:
        section = re.search(rf"^## `heddle\.{name}\((.*?)\)`$", page, flags=re.MULTILINE)
        assert section, name
        wanted = [f"{key}={key}" for key in re.findall(r"\w+", section[1])]
        assert [word.partition("=")[0] for word in wanted] == list(inspect.signature(getattr(heddle, name)).parameters)


def test_the_page_runs(tmp_path):
    """Its Python blocks, one after the other, in a folder with the examples."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    write_job(tmp_path)
    with chdir(tmp_path):
        for block in blocks:
            ast.parse(block)
            exec(compile(block, str(PAGE), "exec"), {"__name__": "__main__"})
