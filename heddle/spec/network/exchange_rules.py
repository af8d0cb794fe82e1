"""Which ways to send less go with which other choices of a plan."""

from __future__ import annotations

from typing import Protocol

from heddle.errors import HeddleError
from heddle.schedule.delayed import SYNCHRONOUS
from heddle.spec.layer_memory import LayerRun


class Choices(Protocol):
    """What of a plan its exchange depends on."""

    @property
    def data(self) -> int: ...
    @property
    def zero(self) -> int: ...
    @property
    def update(self) -> str: ...
    @property
    def offload(self) -> tuple[str, ...]: ...
    @property
    def layers(self) -> tuple[LayerRun, ...]: ...
    @property
    def compress_gradients(self) -> str: ...
    @property
    def compress_activations(self) -> str: ...
    @property
    def local_steps(self) -> int: ...


def check_exchange(plan: Choices) -> None:
    """Refuse ways to send less that do not go with what replicas share."""
    if plan.local_steps and plan.data == 1:
        raise HeddleError(
            f"local_steps = {plan.local_steps} needs replicas.",
            "It says after how many steps they meet, and one has nobody to meet.",
            "Use local_steps = 0, or data = 2.",
        )
    coded = plan.compress_gradients != "none" or plan.compress_activations != "none"
    if plan.update != SYNCHRONOUS and (plan.local_steps or coded):
        raise HeddleError(
            f"update = '{plan.update}' cannot be combined with local_steps or codes.",
            "Late updates bring an exchange of their own, which sends numbers as they are.",
            "Use update = 'synchronous', or leave local_steps, compress_gradients and compress_activations out.",
        )
    zero = max(plan.zero, *(run.zero or 0 for run in plan.layers), 0)
    if plan.local_steps and zero:
        raise HeddleError(
            f"local_steps = {plan.local_steps} cannot be combined with zero = {zero}.",
            "Replicas that learn by themselves share nothing between two meetings.",
            "Use zero = 0, or local_steps = 0.",
        )
    if plan.local_steps and (plan.offload or any(run.offload for run in plan.layers)):
        raise HeddleError(
            f"local_steps = {plan.local_steps} cannot be combined with offload.",
            "Replicas exchange how far their weights have come, which lie on the device for that.",
            "Leave offload out, or use local_steps = 0.",
        )
    if zero >= 2 and plan.compress_gradients != "none":
        raise HeddleError(
            f"compress_gradients = '{plan.compress_gradients}' cannot be combined with zero = {zero}.",
            "What codes could not say is kept for the next step, and sharded gradients are not kept.",
            "Use zero = 1, or compress_gradients = 'none'.",
        )
