"""A step that was handed to the device, what it tells once it is read, and whoever hands out steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor

from heddle.runtime.device import HostCopy, Mark
from heddle.runtime.stop_request import StopRequest

Stop = bool | StopRequest


class StepResult(NamedTuple):
    """What a step tells, the same on every rank."""

    loss: float
    norm: float  # of the gradient, before clipping
    stop: bool  # whether any rank was asked to stop
    rewards: tuple[float, ...] = ()  # of pairs: of chosen answers, of rejected ones, and the share that is right


class StepInFlight:
    """A step that was handed to the device; only `read()` blocks."""

    def __init__(self, numbers: Tensor, began: Mark, settle: Callable[[float], None]) -> None:
        """`settle` is called with the gradient norm when that is read."""
        self.numbers, self.began, self.settle = HostCopy(numbers), began, settle
        self.result: StepResult | None = None

    def read(self) -> StepResult:
        """What it tells, once it is done."""
        if self.result is None:
            loss, norm, stops, *rewards = self.numbers.read()
            self.settle(norm)
            self.result = StepResult(loss, norm, stops > 0, tuple(rewards))
        return self.result

    @property
    def seconds(self) -> float:
        """How long it took the device; known once it was read."""
        return self.numbers.mark.since(self.began)


class Steps(Protocol):
    """A way to take a trainer's steps. The trainer itself takes them one by one; others go around it."""

    @property
    def in_flight(self) -> int:
        """How many steps may be handed out before one is read."""
        ...

    def start_step(self, stop: Stop = False) -> StepInFlight:
        """Hand out a step."""
        ...

    def drain(self) -> None:
        """Let the weights be those after the last step, all updates applied."""
        ...
