"""`heddle generate`: text from a trained run, the same for the same seed, shown character by character."""

import shutil
from contextlib import chdir

import pytest
import typer

from tests.helpers.commands import call, heddle, write_job

# Characters of two, three and four bytes. No byte occurs twice, so the last byte tells the next: soon learned.
VERSE = "é→ж😀"
RULE = "─" * 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generate")
    job = write_job(folder)
    (folder / "verse.txt").write_text(VERSE * 200, encoding="utf-8")
    with chdir(folder):
        assert call("train", job, "--set", "data.text=verse.txt", "--set", "train.steps=60") == 0
    return folder


@pytest.fixture
def generated(folder, monkeypatch, capsys):
    """Run `heddle generate` on the trained run and give what it wrote."""

    def generate(*arguments):
        monkeypatch.chdir(folder)
        capsys.readouterr()
        assert call("generate", "runs/small", *arguments) == 0
        return capsys.readouterr().out

    return generate


def test_the_model_writes_what_it_learned(folder):
    said = heddle("generate", "runs/small", "--prompt", "é→", "--temperature", "0", "--tokens", "17", cwd=folder)
    assert said == "é→ж😀é→ж😀\n"


@pytest.mark.slow
def test_tiles_write_the_same_text(generated):
    pytest.importorskip("llvmlite")
    arguments = ("--prompt", "é→", "--temperature", "0", "--tokens", "17")
    assert generated(*arguments, "--tiles") == generated(*arguments) == generated(*arguments, "--weights", "int8")


def test_the_same_seed_gives_the_same_text(generated):
    arguments = ("--prompt", "é", "--temperature", "5", "--tokens", "40")
    first = generated(*arguments, "--seed", "1")
    assert generated(*arguments, "--seed", "1") == first
    assert generated(*arguments, "--seed", "2") != first


def test_several_samples_are_those_of_the_seeds_that_follow(generated):
    arguments = ("--prompt", "é", "--temperature", "5", "--tokens", "40")
    one, two = generated(*arguments, "--count", "2", "--seed", "1").split(f"\n{RULE}\n")
    assert [one, two] == [generated(*arguments, "--seed", seed) for seed in "12"]


def test_temperature_zero_takes_the_likeliest_whatever_the_seed(generated):
    arguments = ("--prompt", "ж", "--temperature", "0", "--tokens", "30")
    assert generated(*arguments, "--seed", "1") == generated(*arguments, "--seed", "2")


def test_characters_are_shown_whole_and_as_they_come(generated, monkeypatch):
    shown = []
    monkeypatch.setattr(typer, "echo", lambda text="", **_: shown.append(text))
    generated("--prompt", "é→", "--temperature", "0", "--tokens", "17")
    assert [piece for piece in shown if piece] == ["é→", "ж", "😀", "é", "→", "ж", "😀"]


def test_a_last_character_cut_in_two_is_not_hidden(generated):
    assert generated("--prompt", "é→", "--temperature", "0", "--tokens", "4") == "é→ж\ufffd\n"


def test_without_a_prompt_a_new_document_begins(generated):
    assert generated("--temperature", "0", "--tokens", "6") != "\n"


@pytest.fixture
def mistake(capsys):
    """Run `heddle generate` where it cannot work and give the three parts of what it says."""

    def generate(run):
        assert call("generate", run) == 2
        what, why, hint = capsys.readouterr().err.splitlines()
        return what.removeprefix("error: "), why, hint

    return generate


def test_a_run_without_a_checkpoint_is_refused(folder, tmp_path, mistake):
    shutil.copytree(folder / "runs" / "small", tmp_path / "empty")
    shutil.rmtree(tmp_path / "empty" / "checkpoints")
    what, why, _ = mistake("empty")
    assert what == "There is no checkpoint in empty/checkpoints."
    assert "when it ends" in why


@pytest.mark.parametrize("wrong", ["runs", "runs/smal"])
def test_a_folder_that_is_no_run_names_the_runs_near_it(folder, monkeypatch, mistake, wrong):
    monkeypatch.chdir(folder)
    what, why, hint = mistake(wrong)
    assert what == f"{wrong} is not a run folder."
    assert "job.toml" in why
    assert "runs/small" in hint


def test_where_there_is_no_run_at_all_training_is_named(tmp_path, mistake):
    assert "heddle train" in mistake("nothing")[2]
