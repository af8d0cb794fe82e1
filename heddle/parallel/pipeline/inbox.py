"""How messages are received: posted ahead of need, in the order their sender sends.

So transports without tags deliver them right, too. Which messages will come, and in which order, follows from the
schedule, which every rank knows whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import torch.distributed as dist
from torch import Tensor

from heddle.schedule import Action, Message, Schedule, incoming, outgoing, producer

AHEAD = 2  # receives posted beyond the one that is needed next, on each channel, where the host receives
MOST_AHEAD = 64  # the same where a sender may run further ahead than under 1F1B: for links on which messages last
DEVICE_AHEAD = 1  # where a kernel does, which occupies the device until its message comes


def arrivals(schedule: Schedule, rank: int) -> dict[Message, Action]:
    """Every message for a rank and the action that makes it; those of one sender in the order it sends them."""
    return {
        message: action
        for actions in schedule.ranks
        for action in actions
        if (message := outgoing(schedule, action)) is not None and message.destination == rank
    }


def most_under_way(schedule: Schedule, source: int, target: int) -> int:
    """Messages that a rank can send another before it has to wait for that one: its warm-up, or all of GPipe's."""
    sent_to = [outgoing(schedule, action) for action in schedule.ranks[source]]
    done: set[Action] = set()
    most, at, taken, sent = 0, 0, 0, 0
    for action in schedule.ranks[target]:
        needed = incoming(schedule, action)
        if needed is not None and needed.source == source:
            # the sender goes on until it needs something that this rank has not made yet
            while at < len(sent_to):
                step = schedule.ranks[source][at]
                maker = producer(schedule, step)
                if maker is not None and schedule.rank_of(maker.chunk) == target and maker not in done:
                    break
                message = sent_to[at]
                sent += message is not None and message.destination == target
                at += 1
            most = max(most, sent - taken)
            taken += 1
        done.add(action)
    return most


def receives_ahead(schedule: Schedule, source: int, target: int) -> int:
    """Receives to post ahead where the host receives.

    gloo sends a message once its receiver expects it. What is expected too late takes its way there and back, which
    undoes on a slow link what a longer warm-up is for. So where a sender may run further ahead than under 1F1B, all
    that it can send is expected. That takes no memory of its own: what arrives early is what a backward will need.
    """
    if schedule.virtual > 1:
        return AHEAD
    most = most_under_way(schedule, source, target)
    deeper = most > schedule.pipeline - min(source, target)
    return min(MOST_AHEAD, max(AHEAD, most)) if deeper else AHEAD


class Inbox:
    """Messages from one neighbor, received in the order in which it sends them."""

    def __init__(
        self,
        expected: Iterable[Message],
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

    def empty_out(self) -> None:
        """Wait for all that is expected, and throw it away."""
        while self.expected or self.posted:
            self.take(next(iter(self.posted), None) or self.expected[0])
