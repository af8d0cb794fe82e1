"""Adapters under every plan must learn what they learn on one device; B begins with random numbers."""

from __future__ import annotations

import dataclasses
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

import heddle.parallel.replicas.reducer
import heddle.parallel.tensor.adapters
import heddle.parallel.tensor.linear
from heddle.checkpoint.checkpoint import Saver
from heddle.checkpoint.index import read_index
from heddle.parallel.mesh import Axis, Mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.tune import Lora, Tune, adapter_parameters
from heddle.training.prove.compare import LOSS_LIMIT, Comparison, Observed, compare
from heddle.training.prove.prove import gradient_rounding, observe, observe_serial, synthetic_tokens
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import thinned
from tests.helpers.small_models import gpt, llama
from tests.helpers.world import World

pytestmark = pytest.mark.dist

PLAIN = Tune(lora=Lora(rank=3, alpha=6.0))
DROPS = Tune(lora=Lora(rank=2, dropout=0.2, rank_stabilized=True))
SOME = Tune(lora=Lora(rank=3, targets=("q", "v", "down")))
ALSO = Tune(lora=Lora(rank=2), also=("norm", "head"))

CELLS: dict[str, tuple[ModelSpec, Plan, Tune]] = {
    "microbatches": (llama(), Plan(microbatch=1), PLAIN),
    "tensor2": (llama(), Plan(tensor=2, microbatch=2), PLAIN),
    "tensor2-gpt-some": (gpt(), Plan(tensor=2, microbatch=2), SOME),
    "tensor2-seq": (llama(), Plan(tensor=2, sequence=True, microbatch=2), PLAIN),
    "tensor2-seq-dropout": (llama(dropout=0.1), Plan(tensor=2, sequence=True, microbatch=2, recompute="full"), DROPS),
    "tensor2-dropout": (gpt(), Plan(tensor=2, microbatch=1, recompute="selective"), DROPS),
    "data2": (llama(), Plan(data=2, microbatch=1), PLAIN),
    "data2-zero1": (gpt(), Plan(data=2, zero=1, microbatch=1), PLAIN),
    "data2-zero2": (llama(), Plan(data=2, zero=2, microbatch=1), PLAIN),
    "data4-zero3": (llama(), Plan(data=4, zero=3, microbatch=1), PLAIN),
    "data2-zero3-recompute": (gpt(), Plan(data=2, zero=3, microbatch=1, recompute="full"), SOME),
    "tensor2-elementwise": (llama(), Plan(tensor=2, microbatch=1, recompute="elementwise"), DROPS),
    "data2-elementwise": (gpt(), Plan(data=2, zero=3, microbatch=1, recompute="elementwise"), SOME),
    "pipeline2": (gpt(), Plan(pipeline=2, microbatch=1), PLAIN),
    "pipeline2-virtual2": (llama(layers=4), Plan(pipeline=2, virtual=2, microbatch=1, schedule="interleaved"), DROPS),
    "zb-h1": (llama(layers=3), Plan(pipeline=3, microbatch=1, schedule="zb-h1"), PLAIN),
    "zb-v-tensor2": (llama(layers=4), Plan(tensor=2, pipeline=2, virtual=2, microbatch=1, schedule="zb-v"), PLAIN),
    "context2-tensor2": (llama(), Plan(context=2, tensor=2, microbatch=1), DROPS),
    "context2-zero3": (llama(), Plan(context=2, data=2, zero=3, microbatch=1), PLAIN),
    "also": (llama(), Plan(tensor=2, sequence=True, data=2, zero=1, microbatch=1), ALSO),
    "all": (llama(), Plan(tensor=2, sequence=True, pipeline=2, data=2, zero=1, microbatch=1), DROPS),
    "all-zero3": (llama(), Plan(tensor=2, data=4, zero=3, microbatch=1), PLAIN),
}
# what they spread, others spread too, with more beside it
SLOW = (
    "tensor2",
    "tensor2-dropout",
    "data2",
    "data2-zero1",
    "pipeline2",
    "zb-h1",
    "tensor2-seq",
    "data4-zero3",
    "also",
    "zb-v-tensor2",
    "context2-zero3",
    "tensor2-elementwise",
)
BATCH = 8


def job(model: ModelSpec, plan: Plan, tune: Tune) -> Job:
    train = Train(global_batch=BATCH, steps=3, precision="fp32", learning_rate=1e-2)
    return Job(model=model, data=Data(text="-"), train=train, plan=plan, tune=tune)


@cache
def serial(model: ModelSpec, tune: Tune) -> tuple[Observed, float]:
    plain = job(model, Plan(), tune)
    found = observe_serial(plain)
    return found, gradient_rounding(plain, found)


def compared(world: World, name: str, work: Any = observe) -> Comparison:
    model, plan, tune = CELLS[name]
    parallel = world.run(work, plan, job(model, plan, tune))[0]
    return compare(parallel, *serial(model, tune))


@pytest.mark.parametrize("name", thinned(CELLS, slow=SLOW))
def test_adapters_learn_what_they_learn_on_one_device(world, name):
    comparison = compared(world, name)
    assert comparison.max_loss_diff < LOSS_LIMIT
    assert comparison.equal, (comparison.worst, comparison.gradients[comparison.worst])


