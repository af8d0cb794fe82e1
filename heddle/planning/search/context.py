"""Why a plan shares samples between ranks the way it does: the bound that decided, in numbers."""

from __future__ import annotations

from collections.abc import Iterator

from heddle.cost import compute, network
from heddle.cost.work import work_of
from heddle.simulating.simulation import Simulation


def context_reasons(best: Simulation) -> Iterator[str]:
    """What sets the exchanges apart for a plan that shares samples."""
    plan, model, cluster = best.plan, best.job.model, best.cluster
    tokens, least = best.job.sequence // plan.context, hidden_from(best)
    link = cluster.links[0 if plan.tensor * plan.context <= cluster.devices else -1].name
    yield (
        f"A ring can hide behind attention from {least:,.0f} tokens per rank on (bytes × kv_heads / heads × FLOP/s of "
        f"attention over bytes per second of '{link}'); {tokens:,} are {'enough' if tokens >= least else 'too few'}."
    )
    heads, turns = model.kv_heads // plan.tensor, 1 + model.heads / model.kv_heads
    fewer = "fewer" if plan.context > turns else "no fewer"
    yield (
        f"An all-to-all needs a context that divides {heads} (kv_heads / tensor), hides behind nothing, and at context "
        f"{plan.context} sends {fewer} bytes than a ring: it does from 1 + heads / kv_heads = {turns:g} on."
    )
    if plan.context_exchange == "2d":
        inner = plan.context_inner
        yield (
            f"In two dims {inner} neighbors exchange by all-to-all, on links in a node, and {plan.context // inner} "
            f"such groups by a ring of {plan.context // inner - 1} turns instead of {plan.context - 1}."
        )


def hidden_from(found: Simulation) -> float:
    """Tokens of a sample per rank from which on a turn of the ring takes no longer than attention to what it brings.

    A turn sends 2·s·kv_heads·size numbers, and 2·s²·heads·size multiplications and additions are done meanwhile.
    """
    work = work_of(found.job, found.cluster)
    speed, _ = network.innermost(found.cluster, work.context * work.tensor)
    seconds = float(compute.attention(found.cluster, work)[0])
    done = 4 * work.microbatch * work.heads / work.tensor * work.head_size * work.sequence**2 / 2 / work.context
    flops = float(done) / seconds
    return float(work.element * work.kv_heads / work.heads * flops / speed)
