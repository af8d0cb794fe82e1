"""The memory of one step of a run that is traced: what microbatches leave, noted at the end of each action.

Seen from below, as in a dry run, which slows a step down: so it is done in the second one alone, and not in runs that
are too short for another to be the typical one. Weights and gradients are not counted: they are there all along.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from heddle.runtime.recorder import Recorder
from heddle.training.dry_run.living import Living
from heddle.training.step.trainer import Trainer

WATCHED = 1  # steps that are traced before the one whose memory is watched
LEAST = 5  # steps of a run


@contextmanager
def watching_memory(trainer: Trainer) -> Iterator[None]:
    """Let the spans of this step carry the bytes that live when they end, where it is the one that is watched."""
    recorder, train = trainer.recorder, trainer.job.train
    if not isinstance(recorder, Recorder) or recorder.written != WATCHED or train.steps < LEAST or trainer.compiled:
        yield
        return
    living = Living()

    def held() -> int:
        own = {
            tensor.untyped_storage()._cdata
            for chunk in trainer.pipeline.chunks.values()
            for parameter in chunk.parameters()
            for tensor in (parameter, parameter.grad)
            if tensor is not None
        }
        return max(0, living.now - sum(living.known.get(storage, 0) for storage in own))

    recorder.held = held
    try:
        with living:
            yield
    finally:
        recorder.held = None
