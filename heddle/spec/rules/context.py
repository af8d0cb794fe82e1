"""Which samples the ranks of the context axis can share, and how they can exchange keys and values."""

from __future__ import annotations

from typing import Literal, Protocol, get_args

from heddle.errors import HeddleError, listing
from heddle.spec.model import ModelSpec

# of keys and values; explained in heddle.parallel.context
PlanExchange = Literal["ring", "gather", "all-to-all", "2d"]
PLAN_EXCHANGES: tuple[PlanExchange, ...] = get_args(PlanExchange)


class ContextChoices(Protocol):
    """What of a plan it depends on."""

    @property
    def tensor(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def context_exchange(self) -> str: ...
    @property
    def context_inner(self) -> int: ...


def check_inner(plan: ContextChoices) -> None:
    """Refuse degrees of an all-to-all inside groups that do not go with the exchange, or do not cut it."""
    context, inner = plan.context, plan.context_inner
    if plan.context_exchange != "2d":
        if inner > 1:
            raise HeddleError(
                f"context_inner = {inner} cannot be combined with context_exchange = '{plan.context_exchange}'.",
                "It says how many ranks exchange by all-to-all inside the groups between which a ring runs.",
                "Use context_exchange = '2d', or leave context_inner out.",
            )
        return
    if context > 1 and inner not in (legal := inner_degrees(context, context)):
        raise HeddleError(
            f"context = {context} cannot be cut into groups of context_inner = {inner}.",
            "In a '2d' exchange each group has an all-to-all, and a ring runs between two groups or more.",
            f"Use context_inner = {listing(legal)}." if legal else "Use context_exchange = 'ring', or context = 4.",
        )


def inner_degrees(context: int, heads: int, most: int | None = None) -> list[int]:
    """Ranks that an all-to-all inside groups may have, at most so many, if each rank holds so many kv_heads."""
    degrees = range(2, min(context // 2, most or context) + 1)
    return [inner for inner in degrees if context % inner == 0 and heads % inner == 0]


def check_context(plan: ContextChoices, model: ModelSpec, sequence: int) -> None:
    """Refuse samples that ranks cannot share equally, and heads that are too few to be exchanged for tokens."""
    context = plan.context
    if context == 1:
        return
    changed = {"attention_cap": model.attention_cap > 0, "sinks": model.sinks}
    if any(changed.values()):
        name = next(name for name, said in changed.items() if said)
        raise HeddleError(
            f"A model with {name} cannot be trained with context = {context}.",
            "Ranks that share a sample merge what each found of unchanged scores.",
            "Use context = 1, with tensor, pipeline and data parallelism.",
        )
    blocks = 2 * context
    if sequence % blocks:
        raise HeddleError(
            f"A sequence of {sequence} tokens cannot be split over context = {context}.",
            f"Every rank takes two of {blocks} equal blocks, one from each end, so that all have as much to attend to.",
            f"Use a sequence of {max(1, sequence // blocks) * blocks}, or context = {_fits(sequence, context)}.",
        )
    held = model.kv_heads // plan.tensor
    if plan.context_exchange == "all-to-all" and held % context:
        whose = f"{model.kv_heads} kv_heads" if plan.tensor == 1 else f"{held} kv_heads of each tensor rank"
        raise HeddleError(
            f"{whose} cannot be split over context = {context} with context_exchange = 'all-to-all'.",
            "It gives every rank all tokens of a few heads, and each of them holds whole key/value heads.",
            f"Use context_exchange = 'ring' or 'gather', or a context that divides {held}.",
        )
    if plan.context_exchange == "2d" and held % plan.context_inner:
        raise HeddleError(
            f"{held} kv_heads of each tensor rank cannot be split over context_inner = {plan.context_inner}.",
            "Inside its groups a 2d exchange gives every rank all tokens of a few whole key/value heads.",
            f"Use context_inner = {listing(legal)}."
            if (legal := inner_degrees(context, held))
            else "Use context_exchange = 'ring' or 'gather'.",
        )


def _fits(sequence: int, most: int) -> int:
    """The largest degree up to `most` that can split a sequence."""
    return max(degree for degree in range(1, most + 1) if degree == 1 or sequence % (2 * degree) == 0)
