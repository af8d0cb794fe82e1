"""The pipeline executor: interprets any schedule, action by action, on one rank.

Which messages go where follows from the schedule, which every rank knows whole. Receives are posted ahead of need,
in the order the sender sends, so that transports without tags deliver them right, too. Between stages each
tensor-parallel rank sends only its slice of the tokens, and the receiver gathers them over its faster links
(the scatter/gather optimisation, PTD-P §4.1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from heddle.models.transformer import Microbatch
from heddle.parallel.collectives import gather, slice_of
from heddle.parallel.mesh import Mesh
from heddle.schedule import Action, Kind, Message, Schedule, consumer, incoming, outgoing

AHEAD = 2  # receives posted beyond the one that is needed next, on each channel, where the host receives
DEVICE_AHEAD = 1  # where a kernel does, which occupies the device until its message comes


class Work(NamedTuple):
    """One microbatch: its tokens, what follows them, and what else layers must know."""

    ids: Tensor
    targets: Tensor
    batch: Microbatch


class Recorder(Protocol):
    """Takes the time of what happens; see heddle.runtime.recorder."""

    def span(
        self, lane: str, name: str, chunk: int = -1, microbatch: int = -1, size: int = 0
    ) -> AbstractContextManager[None]: ...


class Listener(Protocol):
    """Is told when a chunk is about to give the last gradients of a step."""

    def last_backward(self, chunk: int) -> None: ...


@dataclass(frozen=True)
class Shape:
    """Of the activations between chunks."""

    tokens: int  # of a microbatch
    hidden: int
    dtype: torch.dtype
    device: torch.device
    sliced: bool  # whether activations are slices of the tokens already (sequence parallelism)


class Inbox:
    """Messages from one neighbour, received in the order in which it sends them."""

    def __init__(
        self,
        expected: Sequence[Message],
        group: dist.ProcessGroup,
        source: int,
        empty: Callable[[Message], Tensor],
        ahead: int = AHEAD,
    ) -> None:
        self.group, self.source, self.empty, self.ahead = group, source, empty, ahead
        self.expected = deque(expected)
        self.posted: dict[Message, tuple[dist.Work, Tensor]] = {}

    def post(self) -> None:
        """Post receives until as many are open as may be."""
        while self.expected and len(self.posted) < self.ahead:
            self._post_next()

    def _post_next(self) -> Message:
        message = self.expected.popleft()
        buffer = self.empty(message)
        work = dist.irecv(buffer, src=self.source, group=self.group, tag=message.tag)
        assert work is not None
        self.posted[message] = (work, buffer)
        return message

    def take(self, message: Message) -> Tensor:
        """Wait for one message; more are on their way meanwhile."""
        while message not in self.posted:
            self._post_next()
        work, buffer = self.posted.pop(message)
        self.post()
        work.wait()
        return buffer


class Executor(ABC):
    """Runs a schedule's actions of one rank: what is received, done, sent and let go, in which order.

    What a chunk does with a microbatch, and what a message holds, is for the kinds of executor to say.
    """

    def __init__(self, schedule: Schedule, mesh: Mesh, device: torch.device, recorder: Recorder) -> None:
        self.schedule, self.mesh, self.device, self.recorder = schedule, mesh, device, recorder
        self.rank = mesh.pipeline.rank
        self.last_chunk = schedule.chunks - 1
        self.actions = schedule.ranks[self.rank]
        self.order = [{action: i for i, action in enumerate(actions)} for actions in schedule.ranks]
        self.expected = _expected(schedule, self.rank)
        self.last_backwards = _last_backwards(self.actions)
        self.inboxes: dict[int, Inbox] = {}
        self.sent: deque[tuple[int, int, dist.Work, Tensor]] = deque()
        self.warm = False  # whether all kernels have run once

    @property
    def ahead(self) -> int:
        """Receives that may be posted before they are needed, on each channel.

        On a device a receive is a kernel that spins until its message comes. CUDA loads a kernel when it first runs,
        and may wait for an idle device then. So nothing spins before every kernel has run once.
        """
        if all(dist.get_backend(group) == "gloo" for group in self.mesh.channels.values()):
            return AHEAD
        return DEVICE_AHEAD if self.warm else 0

    @abstractmethod
    def _forward(self, action: Action, work: Any, scale: float) -> tuple[Any, Tensor | None]:
        """One microbatch through one chunk: what its backward needs, and the loss where this is the last chunk."""

    @abstractmethod
    def _backward(self, action: Action, kept: Any) -> None:
        """The way back, given what the forward kept."""

    @abstractmethod
    def _empty(self, message: Message) -> Tensor:
        """Room for a message."""

    @abstractmethod
    def _size(self, message: Message) -> int:
        """Bytes of a message."""

    def run(self, works: Sequence[Any], scale: float = 1.0, listener: Listener | None = None) -> Tensor:
        """Do all actions; gives the mean loss over the microbatches (zero on ranks without the last chunk).

        Gradients are those of the mean loss times `scale`. Without backward actions nothing is kept for them.
        """
        self.inboxes = {
            source: Inbox(
                messages,
                self.mesh.channels[source, self.rank],
                self.mesh.pipeline.ranks[source],
                self._empty,
                self.ahead,
            )
            for source, messages in self.expected.items()
        }
        for inbox in self.inboxes.values():
            inbox.post()
        total = torch.zeros((), device=self.device)
        stash: dict[tuple[int, int], Any] = {}
        for action in self.actions:
            kind, chunk, microbatch = action
            if kind is Kind.FORWARD:
                kept, loss = self._forward(action, works[microbatch], scale / len(works))
                if kept is not None:
                    stash[chunk, microbatch] = kept
                if loss is not None:
                    total += loss / len(works)
            else:
                if listener is not None and action in self.last_backwards:
                    listener.last_backward(chunk)
                self._backward(action, stash.pop((chunk, microbatch)))
        for _, _, work, _ in self.sent:
            work.wait()
        self.sent.clear()
        self.warm = True
        return total

    def _receive(self, action: Action) -> Tensor | None:
        message = incoming(self.schedule, action)
        if message is None:
            return None
        size = self._size(message)
        with self.recorder.span("receive", f"receive {message.kind}", action.chunk, action.microbatch, size):
            x = self.inboxes[message.source].take(message)
        self._settle(message)
        return x

    def _send(self, action: Action, x: Tensor) -> None:
        message = outgoing(self.schedule, action)
        receiver = consumer(self.schedule, action)
        if message is None or receiver is None:
            return
        size = self._size(message)
        with self.recorder.span("send", f"send {message.kind}", action.chunk, action.microbatch, size):
            x = x.contiguous()
            group = self.mesh.channels[self.rank, message.destination]
            work = dist.isend(x, dst=self.mesh.pipeline.ranks[message.destination], group=group, tag=message.tag)
        assert work is not None
        self.sent.append((message.destination, self.order[message.destination][receiver], work, x))

    def _settle(self, message: Message) -> None:
        """Let go of what a neighbour has taken.

        That this message was sent shows how far its sender has come: whatever it consumed before has arrived. (Not
        every transport says by itself that a send is complete, and sent activations add up.)
        """
        sender = message.source
        made_by = Action(
            Kind.FORWARD if message.kind == "activation" else Kind.BACKWARD, message.chunk, message.microbatch
        )
        reached = self.order[sender][made_by]
        waiting: deque[tuple[int, int, dist.Work, Tensor]] = deque()
        for entry in self.sent:
            destination, consumed_at, work, _ = entry
            if destination == sender and consumed_at <= reached:
                work.wait()
            else:
                waiting.append(entry)
        self.sent = waiting


class Pipeline(Executor):
    """Runs a schedule over chunks of the transformer, which hand over one tensor: the activations of its tokens.

    The last one is told the targets, and gives the loss.
    """

    def __init__(
        self,
        schedule: Schedule,
        chunks: Mapping[int, nn.Module],
        mesh: Mesh,
        shape: Shape,
        recorder: Recorder,
    ) -> None:
        super().__init__(schedule, mesh, shape.device, recorder)
        self.chunks, self.shape = chunks, shape
        # Sliced activations travel as they are; whole ones are sliced for the journey where that is even.
        self.scatter = not shape.sliced and mesh.tensor.size > 1 and shape.tokens % mesh.tensor.size == 0

    def _forward(
        self, action: Action, work: Work, scale: float
    ) -> tuple[tuple[Tensor | None, GradientEdge | Tensor] | None, Tensor | None]:
        _, chunk, microbatch = action
        x = self._receive(action)
        if x is not None and torch.is_grad_enabled():
            x.requires_grad_()
        with self.recorder.span("compute", "forward", chunk, microbatch):
            batch = replace(work.batch, targets=work.targets, scale=scale) if chunk == self.last_chunk else work.batch
            y = self.chunks[chunk](work.ids if x is None else x, batch)
        if chunk == self.last_chunk:  # which gives the loss
            return ((x, y * scale) if torch.is_grad_enabled() else None), y.detach()
        self._send(action, y.detach())
        # Only the graph behind the output is kept: its values have been sent.
        return ((x, get_gradient_edge(y)) if torch.is_grad_enabled() else None), None

    def _backward(self, action: Action, kept: tuple[Tensor | None, GradientEdge | Tensor]) -> None:
        x, output = kept
        gradient = self._receive(action)
        with self.recorder.span("compute", "backward", action.chunk, action.microbatch):
            torch.autograd.backward(output, gradient)
        if x is not None:
            assert x.grad is not None
            self._send(action, x.grad)
            x.grad = None

    def _receive(self, action: Action) -> Tensor | None:
        x = super()._receive(action)
        return gather(x, self.mesh.tensor) if x is not None and self.scatter else x

    def _send(self, action: Action, x: Tensor) -> None:
        super()._send(action, slice_of(x, self.mesh.tensor) if self.scatter else x)

    def _rows(self) -> int:
        return self.shape.tokens // self.mesh.tensor.size if self.scatter or self.shape.sliced else self.shape.tokens

    def _empty(self, _message: Message) -> Tensor:
        return torch.empty(self._rows(), self.shape.hidden, dtype=self.shape.dtype, device=self.shape.device)

    def _size(self, _message: Message) -> int:
        return self._rows() * self.shape.hidden * self.shape.dtype.itemsize


def _expected(schedule: Schedule, rank: int) -> dict[int, list[Message]]:
    """Messages for `rank` by the rank that sends them, in its order."""
    expected: dict[int, list[Message]] = {}
    for source, actions in enumerate(schedule.ranks):
        messages = [message for action in actions if (message := outgoing(schedule, action)) is not None]
        for_us = [message for message in messages if message.destination == rank]
        if for_us:
            expected[source] = for_us
    return expected


def _last_backwards(actions: Sequence[Action]) -> set[Action]:
    """The last backward of each chunk."""
    last = {action.chunk: action for action in actions if action.kind is Kind.BACKWARD}
    return set(last.values())


def forward_only(schedule: Schedule) -> Schedule:
    """The same order without its backwards, for evaluation."""

    def forwards(actions: Sequence[Action]) -> Iterator[Action]:
        return (action for action in actions if action.kind is Kind.FORWARD)

    ranks = tuple(tuple(forwards(actions)) for actions in schedule.ranks)
    return Schedule(schedule.name, schedule.pipeline, schedule.virtual, schedule.microbatches, ranks)
