"""The model that preferences are measured against: the one that training starts from, which never learns.

With adapters it is there already: the frozen model, with its adapters off. Else it is a copy of the weights alone,
spread as the model is. It sees every microbatch before the model does, forward only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from heddle.models.lora import adapters_off
from heddle.models.transformer import Transformer
from heddle.parallel.apply import Parallel
from heddle.parallel.mesh import Mesh
from heddle.parallel.pipeline.executor import StepState, forward_only
from heddle.parallel.pipeline.transformer import MicrobatchInput, Pipeline, Shape
from heddle.parallel.shards import Piece
from heddle.runtime.recorder import NoRecorder
from heddle.schedule import Schedule


class AskedPipeline(Pipeline):
    """Keeps what the last chunk gives of each microbatch, rather than a mean."""

    def __init__(self, schedule: Schedule, chunks: Mapping[int, Transformer], mesh: Mesh, shape: Shape) -> None:
        super().__init__(forward_only(schedule), chunks, mesh, shape, NoRecorder())
        self.told: dict[int, Tensor] = {}

    def _told(self, microbatch: int, loss: Tensor, step: StepState) -> None:  # noqa: ARG002
        self.told[microbatch] = loss


class Reference:
    """What the reference says of pairs."""

    def __init__(
        self, schedule: Schedule, own: Parallel, mesh: Mesh, shape: Shape, copied: Callable[[], Parallel] | None
    ) -> None:
        """`copied` makes a frozen copy of the model; None: the model's adapters are turned off instead."""
        self.copy = None if copied is None else copied()
        held = own.chunks if self.copy is None else self.copy.chunks
        self.chunks = {number: chunk for number, chunk in held.items() if isinstance(chunk, Transformer)}
        self.pipeline = AskedPipeline(schedule, self.chunks, mesh, shape)

    @property
    def frozen(self) -> list[Piece]:
        """What it holds beside the model."""
        return [] if self.copy is None else self.copy.frozen

    @torch.no_grad()
    def added(self, works: Sequence[MicrobatchInput]) -> list[MicrobatchInput]:
        """The same microbatches, with the reference's log-probabilities where the loss is computed."""
        self.pipeline.told = {}
        plain = [work._replace(batch=replace(work.batch, keys=None)) for work in works]  # it drops nothing
        with adapters_off(self.chunks.values()):
            self.pipeline.run(plain)
        found = []
        for number, work in enumerate(works):
            assert work.batch.pairs is not None
            pairs = replace(work.batch.pairs, reference=self.pipeline.told.get(number))
            found.append(work._replace(batch=replace(work.batch, pairs=pairs)))
        return found
