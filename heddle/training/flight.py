"""Steps in flight: handed to the device, and not yet read.

On a GPU one step is always in flight, so that the device has work while its host looks at what the step before it told.
On a CPU a step is done when it was handed out, and none is. Every rank reads a step at the same point of its work, so
that all of them learn at the same step that the run is to stop.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from heddle.data.documents import DocumentSamples, MixedSamples
from heddle.errors import HeddleError
from heddle.runs.folder import Run
from heddle.runs.metrics import StepMetrics
from heddle.runtime.device import memory_gib
from heddle.runtime.recorder import Recorder, measured_bubble
from heddle.runtime.stop_request import StopRequest
from heddle.training.links.waiting import LinkTimes, SlowestLink
from heddle.training.memory_watch import watching_memory
from heddle.training.metrics import Metrics
from heddle.training.step.in_flight import StepInFlight, StepResult
from heddle.training.step.learning_rate import learning_rate
from heddle.training.step.trainer import Trainer


@dataclass(frozen=True)
class _Begun:
    """A step, and what was known when it was handed out."""

    number: int
    handed: StepInFlight
    rate: float
    scale: float | None  # of the next loss, under fp16
    bubble: float | None
    link: SlowestLink | None  # that is waited for most


class Flight:
    """Hands out steps and reads them; `landed` is called after each that was read."""

    def __init__(
        self, trainer: Trainer, run: Run, peak: float, metrics: Metrics | None, landed: Callable[[int], None]
    ) -> None:
        self.trainer, self.run, self.peak, self.metrics, self.landed = trainer, run, peak, metrics, landed
        self.begun: deque[_Begun] = deque()
        self.loss = math.nan  # of the last step that was read
        self.times: list[float] = []
        self.stopped = False  # whether any rank was asked to stop, as all of them know

    def step(self, stop: StopRequest) -> None:
        """Hand out a step, and read the one that has been in flight for long enough."""
        trainer = self.trainer
        scale = trainer.optimizer.scale
        rate = learning_rate(trainer.job.train, trainer.step)
        with watching_memory(trainer):
            handed = trainer.steps.start_step(stop)
        bubble = None
        if isinstance(trainer.recorder, Recorder):
            trainer.wait_for_weights()  # what a step began is in its trace
            bubble = measured_bubble(trainer.recorder.write(self.run.traces, trainer.step), trainer.mesh)
        value = scale.value if scale.enabled else None
        link = trainer.recorder.slowest if isinstance(trainer.recorder, LinkTimes) else None
        self.begun.append(_Begun(trainer.step, handed, rate, value, bubble, link))
        self.land(trainer.steps.in_flight)  # which grows once updates come late

    @property
    def step_seconds(self) -> float | None:
        """The median of all steps but the first; None if there was no other."""
        return statistics.median(self.times[1:]) if len(self.times) > 1 else None

    def land(self, left: int = 0) -> None:
        """Read steps until so many are left in flight: all of them before anything is saved, or evaluated."""
        while len(self.begun) > left:
            begun = self.begun.popleft()
            result = begun.handed.read()
            self._check(begun, result)
            self.loss = result.loss
            self.times.append(begun.handed.seconds)
            self.stopped = self.stopped or result.stop
            if self.metrics is not None:
                self.metrics.step(self._row(begun, result), None if begun.link is None else begun.link.words)
            self.landed(begun.number)

    def _check(self, begun: _Begun, result: StepResult) -> None:
        # Under fp16 an overflowing gradient only lowers the scale; a loss that is not a number ends any run.
        if not math.isfinite(result.loss) or not (math.isfinite(result.norm) or begun.scale is not None):
            raise HeddleError(
                f"Step {begun.number} has loss {result.loss} and gradient norm {result.norm}.",
                "Training cannot continue from numbers that are not finite; any checkpoint is from before that.",
                "Lower [train] learning_rate, lengthen warmup or set clip; then --resume --allow-changes, or start "
                "over.",
            )

    def _row(self, begun: _Begun, result: StepResult) -> StepMetrics:
        job, seconds = self.trainer.job, begun.handed.seconds
        return StepMetrics(
            step=begun.number,
            loss=result.loss,
            learning_rate=begun.rate,
            gradient_norm=result.norm,
            seconds=seconds,
            tokens_per_second=job.tokens_per_step / seconds,
            mfu=job.mfu(seconds, self.peak),
            memory_gib=memory_gib(self.trainer.device),
            loss_scale=begun.scale,
            link_seconds=None if begun.link is None else begun.link.seconds,
            bubble=begun.bubble,
            useful_tokens_per_second=self._useful(job.tokens_per_step / seconds),
            **_rewards(result),
        )

    def _useful(self, tokens_per_second: float) -> float | None:
        """Without padding, which only samples of documents have."""
        samples = self.trainer.feed.samples
        return samples.fill * tokens_per_second if isinstance(samples, DocumentSamples | MixedSamples) else None


def _rewards(result: StepResult) -> dict[str, float]:
    if not result.rewards:
        return {}
    chosen, rejected, right = result.rewards
    return {
        "reward_chosen": chosen,
        "reward_rejected": rejected,
        "reward_margin": chosen - rejected,
        "reward_accuracy": right,
    }
