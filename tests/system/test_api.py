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
import heddle.api.decide
import heddle.api.exchange
import heddle.api.graphs
import heddle.api.look
import heddle.api.training
import heddle.training.loop
from heddle.cli.app import PANELS
from heddle.cli.exchange.trainers import EXPORTED, IMPORTED
from heddle.planning.fields import FIELDS
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
        parts = (getattr(heddle.api, name) for name in ("decide", "exchange", "graphs", "look", "training"))
        found = [doctest.testmod(part) for part in parts]
    assert sum(each.attempted for each in found) > 15
    assert not any(each.failed for each in found)


ORDERS = {
    "a part first": "import heddle.training.loop, heddle.planning.search.search, heddle.capturing.placed",
    "the package first": "import heddle; import heddle.training.loop, heddle.planning.search.search",
    "from": "from heddle.training.loop import train; from heddle.planning import search; import heddle",
    "as": "import heddle.training.loop as loop, heddle.planning.search.search as search; import heddle",
    "by name": "import importlib; importlib.import_module('heddle.training.loop'); import heddle",
}
AFTERWARDS = """
import inspect, sys
for name in ("train", "plan", "simulate", "capture", "report"):
    function = getattr(heddle, name)
    assert inspect.isfunction(function), name
    assert callable(function)
import heddle.training.loop, heddle.planning.search.search
assert inspect.isfunction(heddle.train)
assert heddle.training.loop is sys.modules["heddle.training.loop"]
assert heddle.planning.search.search.search is sys.modules["heddle.planning.search.search"].search
import heddle.training.loop as loop
assert loop is sys.modules["heddle.training.loop"]
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


# What each command is called in Python, and the reason where it is not a function.
CALLED = {
    "demo": "a show for the terminal, made of the other commands",
    "models": "a list for the terminal",
    "meeting": "a server that runs until the run ends",
    "explore": "a page in the browser",
    "watch": "a page in the browser",
    "tiles bench": "heddle.tiles.compile makes what is timed",
    "tiles simulate": "heddle.tiles.compile makes what is simulated",
    "tiles trace": "heddle.tiles.compile makes what is traced",
    "lanes pack": "heddle.lanes.compile",
    "lanes bench": "heddle.lanes.compile makes what is compared",
    "lanes train": "makes weights for heddle.lanes.compile",
    "schedule": heddle.build_schedule,
    "calibrate": heddle.fit_cluster,
    "trace": heddle.read_trace,
    "data prepare": heddle.prepare_data,
    "data look": heddle.look_at_data,
    "import hf": heddle.import_hf,
    "import dcp": heddle.import_dcp,
    "export hf": heddle.export_hf,
    "export peft": heddle.export_peft,
    **{f"export {name}": heddle.export_plan for name in EXPORTED},
    **{f"import {name.replace('-', '_')}": heddle.import_plan for name in IMPORTED},
}
SHOWN = {"as_json", "explain", "open_it", "every"}  # how a command prints what it found
# Choices that a function has in another form, or not at all.
ELSEWHERE = {
    "plan": {"free", "output", "price"}  # what is fixed is said, not read; the result is a value, and has dollars()
    | {
        "changes",
        "model",
        "cluster",
        "nodes",
        "global_batch",
        "sequence_length",
        "precision",
        "network",
    }  # of heddle.job, load_job
    | {each.option.name or each.name for each in FIELDS if each.option},  # fixed
    # properties of the result; load_job; heddle.simulating.failures
    "simulate": {"plan", "memory", "tokens", "price", "trace", "changes", "mtbf", "restart", "checkpoint"},
    "schedule": {"parts", "message", "hold", "output"},  # of searched orders: heddle.plan
    "data look": {"sequence"},  # a method of the result
    "profile": {"output"},
    "probe": {"output", "compare"},
    "calibrate": {"output"},
    "train": {"name", "changes", "dry_run"},  # of load_job; heddle.dry_run
    "launch": {"job", "slurm", "torchrun", "mpi", "kubernetes", "kubeflow", "skypilot"},  # path, launcher
    "prove": {"changes"},
    "generate": {"count"},  # call it again with another seed
    "trace": {"output"},
    "piper": {"file", "microbatch", "counts", "output"},  # of a job: the command alone reads one
    "place": {"graph", "memory_gib", "output"},  # what, memory
    "regions": {"job"},  # heddle.plan of a job with a network
    **{f"export {name}": {"output", "changes"} for name in EXPORTED},  # the text is a value; load_job
    # line; of the model; heddle.plan; heddle.simulate
    **{f"import {name.replace('-', '_')}": {"given", "output", "vocab", "search"} for name in IMPORTED},
}


def commands():
    """Every command of the command line, by its name."""
    for entries in PANELS.values():
        for entry in entries:
            if isinstance(entry, tuple):
                for command in entry[1].registered_commands:
                    yield f"{entry[0]} {command.callback.__name__}", command.callback
            else:
                yield entry.__name__, entry


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=[name for name, _ in commands()])
def test_a_function_has_the_choices_of_its_command(name, command):
    called = CALLED[name] if name in CALLED else getattr(heddle, name)
    words = re.sub(r"\s+", " ", PAGE.read_text(encoding="utf-8"))
    if isinstance(called, str):
        assert f"`heddle {name.split()[0]}" in words
        return
    missing = set(inspect.signature(command).parameters) - set(inspect.signature(called).parameters) - SHOWN
    assert missing == ELSEWHERE.get(name, set())


def test_what_is_not_a_job_or_a_cluster_is_a_mistake_in_three_parts(tmp_path):
    for call in (heddle.plan, heddle.simulate, heddle.dry_run, heddle.prove, heddle.train):
        for wrong in ({}, None, 3, ["job.toml"]):
            with pytest.raises(heddle.HeddleError, match=r"A job is a heddle\.Job or the path of its file") as raised:
                call(wrong)
            assert raised.value.hint
    with pytest.raises(heddle.HeddleError, match=r"A cluster is a heddle\.Cluster"):
        heddle.fit_cluster({}, "rows.csv")
    with pytest.raises(heddle.HeddleError, match="no launcher 'pbs'"):
        heddle.launch(write_job(tmp_path), "pbs")


def test_a_job_made_in_python_is_the_one_that_a_file_describes(tmp_path):
    tables = {"data": {"text": "-"}, "train": {"steps": 5}, "plan": {"tensor": 2}}
    made = heddle.job("gpt2", cluster="dgx-h100", nodes=2, global_batch=16, sequence_length=512, **tables)
    text = """[model]\npreset = "gpt2"\n[cluster]\npreset = "dgx-h100"\nnodes = 2\n[plan]\ntensor = 2\n"""
    (tmp_path / "job.toml").write_text(
        text + """[train]\nsteps = 5\nglobal_batch = 16\nsequence = 512\n[data]\ntext = "-"\n"""
    )
    read = heddle.load_job("job.toml")
    assert replace(made, data=None) == replace(read, data=None)
    own = heddle.job({"layers": 2, "hidden": 8, "heads": 2, "vocab": 16, "sequence": 8}, cluster={"preset": "dgx-h100"})
    assert own.model.layers == 2
    with pytest.raises(heddle.HeddleError, match="no model preset 'gpt5'"):
        heddle.job("gpt5")
    with pytest.raises(heddle.HeddleError, match="'model' is not a table"):
        heddle.job(3)


def test_help_reads_like_a_page():
    page = inspect.getdoc(heddle)
    for name in FUNCTIONS:
        assert re.search(rf"\b{name}\b", page), name


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


def test_a_page_is_written_about_a_job_and_about_what_a_search_found(tmp_path):
    job = heddle.job("tiny", cluster="dgx-h100", nodes=1, global_batch=16, train={"name": "woven"})
    for number, subject in enumerate((job, heddle.plan(job, top=1).job)):
        page = heddle.report(subject, output=tmp_path / f"{number}.html")
        assert "woven" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda job: heddle.launch(job, "slurm"), r"path of a job file, not a Job(.|\n)*dumps_job"),
        (lambda job: heddle.compare(job, job), "path of a job file or a run's folder, not a Job"),
        (heddle.load_job, "path of a job file, not a Job"),
        (heddle.read_trace, "path of a run's folder, not a Job"),
        (heddle.inspect, "path of a run, a checkpoint"),
        (heddle.generate, "path of a run's folder, a checkpoint"),
        (lambda job: heddle.plan(job, top=0), "top must be a whole number of at least 1, got 0"),
        (lambda job: heddle.plan(job, devices=2.5), "devices must be a whole number of at least 1, got 2.5"),
    ],
)
def test_what_a_function_cannot_take_is_told(call, says):
    job = heddle.job("tiny", cluster="dgx-h100", nodes=1, global_batch=16)
    with pytest.raises(heddle.HeddleError, match=says) as told:
        call(job)
    assert told.value.why
    assert told.value.hint