def test_every_adapter_has_a_gradient_from_the_first_step_on():
    """With B at zero, A would have none, and nothing here would be a test of it."""
    observed, rounding = serial(llama(), PLAIN)
    assert rounding < 1e-5
    assert {box.name.rpartition(".")[2] for box in observed.boxes} == {"lora_a", "lora_b"}
    assert len(observed.boxes) == 2 * 2 * 7  # of two layers and seven targets, and of nothing else
    assert all(abs(box.values).max() > 1e-6 for box in observed.boxes)


def observe_with_nan_in_new_memory(mesh: Mesh, given: Job) -> Observed | None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        return observe(mesh, given)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", ["tensor2", "all", "all-zero3"])
def test_nothing_is_read_that_was_never_written(world, name):
    """Rows that only pad the vocabulary of a frozen output layer are multiplied by zero; NaN times zero is NaN."""
    assert compared(world, name, observe_with_nan_in_new_memory).equal


def observe_with(fault: Any, mesh: Mesh, given: Job) -> Observed | None:
    with fault():
        return observe(mesh, given)


def column_a_not_summed() -> Any:
    return patch.object(heddle.parallel.tensor.adapters, "to_all", lambda x, _axis: x)


def row_a_not_summed() -> Any:
    return patch.object(heddle.parallel.tensor.adapters, "sum_partial", lambda x, _axis: x)


def slices_not_summed() -> Any:
    """With sequence parallelism, what each rank's tokens give to column-parallel A and row-parallel B."""
    sums_of = heddle.parallel.replicas.reducer.sums_of

    def wrong(parameter, mesh):
        return sums_of(parameter, dataclasses.replace(mesh, tensor=Axis()))

    return patch.object(heddle.parallel.replicas.reducer, "sums_of", wrong)


def dropout_by_place_on_the_rank() -> Any:
    def wrong(linear, axis, sequence):
        found = right(linear, axis, sequence)
        if found is not None:
            found.first = 0
        return found

    right = heddle.parallel.tensor.linear.row_adapters
    return patch.object(heddle.parallel.tensor.linear, "row_adapters", wrong)


FAULTS = [
    ("tensor2", column_a_not_summed, "lora_a"),
    ("tensor2", row_a_not_summed, "lora_"),
    ("tensor2-seq", slices_not_summed, "lora_"),
    ("tensor2-dropout", dropout_by_place_on_the_rank, "lora_"),
]


@pytest.mark.parametrize(("name", "fault", "where"), FAULTS)
def test_a_planted_fault_is_found(world, name, fault, where):
    comparison = compared(world, name, partial(observe_with, fault))
    assert not comparison.equal
    assert where in comparison.worst


def held(mesh: Mesh, given: Job) -> tuple[int, int, int, bool]:
    trainer = Trainer(given, synthetic_tokens(given), mesh)
    trainer.train_step()
    updated = sum(piece.master.numel() for piece in trainer.optimizer.pieces)
    kept = sum(x.numel() for state in trainer.optimizer.adam.state.values() for x in state.values() if x.dim())
    frozen = [p for chunk in trainer.parallel.chunks.values() for p in chunk.parameters() if not p.requires_grad]
    return (
        updated,
        kept,
        sum(piece.master.numel() for piece in trainer.parallel.frozen),
        any(p.grad is not None for p in frozen),
    )


def test_what_is_frozen_has_no_gradient_and_no_optimizer_state(world):
    model = llama()
    adapters = adapter_parameters(model, PLAIN.adapters)
    for plan, shares in ((Plan(), 1), (Plan(data=2, zero=1, microbatch=1), 1), (Plan(data=2, zero=3, microbatch=1), 2)):
        for updated, kept, frozen, gradients in world.run(held, plan, job(model, plan, PLAIN)):
            assert updated <= adapters / (plan.data if plan.zero else 1) + 4
            assert kept == 2 * updated
            assert frozen == pytest.approx(model.parameters / shares, rel=0.02)
            assert not gradients


def saved_and_loaded(mesh: Mesh, given: Job, folder: Path) -> list[float]:
    trainer = Trainer(given, synthetic_tokens(given), mesh)
    saver = Saver(folder, mesh)
    before = [trainer.train_step().loss for _ in range(2)]
    trainer.save(saver)
    saver.wait()
    return [*before, trainer.train_step().loss]


def taken_up(mesh: Mesh, given: Job, folder: Path) -> float:
    trainer = Trainer(given, synthetic_tokens(given), mesh)
    trainer.load(folder / "step-00000002")
    return trainer.train_step().loss


def test_a_checkpoint_of_adapters_is_taken_up_under_another_plan(world, tmp_path):
    model = llama()
    split = Plan(tensor=2, sequence=True, data=2, zero=1, microbatch=1)
    losses = world.run(saved_and_loaded, split, job(model, split, PLAIN), tmp_path)[0]
    assert all("adapters" in name for name in read_index(tmp_path / "step-00000002"))
    for plan in (Plan(), Plan(pipeline=2, microbatch=2), Plan(data=2, zero=3, microbatch=1)):
        assert world.run(taken_up, plan, job(model, plan, PLAIN), tmp_path)[0] == pytest.approx(losses[2], rel=1e-6)
