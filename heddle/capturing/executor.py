"""Runs a schedule over the stages of a captured module, which hand over any number of tensors at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from heddle.capturing.split import CapturedStage, Tensors
from heddle.parallel.mesh import Mesh
from heddle.parallel.pipeline.executor import Executor, SpanRecorder, StepState
from heddle.runtime.device import synchronize
from heddle.schedule import Action, Message, Payload, Schedule
from heddle.trace.lanes import Lane

ALIGNED = 64  # bytes: where each tensor of a message begins
AHEAD = 4  # batches that may be on their way to a slower stage


class KeptForBackward(NamedTuple):
    """What the way back of a microbatch through a stage needs."""

    received: list[Tensor]
    outputs: list[Tensor | GradientEdge | None]  # None: has no gradient


class StageExecutor(Executor):
    """One stage a rank. Works are the module's inputs, flat; a stage reads those that it needs."""

    def __init__(
        self, schedule: Schedule, stage: CapturedStage, mesh: Mesh, device: torch.device, recorder: SpanRecorder
    ) -> None:
        super().__init__(schedule, mesh, device, recorder)
        self.stage = stage
        self.outputs: list[list[Any]] = []  # of each microbatch
        self.done: list[float] = []  # when each was done

    def run(self, works: Sequence[Any], scale: float = 1.0, listener: Any = None, confirm: Any = None) -> Tensor:
        """Do all actions; `outputs` and `done` are those of this run."""
        self.outputs, self.done = [], []
        return super().run(works, scale, listener, confirm)

    def _forward(self, action: Action, step: StepState) -> None:
        stage, training, last = self.stage, torch.is_grad_enabled(), action.chunk == self.last_chunk
        work = step.works[action.microbatch]
        received = unpack(self._receive(action), stage.received)
        if training:
            for tensor, has in zip(received, stage.received.gradients, strict=True):
                tensor.requires_grad_(has)
        with self.recorder.span(Lane.COMPUTE, action.kind, action.chunk, action.microbatch):
            sent, outputs = stage(*received, *(work[number] for number in stage.inputs))
        if not last:
            self._send(action, pack([tensor.detach() for tensor in sent], stage.sent, self.device))
            while not training and len(self.sent) > AHEAD:  # the next stage is slower: wait, and hold no more
                self.sent.popleft()[2].wait()
        if not training:
            self.outputs.append(outputs)
            if last:
                synchronize(self.device)
            self.done.append(time.perf_counter())
        elif last:
            (loss,) = outputs
            self.outputs.append([loss.detach()])
            step.keep(action, KeptForBackward(received, [loss * step.scale if loss.requires_grad else None]))
            step.add(loss.detach().reshape(()))
        else:  # only the graphs behind the outputs are kept: their values have been sent
            kept = [get_gradient_edge(tensor) if tensor.requires_grad else None for tensor in sent]
            step.keep(action, KeptForBackward(received, list(kept)))

    def _backward(self, action: Action, step: StepState) -> None:
        stage, kept = self.stage, step.take(action)
        gradients: list[Tensor | None] = [None]
        outputs = kept.outputs
        if action.chunk != self.last_chunk:
            gradients = list(unpack(self._receive(action), stage.sent.backward))
            outputs = [kept.outputs[number] for number, has in enumerate(stage.sent.gradients) if has]
        pairs: list[tuple[Any, Tensor | None]] = [
            (output, gradient) for output, gradient in zip(outputs, gradients, strict=True) if output is not None
        ]
        with self.recorder.span(Lane.COMPUTE, action.kind, action.chunk, action.microbatch):
            if pairs:
                torch.autograd.backward([output for output, _ in pairs], [gradient for _, gradient in pairs])
        if action.chunk > 0:
            back = [
                torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
                for tensor, has in zip(kept.received, stage.received.gradients, strict=True)
                if has
            ]
            self._send(action, pack(back, stage.received.backward, self.device))

    def _layout(self, message: Message) -> Tensors:
        """What a message to or from this rank holds."""
        if message.kind is Payload.ACTIVATION:
            return self.stage.sent if message.source == self.rank else self.stage.received
        return (self.stage.received if message.source == self.rank else self.stage.sent).backward

    def _empty(self, message: Message) -> Tensor:
        return torch.empty(self._size(message), dtype=torch.uint8, device=self.device)

    def _size(self, message: Message) -> int:
        return offsets(self._layout(message))[-1]


def offsets(tensors: Tensors) -> list[int]:
    """Where each tensor of a message begins, and at last where it ends; no message is empty."""
    found = [0]
    for shape, dtype in zip(tensors.shapes, tensors.dtypes, strict=True):
        size = torch.Size(shape).numel() * dtype.itemsize
        found.append(found[-1] + -(-size // ALIGNED) * ALIGNED)
    found[-1] = max(found[-1], 1)
    return found


def pack(values: Sequence[Tensor], tensors: Tensors, device: torch.device) -> Tensor:
    """Tensors as the bytes of one message."""
    begins = offsets(tensors)
    buffer = torch.empty(begins[-1], dtype=torch.uint8, device=device)
    for value, room in zip(values, _rooms(buffer, tensors, begins), strict=True):
        room.copy_(value)
    return buffer


def unpack(buffer: Tensor | None, tensors: Tensors) -> list[Tensor]:
    """The tensors of a message, in its own memory."""
    return [] if buffer is None else _rooms(buffer, tensors, offsets(tensors))


def _rooms(buffer: Tensor, tensors: Tensors, begins: Sequence[int]) -> list[Tensor]:
    rooms = []
    for shape, strides, dtype, begin in zip(tensors.shapes, tensors.strides, tensors.dtypes, begins, strict=False):
        size = torch.Size(shape).numel() * dtype.itemsize
        rooms.append(buffer[begin : begin + size].view(dtype).as_strided(shape, strides))
    return rooms
