"""Every mistake is told: exit code 2, what is wrong with which value, why, what works instead, and no traceback."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.helpers.commands import ENVIRONMENT, REPOSITORY, call, heddle, write_job


@pytest.fixture
def job(tmp_path):
    return write_job(tmp_path)


@pytest.fixture
def refused(capsys):
    """Run a command that must be refused; give the lines it told on stderr."""

    def run(*arguments):
        capsys.readouterr()
        assert call(*arguments) == 2
        said = capsys.readouterr().err
        assert "Traceback" not in said
        first, *others = said.splitlines()
        assert first.startswith("error: ")
        assert others, "an error says more than what is wrong"
        assert all(line.startswith("  ") for line in others)
        return [first, *others]

    return run


# What to change in a job that works, and a pattern for each part of the message.
MISTAKES = {
    "unknown key": (
        ["train.stepz=5"],
        [r"\[train\] has no key 'stepz'", "never ignores a key", r"Did you mean 'steps'\?"],
    ),
    "unknown table": (
        ["trian.steps=5"],
        [r"no table \[trian\]", "never ignores a key", r"Did you mean 'train'\?"],
    ),
    "unknown preset": (
        ["model.preset=tinny"],
        ["no model preset 'tinny'", "Presets ship with Heddle", r"Did you mean 'tiny'\?"],
    ),
    "unknown word": (["train.precision=fp4"], ["train.precision = 'fp4'", "one of a few words", "bf16, fp16, fp32"]),
    "wrong type": (["train.steps=many"], ["train.steps = 'many' has the wrong type", "whole number", "steps = 8"]),
    "heads do not divide hidden": (
        ["model.heads=5"],
        ["heads = 5 does not divide hidden = 32", "equal share", "works: 4"],
    ),
    "kv_heads do not divide heads": (
        ["model.kv_heads=3"],
        ["kv_heads = 3 does not divide heads = 4", "equal group", "1, 2 and 4 can"],
    ),
    "batch is no multiple of the microbatch": (
        ["plan.microbatch=3"],
        [
            "global_batch = 4 is not divisible",
            "whole number of microbatches",
            "global_batch = 3 or 6, or microbatch = ",
        ],
    ),
    "sequence beyond the positions": (
        ["train.sequence=32"],
        ["train.sequence = 32 is longer than the model's 16", "no position", "Use train.sequence = 16"],
    ),
    "missing corpus": (
        ["data.text=corpse/*.txt"],
        ["No file matches '.*corpse", "Looked in", r"no folder 'corpse'\. Did you mean 'corpus'\?"],
    ),
    "empty corpus": (
        ["data.text=empty.txt"],
        [r"no text in the 1 file\(s\)", "All are empty", "files with text in them"],
    ),
    "corpus shorter than a sample": (
        ["data.text=short.txt"],
        [r"7 tokens are too few for one sample of 16", "needs 17 tokens", "train.sequence = 6 or less"],
    ),
    "vocabulary too small": (
        ["model.vocab=200"],
        ["model.vocab = 200 is too small", "has 257 tokens", "Use model.vocab = 257 or more"],
    ),
    "run folder that cannot be": (
        ["train.runs=job.toml/below"],
        ["run folder job.toml/below/small cannot be written", "Not a directory", "train.runs=FOLDER"],
    ),
    "no tokens where they should be": (
        ["data.text=[]", "data.tokens=nowhere"],
        ["no folder .*nowhere", "has a data.json", "heddle data prepare"],
    ),
    "--set without a table": (["steps=5"], ["steps=5 does not give a key", "with its table", "--set train.steps=50"]),
    "--set without a value": (["train.steps"], ["train.steps does not give a key", "gets a value", "train.steps=50"]),
}


@pytest.mark.parametrize(("changes", "parts"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_the_job_is_told(job, refused, tmp_path, changes, parts):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "short.txt").write_text("too few")
    said = refused("train", "job.toml", *(word for change in changes for word in ("--set", change)))
    assert len(said) == len(parts)
    for line, part in zip(said, parts, strict=True):
        assert re.search(part, line), (line, part)
    assert not (tmp_path / "runs").exists()


def test_a_mistake_is_told_by_the_real_command_too(job, tmp_path):
    said = heddle("train", "job.toml", "--set", "train.stepz=5", cwd=tmp_path, code=2)
    assert said.startswith("error: job.toml: [train] has no key 'stepz'.\n  ")


def test_a_table_that_is_none_is_told_even_if_a_key_of_it_is_set(refused, tmp_path):
    (tmp_path / "job.toml").write_text("train = 5\n")
    assert "'train' is not a table" in refused("train", "job.toml", "--set", "train.steps=5", "--name", "x")[0]


def test_a_job_file_that_is_not_there_names_those_that_are(job, refused):
    what, _, hint = refused("train", "jib.toml")
    assert what == "error: There is no file jib.toml."
    assert "job.toml" in hint


def test_a_damaged_token_file_is_found_before_training(job, refused, tmp_path):
    assert call("data", "prepare", "corpus/*.txt", "-o", "tokens") == 0
    damaged = bytearray((tmp_path / "tokens" / "train.bin").read_bytes())
    damaged[100] ^= 1
    (tmp_path / "tokens" / "train.bin").write_bytes(damaged)
    job.write_text(job.read_text().replace('text = "corpus/*.txt"', 'tokens = "tokens"'))
    what, why, hint = refused("train", "job.toml")
    assert "tokens/train.bin is damaged" in what
    assert "SHA-256" in why
    assert "prepare it again" in hint


def test_a_run_never_writes_over_another(job, refused, tmp_path):
    (tmp_path / "runs" / "small" / "notes").mkdir(parents=True)
    what, why, hint = refused("train", "job.toml")
    assert "runs/small exists already" in what
    assert "never overwrites another" in why
    assert "--resume" in hint
    assert "--name" in hint


def test_there_must_be_a_run_to_resume(job, refused, tmp_path):
    what, _, hint = refused("train", "job.toml", "--resume")
    assert "runs/small is not a run folder" in what
    assert "heddle train" in hint
    assert not (tmp_path / "runs").exists()


def test_a_run_is_not_resumed_with_another_model(job, refused, tmp_path):
    assert call("train", "job.toml", "--set", "train.steps=1") == 0
    before = (tmp_path / "runs" / "small" / "job.toml").read_bytes()
    what, why, hint = refused("train", "job.toml", "--resume", "--set", "model.layers=2")
    assert "runs/small is a run of another model" in what
    assert "layers was 1, is 2" in why
    assert "--name" in hint
    assert (tmp_path / "runs" / "small" / "job.toml").read_bytes() == before


def test_a_run_without_a_checkpoint_cannot_be_resumed(job, refused, tmp_path):
    assert call("train", "job.toml", "--set", "train.steps=1") == 0
    shutil.rmtree(tmp_path / "runs" / "small" / "checkpoints")
    what, why, _ = refused("train", "job.toml", "--resume")
    assert "no checkpoint in runs/small/checkpoints" in what
    assert "save_every" in why


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory):
    """Run a command on a Python that has everything but what heddle-train[train] installs."""
    packages = tmp_path_factory.mktemp("packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("torch", "functorch", "safetensors", "tokenizers")):
            (packages / path.name).symlink_to(path)
    environment = ENVIRONMENT | {"PYTHONPATH": f"{REPOSITORY}:{packages}", "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*arguments, code=0):
        # -S leaves site-packages out, and torch with them.
        command = [sys.executable, "-S", "-m", "heddle", *arguments]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == code, ended.stderr
        assert "Traceback" not in ended.stderr
        return ended.stdout + ended.stderr

    return run


def test_planning_and_preparing_work_without_torch(without_torch, job):
    assert "generate" in without_torch("--help")
    assert "no deadlock" in without_torch("schedule", "1f1b", "--pipeline", "2", "--microbatches", "4")
    assert "2,846 to train" in without_torch("data", "prepare", "corpus/*.txt", "-o", "tokens", "--validation", "0.2")


@pytest.mark.parametrize("arguments", [("train", "job.toml"), ("generate", "runs/small")], ids=["train", "generate"])
def test_training_without_torch_names_what_to_install(without_torch, job, arguments):
    what, why, hint = without_torch(*arguments, code=2).splitlines()
    assert f"`heddle {arguments[0]}` needs torch, safetensors, tokenizers" in what
    assert "work without" in why
    assert "in your checkout of heddle-train, pip install '.[train]'" in hint


def test_no_output_takes_the_place_of_an_input(tmp_path, monkeypatch, capsys):
    """A page is called one, and a plan replaces a job or nothing."""
    monkeypatch.chdir(tmp_path)
    job = write_job(tmp_path)
    cluster = tmp_path / "cluster.toml"
    cluster.write_text('[cluster]\nname = "mine"\n')
    before = {path: path.read_bytes() for path in (job, cluster)}
    assert call("report", "job.toml", "-o", "job.toml") == 2
    assert "-o job.toml is not the name of a page" in capsys.readouterr().err
    assert call("plan", "job.toml", "-o", "cluster.toml") == 2
    assert "cluster.toml exists and is not a job" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in before}


def test_outputs_of_odd_names_are_answered(tmp_path, monkeypatch, capsys):
    """A device holds nothing that could be lost, and may never end: it is not read before it is written."""
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path)
    assert call("plan", "job.toml", "-o", "/dev/null") == 0
    assert call("report", "job.toml", "-o", ".") == 2
    assert "-o . is not the name of a page" in capsys.readouterr().err


def test_a_failed_resume_leaves_the_run_as_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path)
    assert call("train", "job.toml", "--set", "train.steps=2") == 0
    shutil.rmtree(tmp_path / "runs/small/checkpoints/step-00000002")
    before = (tmp_path / "runs/small/job.toml").read_bytes()
    assert call("train", "job.toml", "--resume", "--set", "train.steps=4") == 2
    assert "There is no checkpoint in" in capsys.readouterr().err
    assert (tmp_path / "runs/small/job.toml").read_bytes() == before


def test_a_step_of_endless_microbatches_is_refused_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path)
    assert call("simulate", "job.toml", "--set", "train.global_batch=1000000000") == 2
    assert "is too large for one step" in capsys.readouterr().err
