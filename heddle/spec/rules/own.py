"""What a plan cannot do with a module of the user's own."""

from __future__ import annotations

from typing import Any

from heddle.errors import HeddleError, divisors, listing
from heddle.spec.model import ModelSpec

INSIDE = ("selective", "elementwise")  # words of recompute that tell parts of a layer apart


def check_own_job(optimizer: str, tunes: bool, prefers: bool) -> None:
    """Refuse, of a job with a module of the user's own, what goes by the names of Heddle's own layers."""
    for found, what, instead in (
        (optimizer != "adamw", f'train.optimizer = "{optimizer}"', 'Use optimizer = "adamw".'),
        (tunes, "[tune]", "Leave it out: all of the module learns that requires a gradient."),
        (prefers, "[preference]", "Write the loss of pairs as the module's own."),
    ):
        if found:
            raise HeddleError(
                f"{what} cannot be combined with model.module.",
                "It goes by the names and layers of Heddle's own transformer.",
                instead,
            )


def check_own(plan: Any, model: ModelSpec) -> None:
    """Refuse, of a plan, what asks for knowledge of a layer's inside that only Heddle's own has."""
    words = {plan.recompute} if isinstance(plan.recompute, str) else set(plan.recompute)
    words |= {run.recompute for run in plan.layers if run.recompute is not None}
    offloaded = {word for layer in range(model.layers) for word in plan.memory_of(layer).offload}
    activations = sorted(word for word in offloaded if word.startswith(("activations", "input")))
    for found, what, instead in (
        (plan.sequence, "sequence = true", "sequence = false"),
        (plan.context > 1, f"context = {plan.context}", "context = 1"),
        (plan.expert > 1, f"expert = {plan.expert}", "expert = 1"),
        *((word in words, f'recompute = "{word}"', 'recompute = "full" or "none"') for word in INSIDE),
        (plan.update != "synchronous", f'update = "{plan.update}"', 'update = "synchronous"'),
        (plan.check_step != "before", f'check_step = "{plan.check_step}"', 'check_step = "before"'),
        (plan.local_steps > 0, f"local_steps = {plan.local_steps}", "local_steps = 0"),
        (plan.adapt, "adapt = true", "adapt = false"),
        (plan.puts_off, f'schedule = "{plan.schedule}"', 'a schedule that does not split backwards, such as "1f1b"'),
        (bool(activations), f"offload = {activations}", "recompute, or offload of weights and optimizer"),
    ):
        if found:
            raise HeddleError(
                f"{what} cannot be combined with model.module.",
                "It changes the inside of layers that Heddle wrote itself.",
                f"Use {instead}.",
            )
    if plan.pipeline > 1 and model.most_stages == 1 < model.layers:
        raise HeddleError(
            f"pipeline = {plan.pipeline} cannot cut this module.",
            "More goes past its blocks than from one to the next, as from an encoder to all blocks of a decoder; first "
            f"past {getattr(model, 'bypass', '')}. A stage is sent what its first block is given, and nothing else.",
            "Use pipeline = 1: data parallelism, ZeRO and tensor parallelism cut nothing.",
        )
    if model.tensor_degrees == [1] and plan.tensor > 1:
        raise HeddleError(
            f"tensor = {plan.tensor}, but nobody says how the module is split.",
            "Its file has no patterns (plan = {'column': […], 'row': […], …}), and the module has no tp_plan.",
            "Add patterns, or use tensor = 1.",
        )
    if plan.tensor not in model.tensor_degrees:
        raise HeddleError(
            f"tensor = {plan.tensor} does not divide what the patterns split.",
            f"All sizes of columns, rows and heads have the common divisor {max(model.tensor_degrees)}.",
            f"{listing(divisors(max(model.tensor_degrees)))} can.",
        )
