"""A run is resumed as what it is: other terms are named and refused, unless they are asked for."""

import json
import math
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.helpers.commands import call, losses, steps_of, write_job


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A run of three steps."""
    folder = tmp_path_factory.mktemp("begun")
    write_job(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert call("train", "job.toml", "--set", "train.steps=3") == 0
    return folder


@pytest.fixture
def folder(begun, tmp_path, monkeypatch):
    shutil.copytree(begun, tmp_path / "job", symlinks=True)
    monkeypatch.chdir(tmp_path / "job")
    return tmp_path / "job"


def resume(*changes: str) -> int:
    return call("train", "job.toml", "--resume", "--set", "train.steps=4", *(f"--set={change}" for change in changes))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("train.global_batch=8", "train.global_batch was 4, is 8"),
        ("train.seed=1", "train.seed was 0, is 1"),
        ("train.precision=bf16", "train.precision was fp32, is bf16"),
        ("train.sequence=8", "train.sequence was 16, is 8"),
        ("train.learning_rate=0.5", "train.learning_rate was 0.01, is 0.5"),
        ("train.beta2=0.5", "train.beta2 was 0.95, is 0.5"),
        ("train.steps=2", "train.steps was 3, is 2"),
        ("data.validation=0.5", "the train tokens were "),
        ("data.text=corpus/[0-3].txt", "the validation tokens were "),
    ],
)
def test_other_terms_are_refused_and_nothing_is_touched(change, told, folder, capsys):
    before = {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file() and path.name != "lock"}
    assert resume(change) == 2
    said = capsys.readouterr().err
    assert "error: runs/small was started with other settings:" in said
    assert f"\n  {told}" in said
    indents = {len(line) - len(line.lstrip()) for line in said.splitlines() if not line.startswith("error")}
    assert indents == {2}
    assert "--allow-changes" in said
    after = {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file() and path.name != "lock"}
    assert after == before


def test_a_rate_that_more_steps_raise_is_told_with_the_way_to_keep_it(folder, capsys):
    assert resume() == 0
    said = capsys.readouterr().out
    assert "from step 4 on it is 1.00e-03 instead of" not in said  # the last step has the last rate, whatever the steps
    assert call("train", "job.toml", "--resume", "--set", "train.steps=9") == 0
    said = capsys.readouterr().out
    rate = 1e-2 * (0.1 + 0.9 * (1 + math.cos(math.pi * 4 / 8)) / 2)
    assert f"from step 5 on it is {rate:.2e} instead of 1.00e-03, {rate / 1e-3:.3g} × as high" in said
    assert "train.steps = 9, no longer 4, stretches the cosine schedule" in said
    assert steps_of(Path("runs/small"))[4]["learning_rate"] == pytest.approx(rate)
    assert call("train", "job.toml", "--resume", "--set", "train.steps=9") == 0
    assert "The learning rate changes" not in capsys.readouterr().out


def test_the_rate_is_kept_as_the_message_says(folder, capsys):
    assert call("train", "job.toml", "--resume", "--set", "train.steps=6") == 0
    (words,) = re.findall(r"To go on at the old rate, add (.*)\.$", capsys.readouterr().out, flags=re.MULTILINE)
    shutil.rmtree("runs")
    assert call("train", "job.toml", "--set", "train.steps=3") == 0
    assert call("train", "job.toml", "--resume", "--set", "train.steps=6", *shlex.split(words)) == 0
    assert "The learning rate changes" not in capsys.readouterr().out
    rates = [row["learning_rate"] for row in steps_of(Path("runs/small"))]
    assert rates[2:] == pytest.approx([1e-3] * 4)


def test_a_corpus_that_was_edited_in_place_is_another(folder, capsys):
    Path("corpus/0.txt").write_text("Something else entirely, and longer than it was. " * 20)
    assert resume() == 2
    assert "the train tokens were " in capsys.readouterr().err


def test_the_same_tokens_from_elsewhere_are_the_same(folder, capsys):
    Path("corpus").rename("texts")
    assert resume("data.text=texts/*.txt") == 0, capsys.readouterr().err
    assert len(losses(Path("runs/small"))) == 4


def test_what_is_asked_for_is_done_and_told(folder, capsys):
    assert resume("train.seed=1", "train.learning_rate=0.02", "data.validation=0.4", "train.keep_last=5") == 2
    command = ["train", "job.toml", "--resume", "--allow-changes", "--set=train.steps=4", "--set=train.seed=1"]
    assert call(*command, "--set=data.validation=0.4") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Resuming with train.seed was 0, is 1; the train tokens were " in said
    # from now on these are its terms
    assert call(*command[:3], "--set=train.steps=5", "--set=train.seed=1", "--set=data.validation=0.4") == 0
    assert call(*command[:3], "--set=train.steps=6") == 2


def test_where_how_fast_and_how_long_are_free(folder, capsys):
    free = [
        "keep_last=3",
        "keep_every=2",
        "log_every=1",
        "eval_every=1",
        "eval_batches=1",
        "save_every=1",
        "restarts=1",
    ]
    assert resume(*(f"train.{change}" for change in free), "train.hang_after=60.0", "plan.microbatch=2") == 0
    assert len(losses(Path("runs/small"))) == 4


def test_a_run_without_a_record_of_its_tokens_goes_by_its_job(folder, capsys):
    Path("runs/small/data.json").unlink()
    job = Path("runs/small/job.toml")  # written where the run was begun
    job.write_text(re.sub(r'text = \[".*"\]', f'text = ["{folder}/corpus/*.txt"]', job.read_text()))
    assert resume("data.validation=0.1") == 2
    assert "data.validation was 0.2, is 0.1" in capsys.readouterr().err
    assert resume() == 0
    assert json.loads(Path("runs/small/data.json").read_text())["train"]["sha256"]


def test_another_model_is_never_allowed(folder, capsys):
    assert call("train", "job.toml", "--resume", "--allow-changes", "--set=model.layers=2") == 2
    assert "is a run of another model" in capsys.readouterr().err
