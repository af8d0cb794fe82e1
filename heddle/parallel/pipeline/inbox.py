"""How messages are received: posted ahead of need, in the order their sender sends.

So transports without tags deliver them right, too. Which messages will come, and in which order, follows from the
schedule, which every rank knows whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import torch.distributed as dist
from torch import Tensor

from heddle.schedule import Action, Message, Schedule, outgoing

AHEAD = 2  # receives posted beyond the one that is needed next, on each channel, where the host receives
DEVICE_AHEAD = 1  # where a kernel does, which occupies the device until its message comes


def arrivals(schedule: Schedule, rank: int) -> dict[Message, Action]:
    """Every message for a rank and the action that makes it; those of one sender in the order it sends them."""
    return {
        message: action
        for actions in schedule.ranks
        for action in actions
        if (message := outgoing(schedule, action)) is not None and message.destination == rank
    }


class Inbox:
    """Messages from one neighbour, received in the order in which it sends them."""

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
