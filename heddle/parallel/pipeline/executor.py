"""The pipeline executor: interprets any schedule, action by action, on one rank.

What is received, done, sent and let go follows from the schedule, which every rank knows whole. What a chunk does with
a microbatch, and what a message holds, is for its subclasses to say: see `transformer.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from heddle.parallel.mesh import Mesh
from heddle.parallel.pipeline.inbox import AHEAD, DEVICE_AHEAD, Inbox, arrivals
from heddle.schedule import Action, Kind, Message, Schedule, consumer, incoming, outgoing
from heddle.trace.lanes import Lane, message_name


class SpanRecorder(Protocol):
    """Takes the time of what happens; see heddle.runtime.recorder."""

    def span(
        self, lane: str, name: str, chunk: int = -1, microbatch: int = -1, size: int = 0
    ) -> AbstractContextManager[None]: ...


class Listener(Protocol):
    """Is told when a chunk is about to give the last gradients of a step."""

    def last_backward(self, chunk: int) -> None: ...


@dataclass
class StepState:
    """One run of a schedule on one rank: its microbatches, and what their actions leave for each other."""

    works: Sequence[Any]  # one for each microbatch
    scale: float  # of each microbatch's loss, whose gradients are wanted
    loss: Tensor  # the mean over microbatches, as far as they have come
    kept: dict[tuple[int, int], Any] = field(default_factory=dict)  # by chunk and microbatch

    def keep(self, action: Action, what: Any) -> None:
        """Leave something for the next action of the same microbatch in the same chunk."""
        self.kept[action.chunk, action.microbatch] = what

    def take(self, action: Action) -> Any:
        """What the action before left."""
        return self.kept.pop((action.chunk, action.microbatch))

    def add(self, loss: Tensor) -> None:
        """Count one microbatch's loss."""
        self.loss += loss / len(self.works)


class Executor(ABC):
    """Runs a schedule's actions of one rank: what is received, done, sent and let go, in which order."""

    def __init__(self, schedule: Schedule, mesh: Mesh, device: torch.device, recorder: SpanRecorder) -> None:
        self.schedule, self.mesh, self.device, self.recorder = schedule, mesh, device, recorder
        self.rank = mesh.pipeline.rank
        self.last_chunk = schedule.chunks - 1
        self.actions = schedule.ranks[self.rank]
        self.order = [{action: i for i, action in enumerate(actions)} for actions in schedule.ranks]
        self.made_by = arrivals(schedule, self.rank)
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
    def _forward(self, action: Action, step: StepState) -> None:
        """One microbatch through one chunk: keeps what its backward needs, adds the loss if the chunk is the last."""

    @abstractmethod
    def _backward(self, action: Action, step: StepState) -> None:
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
        self.inboxes = self._open_inboxes()
        step = StepState(works, scale / max(1, len(works)), torch.zeros((), device=self.device))
        for action in self.actions:
            if listener is not None and action in self.last_backwards:
                listener.last_backward(action.chunk)
            self.perform(action, step)
        for _, _, work, _ in self.sent:
            work.wait()
        self.sent.clear()
        self.warm = True
        return step.loss

    def perform(self, action: Action, step: StepState) -> None:
        """Do one action, by the method for its kind. The watchdog reads off this frame what a rank is at."""
        methods = {Kind.FORWARD: self._forward, Kind.BACKWARD: self._backward}
        methods[action.kind](action, step)

    def _open_inboxes(self) -> dict[int, Inbox]:
        """One for each rank that sends to this one, with its first receives posted."""
        expected: dict[int, list[Message]] = {}
        for message in self.made_by:
            expected.setdefault(message.source, []).append(message)
        channels, ranks = self.mesh.channels, self.mesh.pipeline.ranks
        inboxes = {
            source: Inbox(messages, channels[source, self.rank], ranks[source], self._empty, self.ahead)
            for source, messages in expected.items()
        }
        for inbox in inboxes.values():
            inbox.post()
        return inboxes

    def _receive(self, action: Action) -> Tensor | None:
        message = incoming(self.schedule, action)
        if message is None:
            return None
        size, where = self._size(message), (action.chunk, action.microbatch)
        with self.recorder.span(Lane.RECEIVE, message_name(Lane.RECEIVE, message.kind), *where, size):
            x = self.inboxes[message.source].take(message)
        self._settle(message)
        return x

    def _send(self, action: Action, x: Tensor) -> None:
        message = outgoing(self.schedule, action)
        receiver = consumer(self.schedule, action)
        if message is None or receiver is None:
            return
        size, where = self._size(message), (action.chunk, action.microbatch)
        with self.recorder.span(Lane.SEND, message_name(Lane.SEND, message.kind), *where, size):
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
        reached = self.order[sender][self.made_by[message]]
        waiting: deque[tuple[int, int, dist.Work, Tensor]] = deque()
        for entry in self.sent:
            destination, consumed_at, work, _ = entry
            if destination == sender and consumed_at <= reached:
                work.wait()
            else:
                waiting.append(entry)
        self.sent = waiting


def _last_backwards(actions: Sequence[Action]) -> set[Action]:
    """The last action of each chunk that adds to its gradients."""
    last = {action.chunk: action for action in actions if action.kind.gradients}
    return set(last.values())


def forward_only(schedule: Schedule) -> Schedule:
    """The same order without its backwards, for evaluation."""
    ranks = (tuple(action for action in actions if action.kind.direction > 0) for actions in schedule.ranks)
    return replace(schedule, ranks=tuple(ranks))
