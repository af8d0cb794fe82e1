"""`heddle train`, from its files to its last line, and what happens when it is stopped on the way."""

import dataclasses
import json
import math
import re
import shlex
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import pytest

from heddle.data import load_tokenizer, open_prepared
from heddle.parallel.pipeline.executor import Executor
from heddle.runs.metrics import StepMetrics, read_metrics
from heddle.spec.job import load_job
from heddle.training.step.optimizer import LossScale
from tests.helpers.commands import DOCUMENTS, REPOSITORY, call, finish, heddle, losses, start, steps_of, write_job

OFTEN = ("--set", "train.eval_every=3", "--set", "train.save_every=2")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run started from another folder than its job's: the folder, and what was said."""
    folder = tmp_path_factory.mktemp("trained")
    write_job(folder / "jobs")
    return folder, heddle("train", "jobs/job.toml", *OFTEN, cwd=folder)


@pytest.fixture
def job(tmp_path):
    return write_job(tmp_path)


def test_a_run_folder_holds_all_that_belongs_to_the_run(trained):
    run = trained[0] / "runs" / "small"
    names = {path.name for path in run.iterdir()}
    assert names >= {"job.toml", "metrics.jsonl", "tokenizer", "checkpoints"}
    explained = (REPOSITORY / "docs/train/training.md").read_text(encoding="utf-8").partition("## The run folder")[2]
    assert names <= set(re.findall(r"^\| `([\w.-]+)", explained, flags=re.MULTILINE))
    asked, ran = load_job(trained[0] / "jobs" / "job.toml"), load_job(run / "job.toml")
    assert ran.model == asked.model
    assert ran.train == dataclasses.replace(asked.train, eval_every=3, save_every=2, precision="fp32")  # as was chosen
    assert load_tokenizer(run / "tokenizer").vocab == 257
    # Written every second step; only the newest two stay.
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-00000004", "step-00000006"]


def test_the_first_line_names_model_tokenizer_and_vocabulary(trained):
    first = trained[1].splitlines()[0]
    assert first.startswith("custom: ")
    assert first.endswith("tokens to train on, tokenizer bytes (257 tokens), vocabulary 257")


def test_a_run_on_text_that_is_not_utf_8_says_so_and_its_step_is_few_frames_below_the_command(job, capsys, monkeypatch):
    monkeypatch.chdir(job.parent)
    (job.parent / "corpus" / "9.txt").write_bytes(b"caf\xe9 " * 30)
    frames: list[str] = []
    perform = Executor.perform

    def looked_at(*arguments: Any) -> None:
        frames[:] = [frame.name for frame in traceback.extract_stack() if f"{REPOSITORY}/heddle/" in frame.filename]
        perform(*arguments)

    monkeypatch.setattr(Executor, "perform", looked_at)
    assert call("train", "job.toml", "--set", "train.steps=1") == 0
    assert len(frames) - frames.index("train") <= 10, frames
    assert "30 bytes of the text are not UTF-8 and read as U+FFFD" in capsys.readouterr().out


def test_text_for_a_large_vocabulary_needs_a_tokenizer_by_name(job, capsys, monkeypatch):
    monkeypatch.chdir(job.parent)
    large = ("--set", "model.vocab=2000", "--set", "train.steps=1")
    assert call("train", "job.toml", *large) == 2
    assert "names no tokenizer, and the model has a vocabulary of 2,000" in capsys.readouterr().err
    assert not Path("runs").exists()
    assert not Path("prepared").exists()  # nothing was tokenized in vain
    assert call("train", "job.toml", *large, "--set", "data.tokenizer=bytes") == 0
    said = capsys.readouterr().out
    assert "1,743 rows of the embedding are never used" in said
    assert "tokenizer bytes (257 tokens), vocabulary 2,000" in said


def test_inputs_lie_beside_the_job_and_outputs_where_the_command_runs(trained):
    assert {path.name for path in trained[0].iterdir()} == {"jobs", "runs", "prepared"}
    assert {path.name for path in (trained[0] / "jobs").iterdir()} == {"job.toml", "corpus"}


def test_every_step_is_a_row_of_numbers(trained):
    rows = steps_of(trained[0] / "runs" / "small")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    fields = {field.name for field in dataclasses.fields(StepMetrics) if field.default is dataclasses.MISSING}
    for row in rows:
        assert row.keys() == fields
        assert all(math.isfinite(value) and value > 0 for value in row.values())
    assert rows[0]["loss"] == pytest.approx(math.log(257), abs=0.1)  # an untrained model knows nothing
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.3


