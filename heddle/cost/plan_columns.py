"""A plan, and how a job learns, as columns of `heddle.cost.work.Work`."""

from __future__ import annotations

from typing import Any

from heddle.schedule import NAMES
from heddle.spec.axes import AXES
from heddle.spec.job import Job
from heddle.spec.network.compression import bytes_per_number
from heddle.spec.network.link_codes import codes_used
from heddle.spec.plan import Plan
from heddle.spec.rules.muon import matrix_share
from heddle.spec.rules.optimizer import moment_bytes
from heddle.spec.software import CONTEXT_EXCHANGES


def plan_columns(plan: Plan, layers: int) -> dict[str, Any]:
    """The columns that follow from a plan."""
    words = plan.recompute_words(layers)
    return {
        **{axis: getattr(plan, axis) for axis in (*AXES, "expert")},
        "whole_experts": int(plan.whole_experts),
        "context_exchange": CONTEXT_EXCHANGES.index(plan.context_exchange),
        "context_inner": plan.context_inner,
        "sequence_parallel": int(plan.sequence),
        "tensor_chunks": plan.tensor_chunks,
        "virtual": plan.virtual,
        "zero": plan.zero,
        "shard_ranks": plan.shards,
        "groups_once": 1,
        "microbatch": plan.microbatch,
        "schedule": NAMES.index(plan.named.schedule),
        **{word: words.count(word) / layers for word in ("full", "selective", "elementwise")},
        **exchange_columns(plan.compress_gradients, plan.compress_activations, plan.local_steps),
        **_by_link(plan),
    }


def exchange_columns(gradients: str, activations: str, local_steps: int) -> dict[str, Any]:
    """The columns that follow from how a plan sends less: in codes, and seldom."""
    return {
        "local_steps": local_steps,
        "reduce_bytes": bytes_per_number(gradients, 4),
        "feedback": int(gradients != "none"),
        "code_bytes": bytes_per_number(activations, 0),
        **({"data_overlap": 0} if local_steps else {}),  # nothing runs beside a meeting
    }


def _by_link(plan: Plan) -> dict[str, Any]:
    """What else follows from codes of some links, and from meetings that go on beside compute."""
    columns: dict[str, Any] = {"feedback": 1} if codes_used(plan, "gradients") else {}
    if plan.overlap_steps:
        columns["data_overlap"] = plan.overlap_steps * plan.fragments / plan.local_steps
    return columns


def learning_columns(job: Job) -> dict[str, Any]:
    """The columns that follow from how a job learns: its optimizer, and what it is held against."""
    muon, preference = job.train.optimizer == "muon", job.preference is not None
    share = 0.0 if not muon else 1.0 if job.tune is not None else matrix_share(job.model)
    return {
        "moment_bytes": moment_bytes(job.train.optimizer) - 4 * share,
        "muon": int(muon and job.tune is None),  # adapters are small
        "reference": int(preference),
        "copied": int(preference and job.tune is None),
    }
