"""A sum over replicas in fewer bits, in two halves, each with error feedback (1-bit Adam, arXiv 2102.02888 §4).

Each replica owns an equal share of the numbers. First everybody sends every owner its part of that share, in codes, and
the owner adds up. Then, unless the owner alone needs it, the sum is sent to everybody, in codes. All replicas decode
the same bytes, the owner too, so that all have the same numbers to the bit.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from heddle.parallel.codecs import Codec, Feedback
from heddle.parallel.collectives import Handle, start_gather_straight
from heddle.parallel.mesh import Axis
from heddle.trace.lanes import Collective


class CompressedSum:
    """Sums one flat buffer over an axis, again and again; keeps what codes could not say until the next time."""

    def __init__(self, numbers: Tensor, axis: Axis, codec: Codec, shared: bool) -> None:
        """`numbers` come in equal shares of the axis; `shared`: everybody gets the sum, not only each share's owner."""
        self.shares, self.axis, self.codec = numbers.view(axis.size, -1), axis, codec
        self.own = self.shares[axis.rank]
        self.parts = Feedback(codec, self.shares)
        self.sums = Feedback(codec, self.own) if shared else None

    def start(self) -> Handle:
        """Begin with the first half: what is waited for is this replica's share of the sum."""
        code = self.parts.encode(self.shares)
        self.parts.residual[self.axis.rank].zero_()  # nobody sends to itself: its own part stays as it is
        received = torch.empty_like(code)
        work = dist.all_to_all_single(received, code, group=self.axis.group, async_op=True)

        def add_up() -> None:
            parts = self.codec.decode(received, self.shares.shape[1])
            parts[self.axis.rank] = self.own
            torch.sum(parts, 0, out=self.own)

        return Handle([work], self.own, code, received, kind=Collective.ALL_TO_ALL, axis=self.axis, finish=add_up)

    def share(self) -> Handle:
        """Begin with the second half, after the first: what is waited for are the codes of all shares."""
        assert self.sums is not None
        return start_gather_straight(self.sums.encode(self.own)[None], self.axis)

    def read(self, codes: Tensor) -> Tensor:
        """The sum, from the codes of all shares."""
        self.shares.copy_(self.codec.decode(codes, self.shares.shape[1]))
        return self.shares.view(-1)
