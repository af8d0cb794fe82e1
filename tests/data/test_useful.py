"""What of a job's tokens is of use: known of conversations that were made into tokens, by `plan` and `simulate`."""

from __future__ import annotations

import json

import pytest

import heddle
from heddle.data import prepared_for, samples_of
from heddle.data.useful import useful_share
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


def test_text_has_no_padding(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("abc" * 1000)
    data = {"text": "a.txt", "tokenizer": "bytes"}
    assert useful_share(heddle.job("tiny", data=data, cluster="dgx-h100", plan={})) is None
