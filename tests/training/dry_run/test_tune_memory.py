"""Full, LoRA and QLoRA: what is predicted of their memory is what the dry run counts in the trainer itself."""

from __future__ import annotations

from typing import Any

import pytest

import heddle
from heddle.cost import adapters
from heddle.cost.work import work_of
from heddle.models.nf4 import NF4Rows
from heddle.simulating.stage_memory import stage_memory
from heddle.training.dry_run.dry_run import dry_run

CLOSE = 0.05
MODEL: dict[str, Any] = {
    "layers": 4, "hidden": 512, "heads": 8, "kv_heads": 4, "ffn": 1408, "vocab": 2048, "sequence": 256,
    "norm": "rmsnorm", "activation": "swiglu", "positions": "rotary", "bias": "none", "tied": False,
}  # fmt: skip
LORA = {"lora": {"rank": 16}}
QLORA = {"lora": {"rank": 16}, "base": "nf4"}
SOME = {"lora": {"rank": 16, "targets": ["q", "v"]}, "base": "nf4"}
ONE: dict[str, Any] = {"microbatch": 2}
CASES: dict[str, tuple[dict[str, Any] | None, dict[str, Any], str]] = {
    "full": (None, ONE, "adamw"),
    "full-8bit": (None, ONE | {"data": 2, "zero": 1}, "adamw8bit"),
    "lora": (LORA, ONE, "adamw"),
    "lora-recompute": (LORA, ONE | {"recompute": "full"}, "adamw"),
    "lora-pipeline": (LORA, ONE | {"pipeline": 2}, "adamw"),
    "qlora": (QLORA, ONE, "adamw8bit"),
    "qlora-recompute": (QLORA, ONE | {"recompute": "full"}, "adamw"),
    "qlora-tensor": (QLORA, ONE | {"tensor": 2, "sequence": True}, "adamw"),
    "qlora-zero3": (QLORA, ONE | {"data": 2, "zero": 3}, "adamw"),
    "qlora-some": (SOME, ONE, "adamw"),
}
LESS = ("lora", "qlora-zero3", "full-8bit")


@pytest.mark.parametrize(
    "name", [name if name in LESS else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_the_dry_run_counts_what_is_predicted(name):
    tune, plan, optimizer = CASES[name]
    train = {"optimizer": optimizer}
    job = heddle.job(
        MODEL, cluster="dgx-h100", global_batch=8, precision="bf16", train=train, plan=plan, tune=tune
    ).planned
    assert job.cluster is not None
    order = job.plan.order_of_work(job.train.global_batch)
    predicted = stage_memory(job, job.plan, work_of(job, job.cluster), order, job.cluster)[0]
    for kind in dry_run(job).kinds:
        breakdown = predicted[kind.stages[0]]
        assert float(breakdown.total - breakdown.slack) == pytest.approx(kind.bytes, rel=CLOSE)
        assert breakdown.weights == pytest.approx(kind.held.parameter_bytes, rel=0.001)
        assert breakdown.optimizer == pytest.approx(kind.held.optimizer_bytes, rel=0.001)


def test_four_bits_are_what_the_cost_model_says():
    assert NF4Rows(0, 4096).bytes / 4096 == adapters.NF4
