"""What a plan does with a model's experts, and what that costs, in numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from heddle.cost.imbalance import DRAWS, chance_above
from heddle.cost.work import work_of
from heddle.format import seconds_in_words
from heddle.simulating.closed_form import closed_form
from heddle.simulating.simulation import Simulation


def expert_reasons(best: Simulation) -> Iterator[str]:
    """Over how many ranks experts are split, how far tokens travel to them, and how uneven that is."""
    plan, model = best.plan, best.job.model
    counts = sorted(model.expert_counts - {0})
    if not counts:
        return
    most = counts[-1]
    if plan.tensor > 1:
        yield _width(best)
    if plan.expert == 1:
        yield f"Every replica holds all {most} experts of a layer: no token travels."
        return
    work = work_of(best.job, best.cluster)
    uneven = max(float(one.imbalance) for _, one in work.each_shape)
    apart = 1 if plan.whole_experts else plan.tensor
    inside = min(plan.expert, max(1, best.cluster.devices // apart))
    away = 1 - inside / plan.expert
    exchange = float(best.breakdown.expert)
    yield (
        f"{plan.expert} ranks share the {most} experts of a layer, {most // plan.expert} each; {away:.0%} of tokens "
        f"leave the node, and their exchange takes {seconds_in_words(exchange)}, {exchange / best.step_seconds:.1%} of "
        "a step."
    )
    priced, even = (closed_form(each, best.cluster) for each in (work, replace(work, spread=0.0)))
    waiting = best.step_seconds * (1 - float(even.seconds / priced.seconds))
    yield (
        f"Tokens do not choose evenly (expert_spread = {work.spread:g}): the fullest of these ranks has {uneven:.2f} "
        f"times the mean's, and the others wait {seconds_in_words(waiting)} for it, {waiting / best.step_seconds:.1%}."
    )
    yield _memory_at_risk(best, work.spread, uneven, float(priced.memory - even.memory))


def _width(best: Simulation) -> str:
    """Whether tensor ranks split the width of experts, and how wide that leaves them."""
    plan = best.plan
    widths = sorted({shape.expert_ffn for shape in best.job.model.shapes if shape.experts})
    if plan.whole_experts:
        return (
            f"Experts stay whole (expert_tensor = 1), {widths[0]:,} wide: the {plan.tensor} tensor ranks send "
            "their own share of the tokens, and experts need no sum over them."
        )
    return (
        f"The {plan.tensor} tensor ranks split the width of each expert, {widths[0]:,} into "
        f"{widths[0] // plan.tensor:,}; each of them sends all tokens of its microbatch."
    )


def _memory_at_risk(best: Simulation, spread: float, uneven: float, grows: float) -> str:
    """How probable it is that a rank has more tokens than its memory has room for.

    Bytes grow with the share of tokens, all layers of a rank taken together: by so many, `uneven` as they are.
    """
    plan, room = best.plan, best.limit - best.worst
    share = uneven + room / (grows / (uneven - 1)) if grows > 0 and uneven > 1 else float("inf")
    layers = max(1, sum(count > 0 for count in _expert_layers(best)) // plan.pipeline)
    chance = chance_above(share, max(best.job.model.expert_counts), plan.expert, spread, layers)
    most = "any share of tokens" if share > plan.expert else f"{share:.2f} times the mean's tokens"
    return (
        f"Its memory has room for {most}: in {chance:.1%} of {DRAWS} drawn routings some rank has more, over the "
        f"{layers} such layers that it holds."
    )


def _expert_layers(best: Simulation) -> list[int]:
    model = best.job.model
    return [model.shapes[shape].experts for shape in model.shape_of]


def no_such_degree(best: Simulation, value: int) -> str:
    """Why experts cannot be split over so many ranks."""
    plan = best.plan
    if any(count % value for count in best.job.model.expert_counts):
        return f"{max(best.job.model.expert_counts)} experts cannot be split over {value} ranks"
    words = "tensor × data × context" if plan.whole_experts else "data × context"
    return f"{value} ranks cannot be grouped out of {words} = {plan.expert_ranks}"
