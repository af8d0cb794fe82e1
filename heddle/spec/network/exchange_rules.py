"""Which ways to send less go with which other choices of a plan."""

from __future__ import annotations

from typing import Protocol

from heddle.errors import HeddleError, divisors, listing, nearest_number
from heddle.schedule.late import SYNCHRONOUS
from heddle.spec.layer_memory import LayerRun
from heddle.spec.network.link_codes import Coded, check_codes, codes_used


class ExchangeFields(Coded, Protocol):
    """What of a plan its exchange depends on."""

    @property
    def data(self) -> int: ...
    @property
    def world(self) -> int: ...
    @property
    def microbatch(self) -> int: ...
    @property
    def shares(self) -> tuple[int, ...]: ...
    @property
    def devices(self) -> tuple[int, ...]: ...
    @property
    def zero(self) -> int: ...
    @property
    def update(self) -> str: ...
    @property
    def offload(self) -> tuple[str, ...]: ...
    @property
    def layers(self) -> tuple[LayerRun, ...]: ...
    @property
    def local_steps(self) -> int: ...
    @property
    def fragments(self) -> int: ...
    @property
    def overlap_steps(self) -> int: ...


def check_exchange(plan: ExchangeFields) -> None:
    """Refuse ways to send less that do not go with what replicas share."""
    if plan.local_steps and plan.data == 1:
        raise HeddleError(
            f"local_steps = {plan.local_steps} needs replicas.",
            "It says after how many steps they synchronize, and there is only one.",
            "Use local_steps = 0, or data = 2.",
        )
    check_codes(plan.codes)
    gradients = codes_used(plan, "gradients")
    coded = bool(gradients or codes_used(plan, "activations"))
    if plan.update != SYNCHRONOUS and (plan.local_steps or coded):
        raise HeddleError(
            f"update = '{plan.update}' cannot be combined with local_steps or codes.",
            "Late updates have their own exchange, which does not compress.",
            "Use update = 'synchronous', or leave local_steps, compress_gradients, compress_activations and codes out.",
        )
    zero = max(plan.zero, *(run.zero or 0 for run in plan.layers), 0)
    if plan.local_steps and zero:
        raise HeddleError(
            f"local_steps = {plan.local_steps} cannot be combined with zero = {zero}.",
            "Replicas that train on their own share nothing between two synchronizations.",
            "Use zero = 0, or local_steps = 0.",
        )
    if plan.local_steps and (plan.offload or any(run.offload for run in plan.layers)):
        raise HeddleError(
            f"local_steps = {plan.local_steps} cannot be combined with offload.",
            "Replicas exchange the change of their weights, which must be on the device for that.",
            "Leave offload out, or use local_steps = 0.",
        )
    if zero >= 2 and gradients:
        raise HeddleError(
            f"Gradients in codes ({listing(gradients)}) cannot be combined with zero = {zero}.",
            "The rounding error is carried into the next step, and sharded gradients are not kept.",
            "Use zero = 1, or compress_gradients = 'none'.",
        )


def check_fragments(plan: ExchangeFields, layers: int) -> None:
    """Refuse parts of a model that have no layer, no turn, or no time to travel in."""
    steps, fragments, overlap = plan.local_steps, plan.fragments, plan.overlap_steps
    if not steps and (fragments > 1 or overlap):
        raise HeddleError(
            f"{f'fragments = {fragments}' if fragments > 1 else f'overlap_steps = {overlap}'} needs local_steps.",
            "It sets how replicas synchronize between local steps.",
            "Set local_steps, such as 100, or leave it out.",
        )
    most = min(layers, steps)
    if steps and fragments > most:
        raise HeddleError(
            f"fragments = {fragments} is more than {most}.",
            f"Each fragment needs at least one of the {layers} layers and one of the {steps} local steps.",
            f"Use fragments = {most}, or fewer.",
        )
    if overlap and overlap >= steps // fragments:
        raise HeddleError(
            f"overlap_steps = {overlap} is not less than local_steps / fragments = {steps // fragments}.",
            "A fragment must arrive before the next one is sent.",
            f"Use overlap_steps = {steps // fragments - 1}, or fewer fragments.",
        )


def check_coded(plan: ExchangeFields, precision: str | None) -> None:
    """Refuse codes for gradients whose scale changes from step to step."""
    if precision == "fp16" and (gradients := codes_used(plan, "gradients")):
        raise HeddleError(
            f"Gradients in codes ({listing(gradients)}) cannot be combined with precision = 'fp16'.",
            "The rounding error is carried into the next step, where fp16 may have another loss scale.",
            "Use train.precision = 'bf16', or compress_gradients = 'none' without codes of links.",
        )


def check_places(plan: ExchangeFields) -> None:
    """Refuse a list of devices in which a rank has none, or two have the same."""
    if plan.devices and (len(plan.devices) != plan.world or len(set(plan.devices)) < plan.world):
        raise HeddleError(
            f"plan.devices lists {len(plan.devices)} devices, {len(set(plan.devices))} of them different; the plan has "
            f"{plan.world} ranks.",
            "Every rank needs its own device.",
            "Let `heddle plan` write the list, or leave it out: rank r then runs on device r.",
        )
    if plan.devices and max(plan.devices) >= plan.world:
        raise HeddleError(
            f"plan.devices names device {max(plan.devices)}; the plan has {plan.world} ranks.",
            "Processes have the same numbers as the devices of the network, and all of them are used.",
            "Describe a network of only those devices.",
        )
    zero = max(plan.zero, *(run.zero or 0 for run in plan.layers), 0)
    if plan.shares and zero >= 2:
        raise HeddleError(
            f"plan.shares cannot be combined with zero = {zero}.",
            "Shards are gathered for every microbatch, and replicas would have different numbers of them.",
            "Use zero = 0 or 1, or leave shares out.",
        )
    if plan.shares and plan.update != SYNCHRONOUS:
        raise HeddleError(
            f"update = '{plan.update}' cannot be combined with shares.",
            "Late updates expect the same number of microbatches from every replica.",
            "Leave shares out, or use update = 'synchronous'.",
        )


def check_shares(plan: ExchangeFields, global_batch: int) -> None:
    """Refuse a batch that replicas cannot share out in whole microbatches."""
    if plan.shares:
        if len(plan.shares) != plan.data or sum(plan.shares) != global_batch:
            raise HeddleError(
                f"plan.shares = {list(plan.shares)} are {len(plan.shares)} shares of {sum(plan.shares)} samples; there "
                f"are {plan.data} replicas and global_batch = {global_batch}.",
                "Every sample is used once, by one replica.",
                f"Give {plan.data} numbers that add up to {global_batch}, or leave shares out.",
            )
        if any(share % plan.microbatch for share in plan.shares):
            raise HeddleError(
                f"plan.shares = {list(plan.shares)} are not all multiples of microbatch = {plan.microbatch}.",
                "A replica takes whole microbatches.",
                "Use multiples of it, or microbatch = 1.",
            )
        return
    share = plan.data * plan.microbatch
    if global_batch % share:
        below = global_batch // share * share
        near = f"{below} or {below + share}" if below else str(share)
        hint = f"Use global_batch = {near}"
        if global_batch % plan.data == 0:
            fits = nearest_number(plan.microbatch, divisors(global_batch // plan.data))
            hint += f", or microbatch = {fits}"
        raise HeddleError(
            f"global_batch = {global_batch} is not divisible by data × microbatch = {plan.data} × "
            f"{plan.microbatch} = {share}.",
            "Every replica takes the same whole number of microbatches.",
            hint + ".",
        )