def test_validation_is_measured_when_asked_and_at_the_end(trained):
    rows = [row for row in read_metrics(trained[0] / "runs/small/metrics.jsonl") if "validation_loss" in row]
    assert [row["step"] for row in rows] == [3, 6]
    assert rows[1]["validation_loss"] < rows[0]["validation_loss"] < math.log(257)


def test_the_end_says_what_was_reached_and_what_knowing_frequencies_would_score(trained):
    folder, said = trained
    found = re.search(
        r"Trained 6 steps in \d+ s\. Validation loss ([\d.]+) nats per token; "
        r"guessing by token frequency alone would score ([\d.]+)\.",
        said,
    )
    assert found, said
    reached = read_metrics(folder / "runs/small/metrics.jsonl")[-1]["validation_loss"]
    (prepared,) = (folder / "prepared").iterdir()
    assert float(found[1]) == round(reached, 3)
    assert float(found[2]) == round(open_prepared(prepared).meta.unigram_entropy, 3)
    assert "heddle generate runs/small" in said


def test_jsonl_and_prepared_tokens_train_the_same(trained, job, tmp_path):
    lines = [json.dumps({"body": text}) for text in DOCUMENTS]
    (tmp_path / "all.jsonl").write_text("\n".join(lines))
    assert call("train", job, "--name", "jsonl", "--set", "data.text=all.jsonl", "--set", "data.key=body") == 0
    assert call("data", "prepare", "corpus/*.txt", "-o", "tokens", "--validation", "0.2") == 0
    text = job.read_text()
    job.write_text(text.replace('text = "corpus/*.txt"', 'tokens = "tokens"'))
    assert call("train", job, "--name", "prepared") == 0
    expected = losses(trained[0] / "runs" / "small")
    assert losses(tmp_path / "runs" / "jsonl") == expected
    assert losses(tmp_path / "runs" / "prepared") == expected


def test_keys_and_name_are_changed_from_the_command_line(trained, job, tmp_path):
    # A name of digits is still a name.
    assert call("train", job, "--name", "2024", "--set", "train.steps=2", "--set", "train.seed=1") == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["2024"]
    mine = losses(tmp_path / "runs" / "2024")
    assert len(mine) == 2
    assert mine[0] != losses(trained[0] / "runs" / "small")[0]
    assert load_job(tmp_path / "runs" / "2024" / "job.toml").train.seed == 1


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_follows_full_precision(trained, job, tmp_path, precision):
    assert call("train", job, "--set", f"train.precision={precision}") == 0
    rows = steps_of(tmp_path / "runs" / "small")
    assert all(("loss_scale" in row) == (precision == "fp16") for row in rows)
    full = losses(trained[0] / "runs" / "small")
    assert losses(tmp_path / "runs" / "small") != full
    assert losses(tmp_path / "runs" / "small") == pytest.approx(full, rel=0.02)


@pytest.fixture
def overflow(monkeypatch):
    """Start fp16 with a loss scale that takes the first gradients beyond what fp16 can hold."""

    class TooLarge(LossScale):
        def __init__(self, enabled):
            super().__init__(enabled)
            self.value = 2.0**18 if enabled else 1.0

    monkeypatch.setattr("heddle.training.step.optimizer.LossScale", TooLarge)


def test_a_step_that_overflows_is_told_and_changes_nothing(overflow, job, tmp_path):
    changes = ["train.precision=fp16", "train.clip=0.0", "plan.microbatch=4"]
    assert call("train", job, *(word for change in changes for word in ("--set", change))) == 0
    rows = steps_of(tmp_path / "runs" / "small")
    norms, scales = [row["gradient_norm"] for row in rows], [row["loss_scale"] for row in rows]
    overflowed = norms.count(None)
    assert 0 < overflowed < len(rows)
    assert norms[:overflowed] == [None] * overflowed
    assert scales[-1] == 2.0**18 / 2**overflowed


def test_microbatches_change_memory_not_the_loss(trained, job, tmp_path):
    assert call("train", job, "--set", "plan.microbatch=1") == 0
    assert losses(tmp_path / "runs" / "small") == pytest.approx(losses(trained[0] / "runs" / "small"), rel=1e-5)


def test_a_vocabulary_is_learned_on_the_spot(job, tmp_path):
    assert call("train", job, "--set", "data.tokenizer=bpe:300", "--set", "model.vocab=300") == 0
    tokenizer = load_tokenizer(tmp_path / "runs" / "small" / "tokenizer")
    assert 257 < tokenizer.vocab <= 300
    assert len(tokenizer.encode("the weaver")) < len("the weaver")
    assert len(losses(tmp_path / "runs" / "small")) == 6


