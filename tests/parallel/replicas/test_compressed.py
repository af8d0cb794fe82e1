"""Sums over replicas in fewer bits: alike on all of them to the bit, and nothing lost in the long run."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path

import pytest
import torch

from heddle.checkpoint.checkpoint import Saver, newest_good
from heddle.checkpoint.index import read_index
from heddle.parallel.codecs import CODECS
from heddle.parallel.mesh import Mesh
from heddle.parallel.replicas.compressed import CompressedSum
from heddle.schedule import outgoing
from heddle.spec import Data, Job, Plan, Train
from heddle.spec.network import DeviceGroup, Network, Speed
from heddle.spec.network.link_codes import AxisCodes, LinkCodes
from heddle.spec.ranks import coordinates, rank_of
from heddle.training.prove.prove import observe_serial, synthetic_tokens
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import thinned
from tests.helpers.small_models import gpt, llama

pytestmark = pytest.mark.dist

SHARE, STEPS = 300, 8


def meant(rank: int, step: int, count: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(1000 * rank + step))


def add_up(mesh: Mesh, shared: bool) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Of each code: the sums of all steps added up, and the last of them."""
    found = {}
    for name in CODECS:
        numbers = torch.zeros(SHARE * mesh.data.size)
        compressed = CompressedSum(numbers, mesh.data, AxisCodes((name,) * mesh.data.size, name), shared)
        total = torch.zeros(SHARE * mesh.data.size if shared else SHARE, dtype=torch.float64)
        for step in range(STEPS):
            numbers.copy_(meant(mesh.data.rank, step, len(numbers)))
            result = compressed.start().wait()
            if shared:
                result = compressed.read(compressed.share().wait())
            total += result
        found[name] = total, result.clone()
    return found


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "owned"])
@pytest.mark.parametrize("data", [2, 3])
def test_sums_add_up_to_what_was_meant(world, data, shared):
    results = world.run(add_up, Plan(data=data), shared)
    exact = sum(meant(rank, step, SHARE * data).double() for rank in range(data) for step in range(STEPS))
    quantum = {"bf16": 2**-5, "int8": 5 * data / 127, "int4": 5 * data / 7}  # of numbers up to 5 · data
    for name in CODECS:
        totals = [result[name][0] for result in results]
        if shared:
            assert all(torch.equal(result[name][1], results[0][name][1]) for result in results)
        else:
            totals = [torch.cat(totals)]
        # each sender but the owner is behind by half a quantum of its own, the owner of the sum by half of its
        assert (totals[0] - exact).abs().max() <= quantum[name] * (data + 1) / 2, name


def job(model, plan: Plan | None, batch: int = 4) -> Job:
    train = Train(steps=20, global_batch=batch, learning_rate=1e-2, warmup=2, clip=0.5)
    return Job(model=model, data=Data(text="-"), train=train, plan=plan)


