"""The pipeline executor: interprets any schedule, action by action, on one rank.

What is received, done, sent and let go follows from the schedule, which every rank knows whole. What a chunk does with
a microbatch, and what a message holds, is for its subclasses to say: see `transformer.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from heddle.parallel.mesh import Mesh
from heddle.parallel.pipeline.inbox import DEVICE_AHEAD, Inbox, arrivals, receives_ahead
from heddle.schedule import Action, Kind, Message, Schedule, consumer, early_forwards, incoming, outgoing
from heddle.trace.lanes import Lane, message_name


class SpanRecorder(Protocol):
    """Takes the time of what happens; see heddle.runtime.recorder."""

    def span(
        self, lane: str, name: str, chunk: int = -1, microbatch: int = -1, size: int = 0
    ) -> AbstractContextManager[None]: ...


class Listener(Protocol):
    """Is told how many microbatches will give gradients."""

    def expect(self, microbatches: int) -> None: ...


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
        self._follow(schedule)
        self.inboxes: dict[int, Inbox] = {}
        self.sent: deque[tuple[int, int, dist.Work, Tensor]] = deque()
        self.handed: dict[Action, Tensor] = {}  # what a chunk made for its neighbor on the same rank
        self.warm = False  # whether all kernels have run once

    def _ahead(self, source: int) -> int:
        """Receives that may be posted before they are needed, on the channel from a rank.

        On a device a receive is a kernel that spins until its message comes. CUDA loads a kernel when it first runs,
        and may wait for an idle device then. So nothing spins before every kernel has run once.
        """
        if not self._on_device:
            return receives_ahead(self.schedule, source, self.rank)
        return DEVICE_AHEAD if self.warm else 0

    @property
    def _on_device(self) -> bool:
        """Whether kernels of the device send and receive."""
        return any(dist.get_backend(group) != "gloo" for group in self.mesh.channels.values())

    def _follow(self, schedule: Schedule) -> None:
        """Take up an order of the same actions."""
        self.actions = schedule.ranks[self.rank]
        self.order = [{action: i for i, action in enumerate(actions)} for actions in schedule.ranks]
        self.made_by = arrivals(schedule, self.rank)

    @abstractmethod
    def _forward(self, action: Action, step: StepState) -> None:
        """One microbatch through one chunk: keeps what its backward needs, adds the loss if the chunk is the last."""

    @abstractmethod
    def _backward(self, action: Action, step: StepState) -> None:
        """The way back, given what the forward kept."""

    def _backward_input(self, action: Action, step: StepState) -> None:
        """The part of the way back that the chunk before waits for; keeps what the other part needs."""
        raise NotImplementedError(f"{type(self).__name__} cannot split backward")

    def _backward_weight(self, action: Action, step: StepState) -> None:
        """The other part."""
        raise NotImplementedError(f"{type(self).__name__} cannot split backward")

    @abstractmethod
    def _empty(self, message: Message) -> Tensor:
        """Room for a message."""

    @abstractmethod
    def _size(self, message: Message) -> int:
        """Bytes of a message."""

    def run(
        self,
        works: Sequence[Any],
        scale: float = 1.0,
        listener: Listener | None = None,
        confirm: Callable[[], bool] | None = None,
    ) -> Tensor:
        """Do all actions; returns the mean loss over the microbatches (zero on ranks without the last chunk).

        Gradients are those of the mean loss times `scale`. Without backward actions nothing is kept for them.
        `confirm` is asked, after the first forwards and before anything else, whether the weights were right; it says
        the same on all ranks. If not it has put them right, and the forwards are done again.
        """
        rehearse = self._on_device and not self.warm and bool(self.schedule.split)
        if rehearse:
            self._follow(rehearsal(self.schedule))
        step = StepState(works, scale / max(1, len(works)), torch.zeros((), device=self.device))
        done = None if confirm is None else self._try_out(step, confirm)
        if done is None:
            self.inboxes = self._open_inboxes(self.made_by)
        if listener is not None:
            listener.expect(len(works))
        for action in self.actions[done:]:
            self.perform(action, step)
        for _, _, work, _ in self.sent:
            work.wait()
        self.sent.clear()
        self.warm = True
        if rehearse:
            self._follow(self.schedule)
        return step.loss

    def perform(self, action: Action, step: StepState) -> None:
        """Do one action, by the method for its kind. The watchdog reads off this frame what a rank is at."""
        methods = {
            Kind.FORWARD: self._forward,
            Kind.BACKWARD: self._backward,
            Kind.BACKWARD_INPUT: self._backward_input,
            Kind.BACKWARD_WEIGHT: self._backward_weight,
        }
        methods[action.kind](action, step)

    def _try_out(self, step: StepState, confirm: Callable[[], bool]) -> int | None:
        """Do the first forwards and ask whether they count; returns how many they were, None if they do not.

        Only what ranks send each other in theirs is received meanwhile: so if they do not count, all of it is taken and
        thrown away, and nothing is left that could be mistaken for what is sent again.
        """
        early = early_forwards(self.schedule)
        soon = {
            message: made
            for message, made in self.made_by.items()
            if self.order[message.source][made] < early[message.source]
        }
        self.inboxes = self._open_inboxes(soon)
        for action in self.actions[: early[self.rank]]:
            self.perform(action, step)
        if confirm():
            for message in self.made_by:
                if message not in soon:
                    self.inboxes[message.source].expected.append(message)
            for inbox in self.inboxes.values():
                inbox.post()
            return early[self.rank]
        for inbox in self.inboxes.values():
            inbox.empty_out()
        for _, _, work, _ in self.sent:
            work.wait()
        self.sent.clear()
        self.handed.clear()
        step.kept.clear()
        step.loss.zero_()
        return None

    def _open_inboxes(self, messages: Iterable[Message]) -> dict[int, Inbox]:
        """One for each rank that sends to this one, with the first receives of these messages posted."""
        expected: dict[int, list[Message]] = {message.source: [] for message in self.made_by}
        for message in messages:
            expected[message.source].append(message)
        channels, ranks = self.mesh.channels, self.mesh.pipeline.ranks
        inboxes = {
            source: Inbox(messages, channels[source, self.rank], ranks[source], self._empty, self._ahead(source))
            for source, messages in expected.items()
        }
        for inbox in inboxes.values():
            inbox.post()
        return inboxes

    def _receive(self, action: Action) -> Tensor | None:
        message = incoming(self.schedule, action)
        if message is None:
            return self.handed.pop(action, None)
        size, where = self._size(message), (action.chunk, action.microbatch)
        with self.recorder.span(Lane.RECEIVE, message_name(Lane.RECEIVE, message.kind), *where, size):
            x = self.inboxes[message.source].take(message)
        self._settle(message)
        return self._arrived(x, message)

    def _send(self, action: Action, x: Tensor) -> None:
        message = outgoing(self.schedule, action)
        receiver = consumer(self.schedule, action)
        if receiver is None:
            return
        if message is None:
            self.handed[receiver] = x
            return
        size, where = self._size(message), (action.chunk, action.microbatch)
        with self.recorder.span(Lane.SEND, message_name(Lane.SEND, message.kind), *where, size):
            x = self._leaving(x, message).contiguous()
            group = self.mesh.channels[self.rank, message.destination]
            work = dist.isend(x, dst=self.mesh.pipeline.ranks[message.destination], group=group, tag=message.tag)
        assert work is not None
        self._sent(action, message, receiver, work, x)

    def _sent(self, action: Action, message: Message, receiver: Action, work: dist.Work, x: Tensor) -> None:  # noqa: ARG002
        """Hold on to what is under way."""
        self.sent.append((message.destination, self.order[message.destination][receiver], work, x))

    def _leaving(self, x: Tensor, message: Message) -> Tensor:  # noqa: ARG002
        """What travels of a tensor."""
        return x

    def _arrived(self, x: Tensor, message: Message) -> Tensor:  # noqa: ARG002
        """The tensor again, of what traveled."""
        return x

    def _settle(self, message: Message) -> None:
        """Let go of what a neighbor has taken.

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


def rehearsal(schedule: Schedule) -> Schedule:
    """The same actions, those of the first two microbatches one after the other: for a first step on devices.

    There, whoever first runs a kernel waits until the device is idle, also for its messages: for others, who may wait
    for it in turn. While one microbatch is on its way alone, whoever it goes to has nothing else to do. The second one
    adds to gradients that the first one made.
    """
    alone = 2

    def order(rank: int) -> tuple[Action, ...]:
        own = schedule.ranks[rank]
        places = {kind: place for place, kind in enumerate((Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT))}

        def turn(action: Action) -> tuple[int, ...]:
            kind, chunk, microbatch = action
            return (microbatch, 0, chunk, 0) if kind.direction > 0 else (microbatch, 1, -chunk, places[kind])

        first = sorted((action for action in own if action.microbatch < alone), key=turn)
        return (*first, *(action for action in own if action.microbatch >= alone))

    return replace(schedule, ranks=tuple(map(order, range(schedule.pipeline))))


def forward_only(schedule: Schedule) -> Schedule:
    """The same order without its backwards, for evaluation."""
    ranks = (tuple(action for action in actions if action.kind.direction > 0) for actions in schedule.ranks)
    return replace(schedule, ranks=tuple(ranks))
