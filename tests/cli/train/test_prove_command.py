"""`heddle prove`, and the page of the documentation that shows its output."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from unittest.mock import patch

import pytest

from heddle.parallel.pipeline.transformer import Pipeline
from tests.helpers.commands import ENVIRONMENT, REPOSITORY, call, write_named_blocks

PAGE = REPOSITORY / "docs" / "decide/prove.md"
SHOWN = re.findall(r"```console\n\$ heddle (prove .*)\n((?:.*\n)*?)```", PAGE.read_text(encoding="utf-8"))
KEYS = {"equal", "max_loss_diff", "max_gradient_diff", "expected_rounding", "seconds"}


@pytest.fixture(autouse=True)
def _plan(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert [path.name for path in write_named_blocks(PAGE, tmp_path)] == ["plan.toml"]


def without_numbers(text: str) -> str:
    """What does not depend on the machine: no measured number, no worst gradient, no time."""
    text = re.sub(r"\b\d\.\de-\d\d\b", "#", text)
    text = re.sub(r"(?<=worst gradient: ).*", "#", text)
    return re.sub(r"\(\d+ s\)", "(# s)", text)


@pytest.mark.dist
@pytest.mark.parametrize(("arguments", "output"), SHOWN, ids=[arguments for arguments, _ in SHOWN])
def test_the_documentation_shows_the_real_output(arguments, output, capfd):
    assert call(*shlex.split(arguments)) == 0
    printed = capfd.readouterr().out
    if "--json" in arguments:
        facts = json.loads(printed)
        assert facts.keys() >= KEYS
        assert facts["equal"] is True
        assert facts["max_loss_diff"] <= 1e-5
        assert facts["max_gradient_diff"] <= 10 * facts["expected_rounding"] < 1e-4
        assert facts["processes"] == 4
    else:
        assert without_numbers(printed) == without_numbers(output)


def test_a_difference_is_told_and_ends_with_1(capsys):
    """Planted: with several microbatches, gradients are twice as large."""
    run = Pipeline.run

    def wrong(self, works, scale=1.0, listener=None):
        return run(self, works, scale * min(2, len(works)), listener)

    one = ["--set", "plan.tensor=1", "--set", "plan.sequence=false", "--set", "plan.pipeline=1", "--set=plan.stages=[]"]
    with patch.object(Pipeline, "run", wrong):
        assert call("prove", "plan.toml", "--steps", "2", *one) == 1
        assert "different: every gradient is 2 times the serial one: scaling" in capsys.readouterr().out
        assert call("prove", "plan.toml", "--steps", "2", "--json", *one) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["equal"] is False
    assert facts["max_gradient_diff"] == pytest.approx(1, rel=1e-4)
    assert facts["wrong_gradients"][0] == "embed.tokens.weight"
    assert "scaling" in facts["cause"]


def test_a_job_without_a_plan_is_planned_as_by_every_command(tmp_path, capsys):
    (tmp_path / "job.toml").write_text('[model]\npreset = "tiny"\n[data]\ntext = "x"\n[train]\nglobal_batch = 1\n')
    assert call("prove", "job.toml", "--steps", "2") == 0
    assert capsys.readouterr().out.startswith("job.toml has no [plan]. Planned for cluster ")
    assert call("prove", "job.toml", "--steps", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["planned"] is True


@pytest.mark.dist
@pytest.mark.parametrize(
    ("changes", "left_out", "verdict"),
    [
        (
            {"local_steps": 10, "compress_gradients": '"int8"'},
            ["local_steps = 10", 'compress_gradients = "int8"'],
            (
                'equal, without local_steps = 10 and compress_gradients = "int8": the rest of this plan trains like '
                'one device. What local_steps = 10 and compress_gradients = "int8" change was not compared.'
            ),
        ),
        ({}, [], "equal: this plan trains like one device."),
    ],
    ids=["local steps", "plain"],
)
def test_the_verdict_says_what_was_not_compared(changes, left_out, verdict, capfd):
    plan = {"data": 2, "tensor": 1, "pipeline": 1, "sequence": "false", "stages": "[]", "microbatch": 1} | changes
    options = ["--steps=2", *(f"--set=plan.{key}={value}" for key, value in plan.items())]
    assert call("prove", "plan.toml", *options) == 0
    assert f"\n{verdict} (" in capfd.readouterr().out
    assert call("prove", "plan.toml", "--json", *options) == 0
    facts = json.loads(capfd.readouterr().out)
    assert (facts["verdict"], facts["left_out"], facts["compared_with"]) == (verdict, left_out, "one device")


@pytest.mark.slow
@pytest.mark.dist
def test_it_joins_a_launcher(tmp_path):
    """Both processes take part, one speaks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "heddle"]
    options = ["--json", "--steps=2", "--set=plan.pipeline=1", "--set=plan.stages=[]"]
    done = subprocess.run(
        [*command, "prove", "plan.toml", *options], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["equal"] is True


def test_nothing_heavy_is_imported_for_the_help():
    code = "import sys, heddle.cli.train.prove; assert not {'numpy', 'rich', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
