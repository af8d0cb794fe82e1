"""Which orders of work go with which other choices of a plan."""

from __future__ import annotations

from typing import Literal, Protocol

from heddle.errors import HeddleError
from heddle.schedule.late import SYNCHRONOUS, LateSchedule, update_rule
from heddle.schedule.registry import rule_of, usual
from heddle.schedule.written import SEARCHED
from heddle.spec.layer_memory import LayerRun

CheckStep = Literal["before", "after"]


class OrderFields(Protocol):
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
    def order(self) -> tuple[str, ...]: ...
    @property
    def check_step(self) -> CheckStep: ...
    @property
    def local_steps(self) -> int: ...
    @property
    def zero(self) -> int: ...
    @property
    def offload(self) -> tuple[str, ...]: ...
    @property
    def layers(self) -> tuple[LayerRun, ...]: ...


class Training(Protocol):
    """What of a job's [train] late updates depend on."""

    @property
    def steps(self) -> int: ...
    @property
    def warmup(self) -> int: ...
    @property
    def delay_warmup(self) -> int: ...
    @property
    def precision(self) -> str | None: ...


def check_late(plan: OrderFields, train: Training) -> None:
    """Refuse late updates that the training does not allow."""
    if plan.update == SYNCHRONOUS:
        return
    if train.precision == "fp16":
        raise HeddleError(
            f"update = '{plan.update}' cannot be combined with precision = 'fp16'.",
            "The loss scale of a step depends on the outcome of the previous one, which is not known yet.",
            "Use train.precision = 'bf16', or update = 'synchronous'.",
        )
    if train.delay_warmup >= train.steps:
        raise HeddleError(
            f"train.delay_warmup = {train.delay_warmup}, but there are only {train.steps} steps.",
            f"No update would be late, and update = '{plan.update}' no faster than 'synchronous'.",
            f"Use train.delay_warmup = {train.steps // 5} (a fifth of the steps), or update = 'synchronous'.",
        )
    latest = max(LateSchedule(update_rule(plan.update), plan.pipeline, 1).delays)
    if not train.delay_warmup and 0 < train.warmup < latest:
        raise HeddleError(
            f"train.warmup = {train.warmup} is shorter than the delay of update = '{plan.update}' over pipeline = "
            f"{plan.pipeline}, {latest} steps.",
            "The first stage would get its first gradient after the learning rate has risen.",
            f"Use train.warmup = {latest} or more, or train.delay_warmup = {train.warmup}.",
        )


def check_order(plan: OrderFields) -> None:
    """Refuse an order of work that the rest of a plan does not allow."""
    _check_split(plan)
    if plan.order and (plan.schedule != SEARCHED or plan.pipeline == 1):
        raise HeddleError(
            f"plan.order is given, but schedule = '{plan.schedule}' over pipeline = {plan.pipeline}.",
            "Other schedules have their own order, and a single stage needs none.",
            f"Use schedule = '{SEARCHED}' with a pipeline, or leave order out.",
        )
    if plan.update != SYNCHRONOUS:
        _check_update(plan)
    if plan.check_step == "after":
        _check_after(plan)


def _check_split(plan: OrderFields) -> None:
    """Backwards are taken in two only where weights and gradients stay whole, and here."""
    if rule_of(plan.schedule).splits and plan.pipeline > 1 and (what := _not_whole(plan)):
        raise HeddleError(
            f"schedule = '{plan.schedule}' cannot be combined with {what}.",
            "It computes weight gradients after a layer's backward, when the gathered weights are gone.",
            "Use zero = 1 and no offload of weights, or schedule = '1f1b' or 'interleaved'.",
        )


def _check_update(plan: OrderFields) -> None:
    """Late updates need a pipeline, and weights that are whole and in one place."""
    update_rule(plan.update)
    if plan.pipeline == 1:
        raise HeddleError(
            f"update = '{plan.update}' needs a pipeline.",
            "Updates are late so that no stage waits for later ones; a single stage never waits.",
            "Use pipeline = 2, or update = 'synchronous'.",
        )
    for key, value, plain in (("virtual", plan.virtual, 1), ("schedule", plan.schedule, usual(1))):
        if value != plain:
            raise HeddleError(
                f"update = '{plan.update}' cannot be combined with {key} = {value!r}.",
                "A method with late updates has its own order of work, with one chunk per rank.",
                f"Use {key} = {plain!r}, or update = 'synchronous'.",
            )
    if what := _not_whole(plan):
        raise HeddleError(
            f"update = '{plan.update}' cannot be combined with {what}.",
            "Old weights are kept whole for the microbatches in flight.",
            "Use zero = 1 and no offload of weights, or update = 'synchronous'.",
        )


def _check_after(plan: OrderFields) -> None:
    """An update is undone only where all of it is here, and only stages of a pipeline gain by it."""
    if plan.pipeline == 1:
        raise HeddleError(
            "check_step = 'after' needs a pipeline.",
            "Updates are checked afterwards so that no stage waits for the others; a single stage never waits.",
            "Use pipeline = 2, or check_step = 'before'.",
        )
    what = f"update = '{plan.update}'" if plan.update != SYNCHRONOUS else _not_whole(plan)
    if plan.local_steps:
        what = f"local_steps = {plan.local_steps}"
    if what is None and any(plan.offload) | any(run.offload for run in plan.layers):
        what = "offload"
    if what is not None:
        raise HeddleError(
            f"check_step = 'after' cannot be combined with {what}.",
            "What an update overwrites is kept on the device, whole, until all stages confirm the update.",
            "Use check_step = 'before', or leave the other out.",
        )


def _not_whole(plan: OrderFields) -> str | None:
    """What keeps weights from lying whole on the device, if anything."""
    zero = max(plan.zero, *(run.zero or 0 for run in plan.layers), 0)
    offloads = (plan.offload, *(run.offload or () for run in plan.layers))
    if any(word.startswith("weights") for words in offloads for word in words):
        return "weights that leave the device"
    return f"zero = {zero}" if zero >= 2 else None
