"""Whatever layers do to need less memory, they learn what one device learns that does nothing of the kind."""

from __future__ import annotations

from typing import Any

import pytest

from heddle.spec import ModelSpec, Plan
from heddle.spec.layer_memory import LayerRun
from heddle.training.prove.compare import LOSS_LIMIT, compare
from heddle.training.prove.prove import observe
from tests.helpers.cases import covering, thinned
from tests.helpers.small_models import gpt, llama
from tests.numerics.test_equality_grid import job, rounding, serial
from tests.numerics.test_strict_transport import STEPS, short
from tests.numerics.test_strict_transport import serial as short_serial
from tests.strict import strict_run

pytestmark = pytest.mark.dist


def run(layers: str, **what: object) -> LayerRun:
    return LayerRun(layers=layers, **what)  # type: ignore[arg-type]


WIDE: dict[str, Any] = {"hidden": 64, "heads": 4, "ffn": 128, "sequence": 32}  # more than what is too small to move
INTERLEAVED = {"pipeline": 2, "virtual": 2, "schedule": "interleaved", "microbatch": 1}

# name: model, plan, global batch
CELLS: dict[str, tuple[ModelSpec, Plan, int]] = {
    "pipeline2-zero2": (gpt(), Plan(pipeline=2, data=2, zero=2, microbatch=1), 6),
    "context2-zero2-pipeline2": (llama(), Plan(pipeline=2, context=2, zero=2, microbatch=1), 4),
    "context2-data2-weights-away": (
        gpt(dropout=0.1),
        Plan(context=2, data=2, zero=3, microbatch=1, offload=("activations:host", "weights:disk", "optimizer:disk")),
        4,
    ),
    "context2-swap-input-away": (
        llama(),
        Plan(context=2, context_exchange="all-to-all", microbatch=2, zero=1, recompute="full", offload=("input:host",)),
        4,
    ),
    "pipeline2-zero3": (llama(), Plan(pipeline=2, data=2, zero=3, microbatch=1), 6),
    "pipeline2-zero3-tied-dropout": (gpt(dropout=0.1, tied=True), Plan(pipeline=2, data=3, zero=3, microbatch=1), 6),
    "pipeline4-zero3-uneven": (gpt(layers=6), Plan(pipeline=4, data=2, zero=3, microbatch=1, stages=(1, 3, 1, 1)), 8),
    "pipeline2-zero3-gpipe": (llama(tied=True), Plan(pipeline=2, data=2, zero=3, microbatch=1, schedule="gpipe"), 4),
    "pipeline2-virtual2-zero2": (llama(layers=4), Plan(data=2, zero=2, **INTERLEAVED), 8),  # type: ignore[arg-type]
    "pipeline2-virtual2-zero3-full": (
        gpt(layers=4, dropout=0.1),
        Plan(data=2, zero=3, recompute="full", **INTERLEAVED),  # type: ignore[arg-type]
        8,
    ),
    "tensor2-pipeline2-virtual2-zero3-seq": (
        gpt(layers=4, vocab=17),
        Plan(tensor=2, sequence=True, data=2, zero=3, **INTERLEAVED),  # type: ignore[arg-type]
        8,
    ),
    "tensor2-pipeline2-virtual2-zero3-selective": (
        llama(layers=4, tied=True),
        Plan(tensor=2, data=2, zero=3, recompute="selective", prefetch=0, **INTERLEAVED),  # type: ignore[arg-type]
        4,
    ),
    "tensor2-pipeline2-zero2-seq": (
        llama(dropout=0.1),
        Plan(tensor=2, sequence=True, pipeline=2, data=2, zero=2, microbatch=1),
        4,
    ),
    "mixed-zero-one-stage": (
        gpt(layers=4),
        Plan(data=2, zero=1, microbatch=1, layers=(run("0", zero=3), run("1", zero=2), run("3", zero=0))),
        4,
    ),
    "mixed-zero-pipeline2": (
        llama(layers=4),
        Plan(pipeline=2, data=2, zero=2, microbatch=1, layers=(run("0-1", zero=3), run("3", zero=0))),
        6,
    ),
    "mixed-zero-recompute-interleaved": (
        gpt(layers=4, dropout=0.1),
        Plan(
            data=2,
            zero=3,
            prefetch=2,
            layers=(run("0", recompute="full", zero=2), run("1-2", recompute="selective"), run("3", zero=1)),
            **INTERLEAVED,  # type: ignore[arg-type]
        ),
        8,
    ),
    # offload
    "optimizer-disk": (gpt(), Plan(microbatch=1, offload=("optimizer:disk",)), 4),
    "optimizer-host": (llama(dropout=0.1), Plan(microbatch=2, offload=("optimizer:host",)), 4),
    "optimizer-disk-zero1": (gpt(), Plan(data=2, zero=1, microbatch=1, offload=("optimizer:disk",)), 4),
    "activations-disk": (llama(dropout=0.1, **WIDE), Plan(microbatch=2, offload=("activations:disk",)), 4),
    "activations-host-selective": (
        gpt(**WIDE),
        Plan(microbatch=2, recompute="selective", offload=("activations:host",)),
        4,
    ),
    "activations-host-elementwise": (
        llama(dropout=0.1, **WIDE),
        Plan(data=2, zero=3, microbatch=2, recompute="elementwise", offload=("activations:host",)),
        4,
    ),
    "input-disk": (llama(dropout=0.1, **WIDE), Plan(microbatch=2, recompute="full", offload=("input:disk",)), 4),
    "weights-disk": (gpt(), Plan(microbatch=2, offload=("weights:disk", "optimizer:disk")), 4),
    "weights-disk-zero3-pipeline2": (
        llama(layers=4, tied=True),
        Plan(pipeline=2, data=2, zero=3, microbatch=1, offload=("weights:disk", "optimizer:host")),
        6,
    ),
    "everything-disk-tensor2-interleaved": (
        gpt(layers=4, dropout=0.1, **WIDE),
        Plan(
            tensor=2,
            sequence=True,
            data=2,
            zero=3,
            offload=("activations:disk", "weights:disk", "optimizer:disk"),
            **INTERLEAVED,  # type: ignore[arg-type]
        ),
        4,
    ),
    "every-layer-otherwise": (
        llama(layers=6, **WIDE),
        Plan(
            pipeline=2,
            microbatch=1,
            layers=(
                run("0", recompute="full", offload=("input:disk", "optimizer:disk")),
                run("1", offload=("activations:disk",)),
                run("2", recompute="selective", offload=("activations:host",)),
                run("3", recompute="elementwise", offload=("activations:disk",)),
                run("4", offload=("weights:disk", "optimizer:disk")),
                run("5", recompute="full"),
            ),
        ),
        4,
    ),
}


# All run with NCCL's rules below; here those of few processes.
FEW = {name for name in covering(CELLS, pairs=False) if CELLS[name][1].world <= 2}


@pytest.mark.parametrize("name", thinned(CELLS, slow=CELLS.keys() - FEW))
def test_a_plan_learns_what_one_device_learns(world, name):
    model, plan, batch = CELLS[name]
    parallel, *_ = world.run(observe, plan, job(model, plan, batch))
    comparison = compare(parallel, serial(model, batch), rounding(model, batch))
    assert len(comparison.losses) == len(serial(model, batch).losses)
    assert comparison.max_loss_diff <= LOSS_LIMIT
    assert comparison.max_gradient_diff <= comparison.gradient_limit < 1e-4, (comparison.worst, comparison.norm)


@pytest.mark.parametrize("name", thinned(CELLS, slow=CELLS.keys() - covering(CELLS)))
def test_a_plan_runs_by_the_rules_of_nccl(name):
    model, plan, batch = CELLS[name]
    run = strict_run(short(model, plan, batch), STEPS)
    for losses in run.results:
        assert losses == run.results[0]
    assert run.results[0][:STEPS] == pytest.approx(short_serial(model, batch), rel=1e-5)
