"""A sum over replicas in fewer bits, in two halves, each with error feedback (1-bit Adam, arXiv 2102.02888 §4).

Each replica owns an equal share of the numbers. First everybody sends every owner its part of that share, in the code
of the link between the two, and the owner adds up. Then, unless the owner alone needs it, the sum is sent to everybody,
in the code of the narrowest link. All replicas decode the same bytes, the owner too, so that all have the same numbers
to the bit.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from heddle.parallel.codecs import CODECS, Feedback, LinkFeedback
from heddle.parallel.collectives import Handle, all_reduce, start_gather_straight
from heddle.parallel.mesh import Axis, Mesh
from heddle.spec.network.link_codes import AxisCodes, alike, axis_codes
from heddle.spec.plan import Plan
from heddle.spec.ranks import coordinates, rank_of
from heddle.trace.lanes import Collective


class CompressedSum:
    """Sums one flat buffer over an axis, again and again; keeps what codes could not say until the next time."""

    def __init__(self, numbers: Tensor, axis: Axis, codes: AxisCodes, shared: bool) -> None:
        """`numbers` come in equal shares of the axis; `shared`: everybody gets the sum, not only each share's owner."""
        self.shares, self.axis, self.codec = numbers.view(axis.size, -1), axis, CODECS[codes.told]
        self.own = self.shares[axis.rank]
        self.parts = LinkFeedback(codes.to, self.shares)
        self.sums = Feedback(self.codec, self.own) if shared else None
        self.ledger: Ledger | None = None

    def start(self) -> Handle:
        """Begin with the first half: what is waited for is this replica's share of the sum."""
        if self.ledger is not None:
            self.ledger.means(self.shares, self.parts)
        code = self.parts.encode(self.shares)
        self.parts.residual[self.axis.rank].zero_()  # nobody sends to itself: its own part stays as it is
        received = torch.empty_like(code)
        # A link has the same code both ways. NCCL has one operation for equal sizes and another for those that are
        # told, and all replicas have to call the same one: they tell them even where their own are equal.
        sizes = self.parts.sizes
        work = dist.all_to_all_single(received, code, sizes, sizes, group=self.axis.group, async_op=True)

        def add_up() -> None:
            parts = self.parts.decode(received)
            parts[self.axis.rank] = self.own
            torch.sum(parts, 0, out=self.own)
            if self.ledger is not None and self.sums is None:
                self.ledger.told[self.axis.rank] += self.own

        return Handle([work], self.own, code, received, kind=Collective.ALL_TO_ALL, axis=self.axis, finish=add_up)

    def share(self) -> Handle:
        """Begin with the second half, after the first: what is waited for are the codes of all shares."""
        assert self.sums is not None
        if self.ledger is not None:
            self.ledger.told_quantum = self.codec.quantum(self.sums.residual + self.own)
        return start_gather_straight(self.sums.encode(self.own)[None], self.axis)

    def read(self, codes: Tensor) -> Tensor:
        """The sum, from the codes of all shares."""
        self.shares.copy_(self.codec.decode(codes, self.shares.shape[1]))
        if self.ledger is not None:
            self.ledger.told += self.shares
        return self.shares.view(-1)


class Ledger:
    """Keeps count for a proof: what a replica has meant so far, what it was told of all, and the last quanta."""

    def __init__(self, shares: Tensor) -> None:
        self.meant, self.told, self.rounding, self.quanta = (
            torch.zeros_like(shares, dtype=torch.float64) for _ in range(4)
        )
        self.told_quantum = torch.zeros_like(shares[0], dtype=torch.float64)

    def means(self, shares: Tensor, parts: LinkFeedback) -> None:
        """These are about to be sent."""
        self.meant += shares
        self.rounding += torch.finfo(torch.float32).eps * shares.double().abs()  # of sums in fp32 themselves
        self.quanta = parts.quanta(shares)

    def compared(self, axis: Axis, owned: bool) -> tuple[Tensor, Tensor]:
        """How far what was told is from what all have meant, and what one quantum is: of all that send, and tell.

        `owned`: a replica is only told its own share.
        """
        self.quanta[axis.rank].zero_()  # nobody sends to itself
        quantum = self.quanta + self.rounding
        quantum[axis.rank] += self.told_quantum
        for numbers in (self.meant, quantum):
            all_reduce(numbers, axis)
        mine = slice(axis.rank, axis.rank + 1) if owned else slice(None)
        least = torch.finfo(torch.float32).tiny
        return (self.told - self.meant).abs()[mine], quantum.clamp_min(least)[mine]


class GradientCodes(NamedTuple):
    """How a rank sends sums: of most parameters, and of those that both ends of a pipeline hold; None: exactly."""

    usual: AxisCodes | None
    tied: AxisCodes | None


EXACT = GradientCodes(None, None)


def gradient_codes(plan: Plan, replicas: Axis, mesh: Mesh) -> GradientCodes:
    """Of this rank's place among replicas.

    Two copies of a tied embedding stay alike only if both are summed in the same codes, whatever links these cross.
    """
    ranks, own = replicas.ranks, axis_codes(plan, mesh.places, replicas.ranks, replicas.rank)
    if mesh.ends.size == 1 or not mesh.places:
        return GradientCodes(own, own)
    stages = [
        [rank_of(plan, coordinates(plan, rank)._replace(pipeline=stage)) for rank in ranks]
        for stage in (0, plan.last_rank)
    ]
    return GradientCodes(own, alike([axis_codes(plan, mesh.places, each, 0) for each in stages], len(ranks)))
