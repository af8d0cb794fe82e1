"""Files that exit, raise too late, or say nonsense: told in three parts, with the line of the file."""

from __future__ import annotations

import pytest
import torch

from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.spec import Job, Plan, Train
from heddle.spec.own import own_model
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.choose import make_trainer

GOOD = """
import torch
import torch.nn.functional as F


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(32, 8), torch.nn.Linear(8, 32)

    def forward(self, ids):
        return self.head(self.embed(ids))


def make():
    return Net()


def loss(module, batch):
    logits, targets = module(batch.ids).flatten(0, 1), batch.targets.flatten()
    return F.cross_entropy(logits, targets, reduction="sum", ignore_index=-100), targets.ne(-100).sum()
"""
LATE = """
import os

right = loss


def loss(module, batch):
    if "FAIL_NOW" in os.environ:
        {what}
    return right(module, batch)
"""


def read(folder, text):
    (folder / "mine.py").write_text(text)
    return own_model({"module": f"{folder / 'mine.py'}:make", "vocab": 32, "sequence": 8})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise SystemExit(0)", r"mine.py cannot be run: it exits \(0\)"),
        ("import sys\nsys.exit('no')", r"it exits \(no\)"),
        (GOOD.replace("return Net()", "raise SystemExit(7)"), r"cannot make its module: make\(\): it exits \(7\)"),
        (GOOD + "\ndef loss(module, batch):\n    raise SystemExit(5)\n", r"loss on tensors without values: it exits"),
        ("x = 1", "has no function 'make'"),
        (GOOD + "\nplan = {'blocks': 'layers.*'}\n", "matches no list of blocks"),
        (GOOD + "\nplan = {'column': 5}\n", r"plan\['column'\] = 5 has the wrong type"),
        (GOOD + "\nplan = {'column': None}\n", r"plan\['column'\] = None has the wrong type"),
        (GOOD + "\ndef loss(module, batch):\n    return module(batch.ids).sum(), 'x'\n", r"loss\(\) gives tuple"),
        (GOOD + "\ndef loss(module, batch):\n    return module(batch.ids).sum(), batch.ids\n", r"loss\(\) gives tuple"),
    ],
    ids=lambda value: value[-40:],
)
def test_a_file_that_cannot_serve_is_told(tmp_path, text, words):
    with pytest.raises(HeddleError, match=words) as found:
        read(tmp_path, text)
    assert found.value.why
    assert "Did you mean 'make'" not in found.value.hint


@pytest.mark.parametrize("what", ["raise KeyError('late')", "raise SystemExit(5)", "1 / 0"])
def test_a_loss_that_fails_in_training_is_told_with_its_line(tmp_path, monkeypatch, what):
    model = read(tmp_path, GOOD + LATE.format(what=what))
    job = Job(model=model, train=Train(global_batch=4, precision="fp32", steps=1), plan=Plan(microbatch=4))
    trainer = make_trainer(job, synthetic_tokens(job), Mesh())
    monkeypatch.setenv("FAIL_NOW", "1")
    with pytest.raises(HeddleError, match=r"mine.py cannot compute its loss") as found:
        trainer.train_step()
    line = 1 + (GOOD + LATE.format(what=what)).splitlines().index(f"        {what}")
    assert f"line {line}" in found.value.why


def test_what_devices_and_peers_do_is_not_blamed_on_the_file(tmp_path, monkeypatch):
    model = read(tmp_path, GOOD + LATE.format(what="raise torch.OutOfMemoryError('full')"))
    job = Job(model=model, train=Train(global_batch=4, precision="fp32", steps=1), plan=Plan(microbatch=4))
    trainer = make_trainer(job, synthetic_tokens(job), Mesh())
    monkeypatch.setenv("FAIL_NOW", "1")
    with pytest.raises(torch.OutOfMemoryError):
        trainer.train_step()
