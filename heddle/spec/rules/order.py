"""Which orders of work go with which other choices of a plan."""

from __future__ import annotations

from typing import Protocol

from heddle.errors import HeddleError
from heddle.schedule.delayed import SYNCHRONOUS, update_rule
from heddle.schedule.registry import rule_of
from heddle.spec.layer_memory import LayerRun


class Choices(Protocol):
    """What of a plan its order of work depends on."""

    @property
    def pipeline(self) -> int: ...
    @property
    def virtual(self) -> int: ...
    @property
    def schedule(self) -> str: ...
    @property
    def update(self) -> str: ...
    @property
    def zero(self) -> int: ...
    @property
    def offload(self) -> tuple[str, ...]: ...
    @property
    def layers(self) -> tuple[LayerRun, ...]: ...


def check_order(plan: Choices) -> None:
    """Refuse an order of work that the rest of a plan does not allow."""
    _check_split(plan)
    if plan.update != SYNCHRONOUS:
        _check_update(plan)


def _check_split(plan: Choices) -> None:
    """Backwards are taken in two only where weights and gradients stay whole, and here."""
    if rule_of(plan.schedule).splits and plan.pipeline > 1 and (what := _not_whole(plan)):
        raise HeddleError(
            f"schedule = '{plan.schedule}' cannot be combined with {what}.",
            "It makes weight gradients later than a layer's backward, when what was gathered for it is gone.",
            "Use zero = 1 and no offload of weights, or schedule = '1f1b' or 'interleaved'.",
        )


def _check_update(plan: Choices) -> None:
    """Late updates need a pipeline, and weights that are whole and in one place."""
    update_rule(plan.update)
    if plan.pipeline == 1:
        raise HeddleError(
            f"update = '{plan.update}' needs a pipeline.",
            "Updates are late so that no stage waits for the ones behind it; one stage waits for nobody.",
            "Use pipeline = 2, or update = 'synchronous'.",
        )
    for key, value, plain in (("virtual", plan.virtual, 1), ("schedule", plan.schedule, "1f1b")):
        if value != plain:
            raise HeddleError(
                f"update = '{plan.update}' cannot be combined with {key} = {value!r}.",
                "A method with late updates brings its own order of work, with one chunk after another.",
                f"Use {key} = {plain!r}, or update = 'synchronous'.",
            )
    if what := _not_whole(plan):
        raise HeddleError(
            f"update = '{plan.update}' cannot be combined with {what}.",
            "Old weights are kept whole for the microbatches under way.",
            "Use zero = 1 and no offload of weights, or update = 'synchronous'.",
        )


def _not_whole(plan: Choices) -> str | None:
    """What keeps weights from lying whole on the device, if anything."""
    zero = max(plan.zero, *(run.zero or 0 for run in plan.layers), 0)
    offloads = (plan.offload, *(run.offload or () for run in plan.layers))
    if any(word.startswith("weights") for words in offloads for word in words):
        return "weights that leave the device"
    return f"zero = {zero}" if zero >= 2 else None
