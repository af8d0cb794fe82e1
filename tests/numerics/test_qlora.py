"""Adapters beside a base in four bits: the same bits under every plan, and the same is learned as on one device."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import pytest
import torch

import heddle.parallel.quantized
from heddle.models.init import initialize_parameter
from heddle.models.nf4 import NF4Rows, rounded
from heddle.parallel.mesh import Mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.tune import Lora, Preference, Tune
from heddle.training.prove.compare import LOSS_LIMIT, Observed, compare
from heddle.training.prove.prove import gradient_rounding, observe, observe_serial, synthetic_tokens
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import thinned
from tests.helpers.small_models import gpt, llama
from tests.helpers.world import World
from tests.strict import strict_run

pytestmark = pytest.mark.dist

ALL = Tune(lora=Lora(rank=3, alpha=6.0), base="nf4")
SOME = Tune(lora=Lora(rank=2, targets=("q", "v")), base="nf4")
WIDE = llama(hidden=96, heads=8, kv_heads=4, head_size=12, ffn=160)  # blocks of 64 and of 32; cuts go through them
# what they spread, others spread too, with more beside it
SLOW = (
    "tensor2",
    "tensor4-recompute",
    "data2-zero1",
    "data2-zero2",
    "data4-zero3",
    "pipeline2",
    "all",
    "zb-v-tensor2",
    "tensor2-seq",
)
BATCH = 8

CELLS: dict[str, tuple[ModelSpec, Plan, Tune]] = {
    "microbatches": (WIDE, Plan(microbatch=1), ALL),
    "tensor2": (WIDE, Plan(tensor=2, microbatch=2), ALL),
    "tensor2-seq": (WIDE, Plan(tensor=2, sequence=True, microbatch=2), ALL),
    "tensor4-recompute": (WIDE, Plan(tensor=4, microbatch=2, recompute="full"), ALL),
    "data2-zero1": (WIDE, Plan(data=2, zero=1, microbatch=1), ALL),
    "data2-zero2": (gpt(), Plan(data=2, zero=2, microbatch=1), SOME),
    "data4-zero3": (WIDE, Plan(data=4, zero=3, microbatch=1), ALL),
    "elementwise": (gpt(), Plan(microbatch=1, recompute="elementwise"), SOME),
    "data2-zero3-recompute": (gpt(), Plan(data=2, zero=3, microbatch=1, recompute="full"), SOME),
    "pipeline2": (gpt(), Plan(pipeline=2, microbatch=1), SOME),
    "zb-v-tensor2": (llama(layers=4), Plan(tensor=2, pipeline=2, virtual=2, microbatch=1, schedule="zb-v"), ALL),
    "context2-tensor2": (WIDE, Plan(context=2, tensor=2, microbatch=1), ALL),
    "all": (WIDE, Plan(tensor=2, sequence=True, pipeline=2, data=2, zero=1, microbatch=1), ALL),
    "all-zero3": (WIDE, Plan(tensor=2, data=4, zero=3, microbatch=1), ALL),
    "offload": (WIDE, Plan(data=2, zero=3, microbatch=1, offload=("weights:host", "optimizer:host")), ALL),
}


def job(model: ModelSpec, plan: Plan, tune: Tune) -> Job:
    train = Train(global_batch=BATCH, steps=3, precision="fp32", learning_rate=1e-2)
    return Job(model=model, data=Data(text="-"), train=train, plan=plan, tune=tune)


@cache
def serial(model: ModelSpec, tune: Tune) -> tuple[Observed, float]:
    plain = job(model, Plan(), tune)
    found = observe_serial(plain)
    return found, gradient_rounding(plain, found)


def wrong_numbers(mesh: Mesh, given: Job) -> list[str]:
    """Frozen matrices of which this rank holds other numbers than those of the whole matrix, rounded."""
    trainer = Trainer(given, synthetic_tokens(given), mesh)
    wrong = []
    for piece in trainer.parallel.frozen:
        if piece.nf4 is None:
            continue
        whole = torch.empty(piece.place.shape)
        initialize_parameter(whole, piece.name, given.model, given.train.seed, piece.place.shape, (0, 0))
        row, width = piece.place.offset[0], piece.local[1]
        first, last = -(-piece.start // width), (piece.start + piece.master.numel()) // width  # whole rows
        held = piece.master[first * width - piece.start : last * width - piece.start].view(-1, width)
        wanted = rounded(whole)[row + first : row + last, piece.nf4.first : piece.nf4.first + piece.nf4.columns]
        if not torch.equal(piece.nf4.numbers(held, torch.float32), wanted):
            wrong.append(piece.name)
    assert any(piece.nf4 is not None for piece in trainer.parallel.frozen)
    return wrong


def both(mesh: Mesh, given: Job) -> tuple[Observed | None, list[str]]:
    return observe(mesh, given), wrong_numbers(mesh, given)


@pytest.mark.parametrize("name", thinned(CELLS, slow=SLOW))
def test_a_base_in_four_bits_has_the_same_bits_and_adapters_learn_the_same(world: World, name: str):
    model, plan, tune = CELLS[name]
    results = world.run(both, plan, job(model, plan, tune))
    assert [wrong for _, wrong in results] == [[]] * plan.world
    comparison = compare(results[0][0], *serial(model, tune))
    assert comparison.max_loss_diff < LOSS_LIMIT
    assert comparison.equal, (comparison.worst, comparison.gradients[comparison.worst])


def test_four_bits_change_what_is_learned():
    """Else nothing here would be a test of them."""
    plain = observe_serial(job(WIDE, Plan(), Tune(lora=ALL.lora)))
    assert abs(plain.losses[0] - serial(WIDE, ALL)[0].losses[0]) > 10 * LOSS_LIMIT


def with_slices_by_themselves(work: Any, mesh: Mesh, given: Job) -> Any:
    """A planted fault: every rank cuts blocks from the beginning of its own columns."""
    right = heddle.parallel.quantized.fill_quantized

    def alone(piece: Any, read: Any) -> None:
        if piece.nf4 is not None and piece.nf4.first:
            first = piece.nf4.first

            def shifted(values: torch.Tensor, shape: torch.Size, offset: tuple[int, int]) -> None:
                read(values, shape=shape, offset=(offset[0], offset[1] + first))

            layout = NF4Rows(0, piece.nf4.columns)
            packed = torch.zeros_like(piece.master)

            if layout.bytes == piece.nf4.bytes:
                right(replace(piece, nf4=layout, master=packed), shifted)
                piece.master.copy_(packed)
                return
        right(piece, read)

    with patch.object(heddle.parallel.apply, "fill_quantized", alone):
        return work(mesh, given)


def test_blocks_of_slices_would_be_found(world: World):
    model, plan, tune = llama(hidden=128, heads=8, kv_heads=4, head_size=12, ffn=192), Plan(tensor=2, microbatch=2), ALL
    found = world.run(partial(with_slices_by_themselves, wrong_numbers), plan, job(model, plan, tune))
    assert any(name.endswith("mlp.down.weight") for wrong in found for name in wrong)


@pytest.mark.parametrize("name", thinned(["tensor2-seq", "all-zero3"], slow=["all-zero3"]))
def test_a_base_in_four_bits_runs_by_the_rules_of_nccl(name: str):
    """Bytes are gathered in place of numbers."""
    model, plan, tune = CELLS[name]
    given = job(model, plan, tune)
    serially = Trainer(job(model, Plan(microbatch=BATCH), tune), synthetic_tokens(given))
    expected = [serially.train_step().loss for _ in range(2)]
    assert strict_run(given, 2).results[0][:2] == pytest.approx(expected, rel=1e-5)


def test_preferences_beside_four_bits_are_learned_alike(world: World):
    """The reference is the base in four bits without adapters."""
    plan = Plan(tensor=2, data=2, zero=3, microbatch=1)
    data, preference = Data(chat="-", learn="preference"), Preference(beta=0.5)
    given = replace(job(WIDE, plan, ALL), data=data, preference=preference)
    plain = replace(given, plan=Plan())
    alone = observe_serial(plain)
    found = compare(world.run(observe, plan, given)[0], alone, gradient_rounding(plain, alone))
    assert found.equal, found.worst
