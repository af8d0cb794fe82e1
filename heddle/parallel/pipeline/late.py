"""The pipeline without a flush: steps follow each other, and each microbatch meets the weights that its step is due.

It runs a `LateSchedule` step by step. What was sent in one step may be received in the next; only `drain` waits
until nothing is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from heddle.models.transformer import Transformer
from heddle.parallel.memory.weight_versions import WeightVersions
from heddle.parallel.mesh import Mesh
from heddle.parallel.pipeline.executor import SpanRecorder, StepState
from heddle.parallel.pipeline.inbox import Inbox
from heddle.parallel.pipeline.transformer import Pipeline, Shape
from heddle.schedule import Action, Kind, Message, outgoing
from heddle.schedule.late import LateSchedule, Update
from heddle.schedule.messages import Payload
from heddle.trace.lanes import Lane

Apply = Callable[[Update], None]


class EndlessState(StepState):
    """What actions leave for each other over many steps: microbatches are numbered on and on."""

    def __init__(self, scale: float, device: torch.device) -> None:
        super().__init__({}, scale, torch.zeros((), device=device))  # type: ignore[arg-type]

    def add(self, loss: Tensor) -> None:
        """Count one microbatch's loss."""
        self.loss += loss

    def take_loss(self) -> Tensor:
        """The sum of what was counted since it was last asked for."""
        loss, self.loss = self.loss, torch.zeros_like(self.loss)
        return loss


class LatePipeline(Pipeline):
    """Runs an endless schedule over chunks of the transformer."""

    def __init__(
        self,
        late: LateSchedule,
        chunks: Mapping[int, Transformer],
        mesh: Mesh,
        shape: Shape,
        recorder: SpanRecorder,
    ) -> None:
        super().__init__(late.unrolled(1), chunks, mesh, shape, recorder)
        self.late = late
        # a chunk needs no old weights where its gradients are not late, or replayed
        self.versions = {
            number: WeightVersions(chunk.parameters())
            for number, chunk in chunks.items()
            if late.delays[number] and not late.rule.replays
        }
        self.steps = 0  # since nothing was under way
        self.state = EndlessState(0.0, shape.device)
        self.under_way: list[tuple[Action, dist.Work, Tensor]] = []

    def run_step(self, works: Sequence[Any], scale: float, apply: Apply) -> Tensor:
        """A step's microbatches forward, and back what has come round; returns the step's mean loss (zero on ranks
        without the last chunk).
        """
        number, count = self.steps, self.late.microbatches
        if number == 0:
            self._begin(scale / count)
        for place, work in enumerate(works):
            self.state.works[number * count + place] = work  # type: ignore[index]
        self.steps += 1
        self._expect(lambda rank: self.late.step(rank, number))
        self._do(self.late.step(self.rank, number), apply)
        return self.state.take_loss() / count

    def drain(self, apply: Apply) -> None:
        """Bring back everything that is under way; the delay builds up again from the next step on."""
        steps = self.steps
        if steps == 0:
            return
        self._expect(lambda rank: self.late.drain(rank, steps))
        self._do(self.late.drain(self.rank, steps), apply)
        for _, work, _ in self.under_way:
            work.wait()
        self.under_way.clear()
        assert not self.state.kept
        self.steps = 0
        for versions in self.versions.values():
            versions.forget()

    def _begin(self, scale: float) -> None:
        self.state = EndlessState(scale, self.device)
        channels, ranks = self.mesh.channels, self.mesh.pipeline.ranks
        sources = {source for source, destination in channels if destination == self.rank}
        self.inboxes = {
            source: Inbox((), channels[source, self.rank], ranks[source], self._empty, self._ahead(source))
            for source in sources
        }

    def _expect(self, order: Callable[[int], Iterable[Action | Update]]) -> None:
        """Receive what the neighbors will send, in the order in which they send it."""
        for source, inbox in self.inboxes.items():
            for action in order(source):
                message = outgoing(self.schedule, action) if isinstance(action, Action) else None
                if message is not None and message.destination == self.rank:
                    inbox.expected.append(message)
            inbox.post()

    def _do(self, order: Iterable[Action | Update], apply: Apply) -> None:
        for each in order:
            if isinstance(each, Update):
                self._update(each, apply)
            else:
                self.perform(each, self.state)

    def _update(self, update: Update, apply: Apply) -> None:
        for chunk in update.chunks:
            if chunk in self.versions:
                due = self.step_of(update, chunk) + 1  # the oldest step that is still to come back
                self.versions[chunk].before_update(oldest=self.late.version(chunk, due))
        apply(update)

    def step_of(self, update: Update, chunk: int) -> int:
        """Whose gradients of a chunk an update applies; of none if below 0."""
        return update.step - (self.late.delays[chunk] if len(update.chunks) > 1 else 0)

    def _forward(self, action: Action, step: StepState) -> None:
        self._meet(action)
        if not self._replays(action):
            super()._forward(action, step)
            return
        work = step.works[action.microbatch]
        x = self._receive(action)
        with torch.no_grad(), self.recorder.span(Lane.COMPUTE, action.kind, action.chunk, action.microbatch):
            y = self.chunks[action.chunk](work.ids if x is None else x, work.batch)
        self._send(action, y)
        step.keep(action, x)

    def _backward(self, action: Action, step: StepState) -> None:
        if self._replays(action):
            self._replay(action, step)
        else:
            self._meet(action)
            super()._backward(action, step)
        if action.chunk == min(self.chunks):
            del step.works[action.microbatch]  # type: ignore[attr-defined]

    def _replay(self, action: Action, step: StepState) -> None:
        """Forward again, from the old input at the newest weights, then back."""
        work = step.works[action.microbatch]
        x: Tensor | None = step.take(action)
        gradient = self._receive(action)
        with self.recorder.span(Lane.COMPUTE, action.kind, action.chunk, action.microbatch):
            if x is not None:
                x.requires_grad_()
            y = self.chunks[action.chunk](work.ids if x is None else x, work.batch)
            torch.autograd.backward(y, gradient)
        self._hand_back(action, x)

    def _replays(self, action: Action) -> bool:
        return self.late.rule.replays and self.late.delays[action.chunk] > 0

    def _meet(self, action: Action) -> None:
        """Point the chunk at the weights that this microbatch is due."""
        if action.chunk not in self.versions:
            for versions in self.versions.values():
                versions.use_newest()  # of what two chunks share
        else:
            number = action.microbatch // self.late.microbatches
            self.versions[action.chunk].use(self.late.version(action.chunk, number))

    def _sent(self, action: Action, message: Message, receiver: Action, work: dist.Work, x: Tensor) -> None:  # noqa: ARG002
        self.under_way.append((action, work, x))

    def _settle(self, message: Message) -> None:
        """Let go of what a neighbor has taken, as this message of its shows: a gradient comes after the forward that
        took our activation, and an activation after the backwards that were due before it.
        """
        gradient = message.kind is Payload.GRADIENT
        chunk = message.chunk - 1 if gradient else message.chunk + 1
        kind = Kind.FORWARD if gradient else Kind.BACKWARD
        last = message.microbatch - (0 if gradient else self.late.leads[message.chunk] + 1)
        waiting = []
        for entry in self.under_way:
            action, work, _ = entry
            if action.kind is kind and action.chunk == chunk and action.microbatch <= last:
                work.wait()
            else:
                waiting.append(entry)
        self.under_way = waiting