def learn(mesh: Mesh, a_job: Job) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses, and what this rank holds of every parameter."""
    trainer = Trainer(a_job, synthetic_tokens(a_job), mesh)
    losses = [trainer.train_step().loss for _ in range(a_job.train.steps)]
    trainer.wait_for_weights()
    return losses, {name: parameter.detach().clone() for parameter, name in trainer.parallel.names.items()}


# how far the losses of twenty steps may be from those of one device; they fall by 0.2
CELLS = {
    "bf16": (gpt(), Plan(data=2, microbatch=1, compress_gradients="bf16"), 0.01),
    "int8-zero1-tensor2": (
        llama(),
        Plan(tensor=2, sequence=True, data=2, zero=1, microbatch=1, compress_gradients="int8"),
        0.05,
    ),
    "int8-tied-pipeline2": (gpt(), Plan(tensor=2, pipeline=2, data=2, microbatch=1, compress_gradients="int8"), 0.05),
    "int8-context2": (gpt(), Plan(context=2, data=2, microbatch=1, compress_gradients="int8"), 0.05),
    "int4": (gpt(), Plan(data=4, microbatch=1, compress_gradients="int4"), 0.1),
    "activations-bf16": (gpt(), Plan(pipeline=2, microbatch=1, compress_activations="bf16"), 0.01),
    "activations-int8": (
        gpt(layers=4),
        Plan(
            tensor=2, pipeline=2, virtual=2, microbatch=1, schedule="interleaved", compress_activations="int8"
        ),
        0.1,
    ),
    "both-sequence": (
        llama(),
        Plan(
            tensor=2, sequence=True, pipeline=2, data=2, microbatch=1, compress_gradients="int8",
            compress_activations="int8",
        ),
        0.05,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def learned(world):
    """What ranks learn in a cell, once for all who look at it."""
    return cache(lambda name: world.run(learn, CELLS[name][1], job(*CELLS[name][:2])))


@pytest.mark.parametrize("name", thinned(CELLS, slow=("activations-int8", "int8-tied-pipeline2", "int8-zero1-tensor2")))
def test_a_compressed_plan_learns_nearly_what_one_device_learns(learned, name):
    model, plan, limit = CELLS[name]
    results = learned(name)
    serial = observe_serial(job(model, None)).losses
    losses = results[0][0]
    assert all(result[0] == losses for result in results)
    far = max(abs(a - b) for a, b in zip(losses, serial, strict=True))
    assert 0 < far < limit < serial[0] - serial[-1]
    for rank, (_, held) in enumerate(results):  # replicas are the same, to the bit
        first = results[rank_of(plan, coordinates(plan, rank)._replace(data=0))][1]
        assert all(torch.equal(values, held[key]) for key, values in first.items())


def test_what_all_tensor_ranks_hold_stays_alike(learned):
    first, second = (held for _, held in learned("int8-zero1-tensor2")[:2])
    whole = [name for name in first if "norm" in name]
    assert whole
    assert all(torch.equal(first[name], second[name]) for name in whole)


def test_a_tied_embedding_stays_alike_at_both_ends(learned):
    held = [each for _, each in learned("int8-tied-pipeline2")]
    name = "embed.tokens.weight"
    assert torch.equal(held[0][name], held[4][name])
    assert torch.equal(held[1][name], held[5][name])


def save_and_go_on(mesh: Mesh, a_job: Job, folder: Path) -> list[float]:
    tokens = synthetic_tokens(a_job)
    trainer, saver = Trainer(a_job, tokens, mesh), Saver(folder, mesh)
    for _ in range(3):
        trainer.train_step()
    trainer.save(saver)
    losses = [trainer.train_step().loss for _ in range(3)]
    saver.wait()
    return losses


def go_on(mesh: Mesh, a_job: Job, folder: Path) -> tuple[list[float], dict[str, torch.Tensor]]:
    trainer = Trainer(a_job, synthetic_tokens(a_job), mesh)
    trainer.load(newest_good(folder, mesh, pytest.fail))
    left = {
        kept.piece.name: kept.piece.master.clone()
        for kept in trainer.parallel.gradients.kept
        if kept.kind == "residual"
    }
    return [trainer.train_step().loss for _ in range(3)], left


@pytest.mark.parametrize("zero", thinned((0, 1), slow=(0,)))
def test_a_resumed_run_goes_on_to_the_bit_and_other_replicas_lose_nothing(world, tmp_path, zero):
    # with as many ranks as the tests' world has: a saver makes a group, and all of it take part in that
    model, plan = gpt(), Plan(data=4, tensor=2, zero=zero, microbatch=1, compress_gradients="int4")
    a_job = job(model, plan, batch=8)
    went_on = world.run(save_and_go_on, plan, a_job, tmp_path)
    resumed = world.run(go_on, plan, a_job, tmp_path)
    assert [losses for losses, _ in resumed] == went_on
    more = dataclasses.replace(plan, data=8, tensor=1)
    spread = world.run(go_on, more, dataclasses.replace(a_job, plan=more), tmp_path)
    for name in [name for name in resumed[0][1] if "norm" in name]:  # which all tensor ranks hold
        before, after = sum(left[name] for _, left in resumed[::2]), sum(left[name] for _, left in spread)
        assert before.abs().max() > 0
        torch.testing.assert_close(before, after)
    names = set(read_index(next(tmp_path.glob("step-*"))))
    assert ("embed.tokens.weight:sum_residual" in names) == (zero == 0)


SLOW = Speed(latency_ms=10, gbps=0.1)
FAST = Speed(latency_ms=0.1, gbps=10)


def sites(*sizes: int) -> Network:
    groups = tuple(DeviceGroup(name=name, devices=size, inside=FAST) for name, size in zip("abcd", sizes, strict=False))
    return Network(groups=groups, across=SLOW)


def mixed_sum(mesh: Mesh, codes: list[list[str]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """All sums of some steps added up, the last of them, what is yet to be said, and bytes of the first half."""
    numbers = torch.zeros(SHARE * mesh.data.size)
    compressed = CompressedSum(numbers, mesh.data, AxisCodes(tuple(codes[mesh.data.rank]), "int4"), shared=True)
    total = torch.zeros(len(numbers), dtype=torch.float64)
    for step in range(STEPS):
        numbers.copy_(meant(mesh.data.rank, step, len(numbers)))
        handle = compressed.start()
        handle.wait()
        result = compressed.read(compressed.share().wait())
        total += result
    return total, result.clone(), compressed.parts.residual.clone(), handle.kept[0].nbytes


def test_each_part_of_a_sum_goes_in_the_code_of_its_link(world):
    codes = [["int4", "none", "int8"], ["none", "int4", "bf16"], ["int8", "bf16", "int4"]]
    results = world.run(mixed_sum, Plan(data=3), codes)
    exact = sum(meant(rank, step, SHARE * 3).double() for rank in range(3) for step in range(STEPS))
    for rank, (total, last, left, size) in enumerate(results):
        assert torch.equal(last, results[0][1])  # on all replicas, to the bit
        assert (total - exact).abs().max() <= 15 / 7  # one quantum of the sum, of numbers up to 15
        exactly = [other for other in range(3) if other != rank and codes[rank][other] == "none"]
        assert (left[exactly] == 0).all()  # nothing is left to say where all is said
        assert (left[[other for other in range(3) if other != rank and codes[rank][other] != "none"]] != 0).any()
        sizes = [4 * SHARE if code == "none" else CODECS[code].size(SHARE) for code in codes[rank]]
        assert size == sum(sizes)


BY_LINK = {
    "inside-exact": (gpt(), Plan(data=4, microbatch=1, codes=(LinkCodes(gradients="int8"),)), sites(3, 1)),
    "three-codes-zero1": (
        llama(),
        Plan(
            data=4, zero=1, microbatch=1,
            codes=(LinkCodes(gradients="int8"), LinkCodes(groups=("a", "c"), gradients="bf16")),
        ),
        sites(2, 1, 1),
    ),
    "tied-ends": (  # the first stage's replicas are at one site, the last one's at two
        gpt(),
        Plan(pipeline=2, data=2, microbatch=1, codes=(LinkCodes(gradients="int8"),), devices=(0, 1, 2, 3)),
        sites(3, 1),
    ),
    "activations": (
        gpt(layers=4),
        Plan(pipeline=4, microbatch=1, codes=(LinkCodes(activations="int8"),)),
        sites(2, 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", thinned(BY_LINK, slow=("inside-exact",)))
def test_a_plan_with_codes_by_link_learns_nearly_what_one_device_learns(world, name):
    model, plan, network = BY_LINK[name]
    results = world.run(learn, plan, dataclasses.replace(job(model, plan), network=network))
    serial = observe_serial(job(model, None)).losses
    losses = results[0][0]
    far = max(abs(a - b) for a, b in zip(losses, serial, strict=True))
    assert 1e-6 < far < 0.1 < serial[0] - serial[-1]
    for rank, (_, held) in enumerate(results):
        first = results[rank_of(plan, coordinates(plan, rank)._replace(data=0))][1]
        assert all(torch.equal(values, held[key]) for key, values in first.items())
    if name == "tied-ends":
        embedding = "embed.tokens.weight"
        assert torch.equal(results[0][1][embedding], results[2][1][embedding])


def sizes_sent(mesh: Mesh, a_job: Job) -> dict[tuple[int, int], int]:
    """Bytes of a message from this stage to each neighbor, as they are posted."""
    pipeline = Trainer(a_job, synthetic_tokens(a_job), mesh).pipeline
    found = {}
    for action in pipeline.actions:
        message = outgoing(pipeline.schedule, action)
        if message is not None:
            found[message.source, message.destination] = pipeline._empty(message).nbytes
    return found


def test_only_messages_between_groups_are_in_codes(world):
    model, plan, network = BY_LINK["activations"]
    sent = world.run(sizes_sent, plan, dataclasses.replace(job(model, plan), network=network))
    exact, coded = 8 * 16 * 4, CODECS["int8"].size(8 * 16)
    assert {way: size for each in sent for way, size in each.items()} == {
        (0, 1): exact, (1, 0): exact, (1, 2): coded, (2, 1): coded, (2, 3): exact, (3, 2): exact,
    }  # fmt: skip


def test_links_that_are_all_exact_change_nothing(world):
    plan = Plan(pipeline=2, data=2, microbatch=1)
    named = dataclasses.replace(plan, codes=(LinkCodes(links="inside", gradients="int4", activations="int8"),))
    alone = dataclasses.replace(job(gpt(), named), network=sites(1, 1, 1, 1))  # nobody is inside with another
    assert world.run(learn, named, alone)[0][0] == world.run(learn, plan, job(gpt(), plan))[0][0]
