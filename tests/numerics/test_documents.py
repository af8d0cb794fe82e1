"""Samples of several documents learn under every plan what they learn on one device."""

from __future__ import annotations

from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import heddle.parallel.context.attention
from heddle.data import Samples
from heddle.parallel.mesh import Mesh
from heddle.spec import Job, ModelSpec, Plan
from heddle.training.prove.compare import LOSS_LIMIT, Comparison, Observed, compare, likely_cause
from heddle.training.prove.prove import gradient_rounding, observe, observe_serial
from tests.helpers.cases import thinned
from tests.helpers.small_models import gpt, llama
from tests.helpers.world import World
from tests.numerics.test_equality_grid import STEPS, job
from tests.strict import strict_run

pytestmark = pytest.mark.dist

BATCH = 4
RING, GATHER, SWAP = ({"context_exchange": exchange} for exchange in ("ring", "gather", "all-to-all"))
CELLS: dict[str, tuple[ModelSpec, Plan]] = {
    "microbatches": (gpt(dropout=0.1), Plan(microbatch=1)),
    "selective": (llama(window=3), Plan(microbatch=2, recompute="selective")),
    "tensor2-seq": (llama(), Plan(tensor=2, sequence=True, microbatch=2)),
    "pipeline2-data2-zero1": (gpt(), Plan(pipeline=2, data=2, zero=1, microbatch=1)),
    "zb-v": (llama(layers=4, tied=True), Plan(pipeline=2, virtual=2, schedule="zb-v", microbatch=1)),
    "context2-ring": (gpt(dropout=0.1), Plan(context=2, microbatch=2, **RING)),
    "context4-ring-full": (llama(kv_heads=2), Plan(context=4, microbatch=2, recompute="full", **RING)),
    "context4-ring-window": (llama(window=3), Plan(context=4, microbatch=1, **RING)),
    "context2-gather-zero3": (llama(), Plan(context=2, zero=3, microbatch=2, **GATHER)),
    "context4-gather-selective": (gpt(), Plan(context=4, microbatch=2, recompute="selective", **GATHER)),
    "context2-swap": (llama(window=5), Plan(context=2, microbatch=2, **SWAP)),
    "context4-2d": (llama(window=5), Plan(context=4, context_inner=2, microbatch=2, context_exchange="2d")),
    "context2-swap-pipeline2": (gpt(), Plan(context=2, pipeline=2, microbatch=1, **SWAP)),
    "tensor2-seq-context2-pipeline2": (
        llama(dropout=0.1),
        Plan(tensor=2, sequence=True, context=2, pipeline=2, microbatch=1, **RING),
    ),
}


def lengths_of(self: Samples, numbers: Any) -> list[list[int]]:
    """Documents of one to all tokens of a sample, some samples padded."""
    found = []
    for number in np.asarray(list(numbers)).ravel():
        chance = np.random.default_rng(int(number))
        borders = sorted({0, *chance.integers(1, self.sequence + 1, 3).tolist()})
        found.append(np.diff(borders).tolist())
    return found


def documents() -> Any:
    return patch.object(Samples, "lengths_of", lengths_of)


class Blind(heddle.parallel.context.attention.Shared):
    """Knows of no documents."""

    def __init__(self, axis: Any, sequence: int, window: int | None, _: Any = ()) -> None:
        super().__init__(axis, sequence, window)


def documents_that_see_each_other() -> Any:
    """Positions begin anew, but attention knows of no documents."""
    return patch.object(heddle.parallel.context.attention, "Shared", Blind)


def observe_documents(mesh: Mesh, a_job: Job, fault: Any = None) -> Observed | None:
    if fault is None:
        with documents():
            return observe(mesh, a_job)
    with documents(), fault():
        return observe(mesh, a_job)


@cache
def serial(model: ModelSpec) -> tuple[Observed, float]:
    with documents():
        a_job = job(model, None, BATCH)
        alone = observe_serial(a_job)
        return alone, gradient_rounding(a_job, alone)


def laid_beside(world: World, name: str, fault: Any = None) -> Comparison:
    model, plan = CELLS[name]
    parallel, *_ = world.run(observe_documents, plan, job(model, plan, BATCH), fault)
    return compare(parallel, *serial(model))


@pytest.mark.parametrize("name", thinned(CELLS, slow=list(CELLS)[::2]))
def test_documents_learn_under_a_plan_what_they_learn_on_one_device(world, name):
    comparison = laid_beside(world, name)
    assert len(comparison.losses) == STEPS
    assert comparison.max_loss_diff <= LOSS_LIMIT
    assert comparison.max_gradient_diff <= comparison.gradient_limit < 1e-4, (comparison.worst, comparison.norm)


@pytest.mark.parametrize("name", ["context2-ring", "context2-gather-zero3", "context2-swap", "context4-2d"])
def test_documents_that_see_each_other_are_found(world, name):
    model, plan = CELLS[name]
    comparison = laid_beside(world, name, documents_that_see_each_other)
    assert not comparison.equal
    assert "or see of each other's keys" in likely_cause(comparison, plan, model)


def test_documents_are_not_what_plain_samples_are():
    with documents():
        apart = observe_serial(job(gpt(), None, BATCH))
    assert compare(apart, observe_serial(job(gpt(), None, BATCH)), 0.0).losses[0] > 1e-3


@pytest.mark.parametrize("name", thinned(["context4-ring-window", "context4-2d"], slow=["context4-ring-window"]))
def test_documents_run_by_the_rules_of_nccl(name):
    """Of some turns of the ring, some ranks need nothing."""
    model, plan = CELLS[name]
    with documents():
        run = strict_run(job(model, plan, BATCH), 2)
        losses = observe_serial(job(model, None, BATCH)).losses
    assert all(each == run.results[0] for each in run.results)
    assert run.results[0][:2] == pytest.approx(losses[:2], rel=1e-5)
