"""Plans and their differences in words."""

from __future__ import annotations

from heddle.simulate.simulation import Simulation
from heddle.spec.layer_memory import LayerRun
from heddle.spec.plan import Plan
from heddle.spec.ranks import split_in_words

RUNS = 3  # of layers that are named


def in_words(plan: Plan) -> str:
    """The decisions of a plan on one line: "tensor 8 × pipeline 4 × data 16, zero 1, …"."""
    parts = [split_in_words(plan)]
    if plan.sequence:
        parts.append("sequence parallel")
    if plan.pipeline > 1:
        parts.append(plan.schedule + (f" with {plan.virtual} chunks per rank" if plan.virtual > 1 else ""))
        if plan.extra_warmup is not None:
            parts.append(f"extra warm-up {plan.extra_warmup}")
    if plan.data > 1:
        parts.append(f"zero {plan.zero}")
    parts.append(f"microbatch {plan.microbatch}")
    parts.append(f"recompute {recompute_in_words(plan)}")
    if plan.offload:
        parts.append(f"offload {', '.join(plan.offload)}")
    parts += [f"layers {run.layers}: {run_in_words(run)}" for run in plan.layers[:RUNS]]
    if len(plan.layers) > RUNS:
        parts.append(f"{len(plan.layers) - RUNS} more ranges of layers")
    return ", ".join(parts)


def run_in_words(run: LayerRun) -> str:
    """What a run of layers does otherwise than the plan says for all."""
    parts = [] if run.recompute is None else [f"recompute {run.recompute}"]
    parts += [] if run.zero is None else [f"zero {run.zero}"]
    if run.offload is not None:
        parts.append(f"offload {' and '.join(run.offload)}" if run.offload else "no offload")
    return " and ".join(parts) or "as all"


def recompute_in_words(plan: Plan) -> str:
    """One word, or of how many layers what."""
    if isinstance(plan.recompute, str):
        return plan.recompute
    counts = {word: plan.recompute.count(word) for word in ("none", "selective", "full")}
    return " and ".join(f"{word} in {count} layer{'s' * (count > 1)}" for word, count in counts.items() if count)


def overfull(found: Simulation) -> str:
    """Which stage needs more than there is: "stage 0 needs 86.10 GiB, 6.10 GiB more than the 80 GiB of …"."""
    return str(found.verdict)


def planned_in_words(best: Simulation, feasible: int) -> str:
    """What a job without a [plan] got, and for what: said wherever one is planned."""
    cluster = best.cluster
    return (
        f"Planned for cluster '{cluster.name}' ({cluster.world:,} × {cluster.device.name}), the best of {feasible:,}: "
        f"{in_words(best.plan)}; {best.step_seconds:.3g} s per step. `heddle plan --explain` says why."
    )
