"""What replicas exchange around their steps, beyond gradients: nothing, unless DiLoCo or sites derive from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from heddle.checkpoint.storage import Boxes
from heddle.parallel.shards import Kept
from heddle.runtime.recorder import NoRecorder
from heddle.trace.lanes import Lane, Phase


class Reached(NamedTuple):
    """How far a trainer has come."""

    step: int  # that are done
    position: int  # the number of the next sample


class Outer:
    """Goes around every step of a trainer, and joins what it saves and loads."""

    meeting: Callable[[], AbstractContextManager[None]] = staticmethod(nullcontext)  # entered during a meeting

    def before_step(self, reached: Reached) -> Reached:
        """A step is about to begin; returns where it does."""
        return reached

    def after_step(self, reached: Reached, loss: Tensor, stops: Tensor) -> tuple[Reached, Tensor, Tensor]:
        """A step is done; returns where the next one begins, the loss to report and the requests to stop."""
        return reached, loss, stops

    def begin(self) -> None:
        """All replicas have the same weights now: that is where the next steps start from."""

    def kept(self) -> list[Kept]:
        """What a checkpoint holds of this, beside masters and moments."""
        return []

    def saved(self, state: dict[str, Boxes]) -> dict[str, Boxes]:
        """The masters and moments that this rank writes into a checkpoint."""
        return state

    def resumed(self, checkpoint: Path) -> None:
        """Masters, moments and what was kept have been read from there."""

    def shared_weights(self) -> AbstractContextManager[None]:
        """The weights that all replicas agreed on last, in place of each one's own, to evaluate."""
        return nullcontext()

    def stay_away(self) -> None:
        """Never meet anybody: a dry run has nobody to meet."""


class Meetings(Outer):
    """Replicas with local steps meet when it is time; only then do they learn that one is to stop."""

    step: int  # of the trainer, as of the last meeting

    def __init__(self, recorder: NoRecorder, device: torch.device) -> None:
        self.recorder = recorder
        self.asked = torch.zeros((), dtype=torch.float64, device=device)  # to stop, since replicas last met

    def due(self, step: int) -> bool:
        """Whether there is something to do at a meeting after so many steps."""
        raise NotImplementedError

    def meet(self) -> None:
        """Exchange what was learned since the last meeting."""
        raise NotImplementedError

    def agree(self, loss: Tensor) -> tuple[Tensor, Tensor]:
        """The loss to report, and how many were asked to stop since the last meeting."""
        raise NotImplementedError

    def after_step(self, reached: Reached, loss: Tensor, stops: Tensor) -> tuple[Reached, Tensor, Tensor]:
        """Meet, if it is time."""
        self.asked += stops
        if not self.due(reached.step):
            return reached, loss, torch.zeros_like(stops)
        with self.meeting(), self.recorder.span(Lane.DATA, Phase.MEETING):
            self.step = reached.step
            self.meet()
            return reached, *self.agree(loss)