def test_a_model_may_come_from_a_hugging_face_config(job, tmp_path):
    config = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 257, "max_position_embeddings": 16}
    (tmp_path / "config.json").write_text(json.dumps(config))
    data_and_train = job.read_text().partition("[data]")[2]
    job.write_text(f'[model]\nconfig = "config.json"\n\n[data]{data_and_train}')
    assert call("train", job) == 0
    ran = load_job(tmp_path / "runs" / "small" / "job.toml").model
    assert (ran.layers, ran.kv_heads, ran.ffn, ran.norm, ran.positions) == (2, 2, 48, "rmsnorm", "rotary")


def test_without_validation_the_training_loss_is_told(job, tmp_path, capsys):
    assert call("train", job, "--set", "data.validation=0.0") == 0
    assert f"Training loss {losses(tmp_path / 'runs' / 'small')[-1]:.3f}" in capsys.readouterr().out


def test_a_finished_run_can_be_trained_for_longer(job, tmp_path, capsys):
    assert call("train", job) == 0
    capsys.readouterr()
    assert call("train", job, "--resume") == 0
    said = capsys.readouterr().out
    assert "has already done its 6 steps" in said
    assert "nan" not in said
    assert call("train", job, "--resume", "--set", "train.steps=8") == 0
    assert [row["step"] for row in steps_of(tmp_path / "runs" / "small")] == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_goes_on_with_the_same_bits(overflow, job, tmp_path, precision):
    same = ["--set", f"train.precision={precision}", "--set", "train.schedule=constant"]
    assert call("train", job, "--name", "whole", *same) == 0
    assert call("train", job, "--name", "parts", *same, "--set", "train.steps=3") == 0
    assert call("train", job, "--name", "parts", *same, "--resume") == 0
    whole, parts = (repeatable(tmp_path / "runs" / name) for name in ("whole", "parts"))
    assert [row for row in parts if "loss" in row] == [row for row in whole if "loss" in row]


LONG = ["--set", "train.steps=300", "--set", "model.dropout=0.1", "--set", "train.eval_every=100"]
MEASURED = {"seconds", "tokens_per_second", "mfu", "memory_gib"}


def repeatable(run: Path) -> list[dict[str, object]]:
    """All that a run must write the same whenever and wherever it runs."""
    rows = read_metrics(run / "metrics.jsonl")
    return [{key: value for key, value in row.items() if key not in MEASURED} for row in rows]


def wait_for_steps(run: Path, count: int) -> None:
    path, end = run / "metrics.jsonl", time.monotonic() + 60
    while not path.exists() or path.read_text().count("\n") < count:
        assert time.monotonic() < end, "the run has not begun"
        time.sleep(0.005)


@pytest.mark.slow
def test_a_stopped_run_goes_on_as_if_it_had_never_stopped(job, tmp_path):
    arguments, run, done = ["train", "job.toml", "--name", "long run", *LONG], tmp_path / "runs" / "long run", 0
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start(*arguments, cwd=tmp_path)
        wait_for_steps(run, done + 5)
        process.send_signal(number)
        said = finish(process)
        found = re.search(r"Stopped after step (\d+) of 300\. Resume with: heddle (.*)", said)
        assert found, said
        arguments, done = shlex.split(found[2]), int(found[1])
        assert len(steps_of(run)) == done < 300
        assert (run / "checkpoints" / f"step-{done:08}").is_dir()
    heddle(*arguments, cwd=tmp_path)
    assert call("train", job, "--name", "uninterrupted", *LONG) == 0
    assert repeatable(run) == repeatable(tmp_path / "runs" / "uninterrupted")


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGINT to send")
def test_a_second_interrupt_stops_at_once(job, tmp_path):
    # Many small microbatches: a step of seconds that Python looks up from every few milliseconds.
    slow = ("--set", "train.global_batch=2000", "--set", "plan.microbatch=4")
    process = start("train", "job.toml", *slow, cwd=tmp_path)
    wait_for_steps(tmp_path / "runs" / "small", 1)
    time.sleep(0.1)  # into the second step
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert "Stopped." in finish(process, code=130)
    assert len(steps_of(tmp_path / "runs" / "small")) == 1
    assert not list((tmp_path / "runs" / "small" / "checkpoints").iterdir())
