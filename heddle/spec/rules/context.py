"""Which samples the ranks of the context axis can share, and how they can exchange keys and values."""

from __future__ import annotations

from typing import Literal, Protocol, get_args

from heddle.errors import HeddleError
from heddle.spec.model import ModelSpec

PlanExchange = Literal["ring", "gather", "all-to-all"]  # of keys and values; explained in heddle.parallel.context
PLAN_EXCHANGES: tuple[PlanExchange, ...] = get_args(PlanExchange)


class ContextChoices(Protocol):
    """What of a plan it depends on."""

    @property
    def tensor(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def context_exchange(self) -> str: ...


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


def _fits(sequence: int, most: int) -> int:
    """The largest degree up to `most` that can split a sequence."""
    return max(degree for degree in range(1, most + 1) if degree == 1 or sequence % (2 * degree) == 0)
