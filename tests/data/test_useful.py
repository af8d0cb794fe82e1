"""What of a job's tokens is of use: known of conversations that were made into tokens, by `plan` and `simulate`."""

from __future__ import annotations

import json

import pytest

import heddle
from heddle.data import prepared_for, samples_of
from heddle.data.useful import useful_share
from heddle.explore.watch import thinned
from heddle.runs.metrics import read_metrics
from tests.helpers.commands import call

pytest.importorskip("transformers")

JOB = """
[model]
preset = "tiny"
sequence = 128
[data]
chat = "chat.jsonl"
tokenizer = "bytes"
pack = {pack}
validation = 0.0
[train]
sequence = 128
global_batch = 8
[cluster]
preset = "dgx-h100"
[plan]
"""


@pytest.mark.parametrize("pack", ["true", "false"])
def test_tokens_that_pad_are_told_from_those_of_conversations(tmp_path, monkeypatch, capsys, pack):
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": "What is " + "x" * (i % 40), "completion": "y" * 20} for i in range(60)]
    (tmp_path / "chat.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "job.toml").write_text(JOB.format(pack=pack))
    job = heddle.load_job("job.toml")
    assert useful_share(job) is None  # nothing was made into tokens yet, and a prediction makes nothing
    assert not list(tmp_path.glob("*/*/data.json"))
    assert job.data is not None
    samples = samples_of(prepared_for(job.data).train, 128, 0)
    found = useful_share(job)
    assert found is not None
    ids, targets = samples.batch(0, samples.count)
    assert found.learned == pytest.approx((targets >= 0).mean())
    assert found.filled == pytest.approx(samples.fill)
    assert (found.filled > 0.9) == (pack == "true")
    assert ids.shape[1] == 128
    assert call("simulate", "job.toml", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["useful_tokens_per_second"] == pytest.approx(found.filled * told["tokens_per_second"])
    assert call("plan", "job.toml", "--top", "1") == 0
    assert f"({found.filled:.1%}; the rest is padding)" in capsys.readouterr().out


PAIRS = """
[model]
layers = 1
hidden = 32
heads = 2
vocab = 257
sequence = 96
[data]
chat = "pairs.jsonl"
tokenizer = "bytes"
validation = 0.0
[train]
name = "pairs"
steps = 2
global_batch = 4
sequence = 96
[preference]
beta = 0.3
[plan]
microbatch = 4
"""


def test_a_run_on_pairs_tells_useful_tokens_and_rewards(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": "What? ", "chosen": "yes" * (1 + i % 4), "rejected": "no"} for i in range(12)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "pairs.toml").write_text(PAIRS)
    assert call("train", "pairs.toml") == 0
    log = capsys.readouterr().out
    found = read_metrics(tmp_path / "runs/pairs/metrics.jsonl")
    job = heddle.load_job("pairs.toml")
    samples = samples_of(prepared_for(job.data).train, 96, job.train.seed)
    assert [row["reward_accuracy"] for row in found if row["step"] == 1] == [0.0]  # it starts from its reference
    last = [row for row in found if "loss" in row][-1]
    assert last["reward_margin"] == pytest.approx(last["reward_chosen"] - last["reward_rejected"])
    assert last["useful_tokens_per_second"] == pytest.approx(samples.fill * last["tokens_per_second"])
    assert "useful" in log
    assert f"right {100 * last['reward_accuracy']:.0f}%" in log
    share = useful_share(job)
    _, targets = samples.batch(0, samples.count)
    assert share.learned == pytest.approx((targets >= 0).mean())  # tokens, though the loss is a mean over pairs
    assert call("train", "pairs.toml", "--dry-run") == 0
    assert f"({share.filled:.1%}; the rest is padding)" in " ".join(capsys.readouterr().out.split())
    assert call("train", "pairs.toml", "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["filled"] == share.filled
    assert {"reward_margin", "useful_tokens_per_second"} <= {*thinned(found)[-1]}
    page = heddle.report("runs/pairs").read_text(encoding="utf-8")
    assert 'data-curve="reward_accuracy"' in page


def test_text_has_no_padding(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("abc" * 1000)
    data = {"text": "a.txt", "tokenizer": "bytes"}
    assert useful_share(heddle.job("tiny", data=data, cluster="dgx-h100", plan={})) is None
