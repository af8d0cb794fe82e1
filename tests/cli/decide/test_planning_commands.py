"""`heddle piper` and `heddle place`, and the pages that show what they print."""

import json
import re
import shlex
from pathlib import Path

import pytest

from heddle.planning.placement.text import in_short
from tests.helpers.commands import REPOSITORY, blocks, call
from tests.helpers.piper_check import evaluate as evaluate_pipeline
from tests.helpers.placement_check import evaluate as evaluate_placement

LAYERS, OPERATORS = REPOSITORY / "examples" / "layers.json", REPOSITORY / "examples" / "operators.json"


def words(line):
    return [word.replace("examples/", f"{REPOSITORY}/examples/") for word in shlex.split(line)[1:]]


@pytest.mark.parametrize("name", ["piper", "placement"])
def test_the_page_shows_what_is_printed(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    page = REPOSITORY / "docs" / "decide" / f"{name}.md"
    for line in "".join(blocks(page, "sh")).splitlines():
        assert call(*words(line)) == 0, line
    for block in blocks(page, "console"):
        command, _, shown = block.removeprefix("$ ").partition("\n")
        capsys.readouterr()
        assert call(*words(command)) == 0
        untimed = [
            re.sub(r"[\d.]+ s$", "", text.rstrip(), flags=re.MULTILINE) for text in (capsys.readouterr().out, shown)
        ]
        assert untimed[0].split("\n") == untimed[1].split("\n")


def test_piper_as_json_is_a_plan(capsys):
    assert call("piper", LAYERS, "--devices", "16", "--memory-gib", "4", "--json", "--also", "8") == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"value", "devices", "stages", "seconds"} <= set(answer)
    value, _ = evaluate_pipeline(json.loads(LAYERS.read_text()), answer["stages"], 16, 4 * 2**30)
    assert value == pytest.approx(answer["value"])
    assert answer["also"]["8"] > answer["value"]


def test_place_as_json_and_as_published(capsys):
    assert call("place", OPERATORS, "--json", "-o", "placement.json", "--devices", "3") == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"value", "lower_bound", "optimal", "method", "seconds", "devices"} <= set(answer)
    loads = evaluate_placement(json.loads(OPERATORS.read_text()), answer["devices"], 2**31)
    assert max(loads) == pytest.approx(answer["value"])
    published = json.loads(Path("placement.json").read_text(encoding="utf-8"))
    assert published["maxLoad"] == answer["value"]
    assert len(published["fpgas"]) == 3
    assert [part["nodes"] for part in published["cpus"]] == [answer["devices"][-1]["operators"]]


def test_a_module_is_placed_like_a_graph(capsys):
    towers = f"{REPOSITORY}/examples/towers.py:make"
    assert call("place", towers, "--times", "modeled", "--json", "-o", "placement.json", "--devices", "3") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["optimal"]
    assert len(answer["devices"]) == 3
    published = json.loads(Path("placement.json").read_text(encoding="utf-8"))
    assert published["maxLoad"] == answer["value"]
    assert call("place", towers, "--cluster", "dgx-a100-80gb") == 0
    assert "optimal among pipelines" in capsys.readouterr().out


LEAVING = """
import sys
import torch

def make():
    sys.exit(3)

class Leaving(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
    def forward(self, x):
        return self.linear(sys.exit(4))

def later():
    return Leaving(), (torch.zeros(2),)

def function():
    return make, (torch.zeros(2),)

def tensor():
    return Leaving(), torch.zeros(2)
"""


