"""Captured modules over processes: outputs, gradients and new weights are those of the whole module."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn

import heddle
from heddle.errors import HeddleError
from tests.capturing.test_capture import loss_of, made, tensors
from tests.helpers.commands import REPOSITORY, blocks
from tests.helpers.launching import python
from tests.helpers.small_modules import OWN
from tests.strict import strict_ranks

pytestmark = pytest.mark.dist


def batches_like(inputs, keywords, count):
    def new(x):
        return torch.randn(x.shape) if x.is_floating_point() else torch.randint(0, 2, x.shape)

    found = [(tuple(map(new, inputs)), {name: new(x) for name, x in keywords.items()}) for _ in range(count)]
    return found if keywords else [batch for batch, _ in found]


def with_target(batches, keywords):
    target = torch.zeros(())
    return [((*batch[0], target), batch[1]) if keywords else (*batch, target) for batch in batches]


def call(module, batch, keywords):
    return module(*batch[0], **batch[1]) if keywords else module(*batch)


def slow(*case):
    """What shows little more than the others, and takes seconds."""
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(("name", "devices"), [slow("resnet50", 2), ("seq2seq", 3), slow("t5", 2), slow("gpt2", 2)])
def test_inference_gives_what_the_module_gives(name, devices, monkeypatch):
    module, inputs, keywords = made(name)
    placed = heddle.place(module, inputs, keywords, devices=devices, times="modeled")
    batches = batches_like(inputs, keywords, 5)
    found = placed.run(batches)
    assert found.stages == devices
    assert found.throughput > 0
    monkeypatch.setattr(torch.backends.mha, "get_fastpath_enabled", lambda: False)
    with torch.no_grad():
        for batch, output in zip(batches, found.outputs, strict=True):
            for ours, theirs in zip(tensors(output), tensors(call(module, batch, keywords)), strict=True):
                assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("name", "devices"), [slow("inception", 2), slow("seq2seq", 2), ("gpt2", 3), slow("t5", 2), ("routed", 2)]
)
def test_training_learns_what_the_module_learns(name, devices):
    """Gradients of one step, then weights and buffers after two more; tied weights, batch norm, skips over stages."""
    module, inputs, keywords = made(name)
    if name in OWN:
        module.train()  # Hugging Face's have dropout, which draws other numbers in other processes
    plain = copy.deepcopy(module)
    example = with_target([(inputs, keywords) if keywords else inputs], keywords)[0]
    example, named = example if keywords else (example, {})
    placed = heddle.place(module, example, named, devices=devices, times="modeled", training=True, loss=loss_of)
    assert len(placed.stages) == devices
    batches = batches_like(inputs, keywords, 4)
    found = placed.run(with_target(batches, keywords))
    losses = []
    for batch in batches:
        loss = loss_of(call(plain, batch, keywords), None)
        (loss / len(batches)).backward()
        losses.append(loss.detach())
    torch.testing.assert_close(torch.stack(found.outputs), torch.stack(losses))
    for (path, ours), theirs in zip(module.named_parameters(), plain.parameters(), strict=True):
        if theirs.grad is not None:
            torch.testing.assert_close(
                ours.grad, theirs.grad, rtol=1e-4, atol=1e-6, msg=lambda text, p=path: f"{p}: {text}"
            )
    placed.run(with_target(batches, keywords), optimizer=partial(torch.optim.SGD, lr=0.1), microbatches=2)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for first in (0, 2):
        optimizer.zero_grad()
        for batch in batches[first : first + 2]:
            (loss_of(call(plain, batch, keywords), None) / 2).backward()
        optimizer.step()
    after = plain.state_dict()
    for path, value in module.state_dict().items():
        torch.testing.assert_close(value, after[path], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("name", "training"), [("seq2seq", False), slow("inception", True), ("gpt2", True)])
def test_stages_run_by_the_rules_of_nccl(name, training, monkeypatch):
    """See `strict`: what GPUs would not bear is an error; warm-up, tied weights and skips over stages included."""
    module, inputs, keywords = made(name)
    options = {"training": True, "loss": loss_of} if training else {}
    example = with_target([(inputs, keywords) if keywords else inputs], keywords)[0] if training else inputs
    example, named = example if keywords and training else (example, keywords)
    placed = heddle.place(module, example, named, devices=3, times="modeled", **options)
    batches = batches_like(inputs, keywords, 8)

    def run_strictly(plan, work, *arguments, script):
        strict_ranks(lambda mesh: work(mesh, *arguments), plan).replay()

    monkeypatch.setattr("heddle.runtime.launch.run_processes", run_strictly)
    found = placed.run(with_target(batches, keywords) if training else batches)
    assert len(found.outputs) == 8
    for output in tensors(found.outputs):
        assert not torch.isnan(output).any()


def test_measured_times_predict():
    """No claim on how well while other tests run: the benchmark measures that."""
    module, inputs, keywords = made("inception")
    placed = heddle.place(module, inputs, keywords, devices=2)
    assert (placed.graph.accelerator > 0).all()
    assert placed.run(batches_like(inputs, keywords, 3)).predicted == placed.throughput == 1e3 / placed.placement.value


@pytest.mark.parametrize(
    ("batches", "options", "told"),
    [
        ([], {}, "There are no batches"),
        ([(torch.ones(3, 4),)], {}, r"Input input of batch 0 is \(\[3, 4\]"),
        ([(torch.ones(2, 4), 1)], {}, "Batch 0 does not look like the example inputs"),
        ([{"x": torch.ones(2, 4)}], {}, "Batch 0 has the keywords"),
        ([(torch.ones(2, 4),)], {"optimizer": torch.optim.SGD}, "nothing to optimize in inference"),
        ([(torch.ones(2, 4),)] * 3, {"microbatches": 2}, "3 batches do not make whole steps of 2"),
    ],
)
def test_mistakes_are_told_before_anything_starts(batches, options, told):
    placed = heddle.place(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), (torch.ones(2, 4),), times="modeled")
    with pytest.raises(HeddleError, match=told):
        placed.run(batches, **options)


def test_only_pipelines_run():
    placed = heddle.place(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), (torch.ones(2, 4),), times="modeled")
    latency = heddle.capturing.placed.Placed(placed.graph, heddle.place(placed.graph, objective="latency"))
    with pytest.raises(HeddleError, match="This placement is not a pipeline"):
        latency.run([(torch.ones(2, 4),)])


def test_the_page_runs_as_it_is(tmp_path):
    """As a script of the reader's own: processes import it again."""
    scripts = blocks(REPOSITORY / "docs" / "decide/placement.md", "python")
    assert len(scripts) == 2
    for number, script in enumerate(scripts):
        path = tmp_path / f"page_{number}.py"
        path.write_text(script, encoding="utf-8")
        process = python(str(path), cwd=tmp_path)
        said, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert said
