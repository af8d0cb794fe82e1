"""The sum over two ranks that send each other what they have: of a tied embedding's gradient, which both ends hold.

gloo's ring would take four delays of the link between them, after the later of the two has come to it. Here each sends
its part as soon as that is whole, and has long said that it expects the other's: one delay after the later part is
whole both have the sum. Both add the same two numbers, so they have the same bits.
"""

from __future__ import annotations

from collections import deque

import torch
import torch.distributed as dist
from torch import Tensor

from heddle.parallel.collectives import Handle
from heddle.parallel.mesh import Axis
from heddle.trace.lanes import Collective

PIECE = 1 << 20  # numbers of a message
AHEAD = 4  # messages that are expected at once: what a sum takes of memory, and what a long link has under way


class PairSum:
    """Sums one flat buffer over two ranks, again and again."""

    def __init__(self, numbers: Tensor, axis: Axis) -> None:
        self.numbers, self.axis = numbers, axis
        self.pieces = numbers.split(PIECE)
        self.other = axis.ranks[1 - axis.rank]
        self.posted: deque[tuple[dist.Work, Tensor]] = deque()
        self.sent: list[dist.Work] = []

    @staticmethod
    def serves(axis: Axis) -> bool:
        """Whether the axis has two ranks, whose hosts send."""
        return axis.size == 2 and dist.get_backend(axis.group) == "gloo"

    @property
    def room(self) -> int:
        """Bytes that are ready for the other's part, from the beginning of a step on."""
        return sum(piece.nbytes for piece in self.pieces[:AHEAD])

    def expect(self) -> None:
        """Say that the other's part is expected: before anybody has it, so that it need not wait for that."""
        for number in range(len(self.posted), min(AHEAD, len(self.pieces))):
            self._post(number)

    def start(self) -> Handle:
        """Send this rank's part, which must not change until the sum was waited for."""
        self.expect()
        group = self.axis.group
        works = [dist.isend(piece, self.other, group=group, tag=number) for number, piece in enumerate(self.pieces)]
        self.sent = [work for work in works if work is not None]
        return Handle(
            [], self.numbers, kind=Collective.ALL_REDUCE, axis=self.axis, finish=self._add_up, overlapped=False
        )

    def _post(self, number: int) -> None:
        part = torch.empty_like(self.pieces[number])
        work = dist.irecv(part, self.other, group=self.axis.group, tag=number)
        assert work is not None
        self.posted.append((work, part))

    def _add_up(self) -> None:
        for number, (piece, sent) in enumerate(zip(self.pieces, self.sent, strict=True)):
            work, part = self.posted.popleft()
            work.wait()
            sent.wait()  # what has not left yet may not change
            piece.add_(part)
            if number + AHEAD < len(self.pieces):
                self._post(number + AHEAD)
        self.sent = []