def test_mistakes_in_a_module_are_told(capsys):
    Path("broken.py").write_text("x = 1\nraise ValueError('no')\n", encoding="utf-8")
    Path("wrong.py").write_text("def one():\n    return 1\n\ndef bad():\n    return 1 / 0\n", encoding="utf-8")
    Path("leaving.py").write_text(LEAVING, encoding="utf-8")
    Path("gone.py").write_text("raise SystemExit('bye')\n", encoding="utf-8")
    for source, told in (
        ("none.py:make", "There is no file none.py"),
        ("broken.py:make", "broken.py cannot be imported: ValueError: no\n  It was raised at line 2."),
        ("wrong.py:on", "wrong.py has no function 'on'.\n  It is called to get the module.\n  Did you mean 'one'?"),
        ("wrong.py", "wrong.py names no function."),
        ("wrong.py", "heddle place wrong.py:bad. Functions there: one, bad."),
        ("broken.py", "heddle place broken.py:make"),
        ("wrong.py:one", "one() of wrong.py returns a int."),
        ("wrong.py:bad", "ZeroDivisionError: division by zero\n  It was raised at line 5."),
        ("gone.py:make", "gone.py cannot be imported: it asks Python to exit, with 'bye'\n  It was raised at line 1."),
        ("leaving.py:make", "make() of leaving.py failed: it asks Python to exit, with 3\n  It was raised at line 6."),
        ("leaving.py:later", "self.linear(sys.exit(4)) – it asks Python to exit, with 4."),
        ("leaving.py:function", "function() of leaving.py returns a function as its module."),
        ("leaving.py:tensor", "tensor() of leaving.py returns a Tensor as its inputs."),
    ):
        commands = [("place", source)]
        commands += [("tiles", "simulate", source)] if source.startswith("leaving") else []
        for command in commands:
            assert call(*command) == 2
            assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("piper", LAYERS, "--devices", "0"), "--devices must be in [1, 1e9], got 0"),
        (("piper", LAYERS, "--memory-gib", "0.1"), "No plan fits 16 devices of 0.1 GiB"),
        (("piper", LAYERS, "--also", "99"), "--also must be in [1, 16], got 99"),
        (("piper", OPERATORS), "lacks 'bandwidth'"),
        (("piper", "none.json"), "There is no file none.json"),
        (("place", OPERATORS, "--devices", "0", "--cpus", "0"), "0 accelerators and 0 CPUs"),
        (("place", OPERATORS, "--cpus", "0", "--memory-gib", "0.2"), "text embedding (node 5) fits no device"),
        (("place", OPERATORS, "--method", "dpp"), "There is no method 'dpp'"),
        (("place", OPERATORS, "--time-limit", "0"), "--time-limit must be in (0, 1e9], got 0"),
    ],
)
def test_mistakes_are_told_with_exit_code_2(arguments, told, capsys):
    assert call(*arguments) == 2
    assert told in capsys.readouterr().err


LOSSY = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(6))
        self.head = torch.nn.Linear(16, 5)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)

def make():
    return Net(), (torch.ones(4, 16), torch.zeros(4, dtype=torch.long))

def twice(output, target):
    return 2 * torch.nn.functional.cross_entropy(output, target)
"""


def test_a_module_is_placed_for_training_with_a_loss(capsys):
    Path("net.py").write_text(LOSSY)
    Path("other.py").write_text(LOSSY)
    answers = {}
    for loss in ("cross_entropy", "twice", "other.py:twice"):
        assert call("place", "net.py:make", "--loss", loss, "--times", "modeled", "--json") == 0
        answers[loss] = json.loads(capsys.readouterr().out)
        assert answers[loss]["unit"] == "ms"
    operators = {loss: sum(len(d["operators"]) for d in answer["devices"]) for loss, answer in answers.items()}
    assert operators["cross_entropy"] < operators["twice"] == operators["other.py:twice"]
    assert any("'" in operator for device in answers["twice"]["devices"] for operator in device["operators"])
    assert call("place", "net.py:make", "--loss", "cros_entropy", "--times", "modeled") == 2
    assert "Did you mean 'cross_entropy'?" in capsys.readouterr().err
    assert call("place", OPERATORS, "--loss", "cross_entropy") == 2
    assert "--loss does not apply to" in capsys.readouterr().err


def test_units_and_what_goes_where_are_printed(capsys):
    Path("net.py").write_text(LOSSY)
    assert call("place", "net.py:make", "--loss", "cross_entropy", "--times", "modeled") == 0
    said = capsys.readouterr().out
    assert re.search(r"^accelerator 0 +█+ +[\d.]+ ms  \d+ operators", said, flags=re.MULTILINE)
    assert "milliseconds per microbatch" in said
    last = said.rpartition("\n\n")[2].splitlines()
    assert [line.split()[0] for line in last] == ["accelerator", "accelerator"]
    assert "layers.0" in last[0]
    assert "head" in last[1]


def test_parts_are_named_in_short():
    layers = [f"model.layers.{n}.{part}" for n in range(4) for part in ("attention.linear", "mlp.linear_1")]
    assert in_short(["embed.embedding", *layers, "norm.mul"]) == "embed, model.layers.0–3, norm"
    assert in_short(["b 2", "b 3", "b 7", "x"]) == "b 2–3, b 7, x"
    assert in_short([]) == ""
    assert in_short([f"{chr(97 + n)}x" for n in range(26)]).endswith("and 15 more parts")


def test_an_output_that_cannot_be_written_is_told(capsys):
    assert call("place", OPERATORS, "-o", "nowhere/placement.json") == 2
    assert "error: nowhere/placement.json cannot be written." in capsys.readouterr().err
