"""What the ranks of a run did, as a GPU would see it: the program that each host wrote, operation by operation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(eq=False)
class Communicator:
    """Some ranks that exchange in one order. Each has one stream for it, on which operations run one by one."""

    name: str
    ranks: tuple[int, ...]
    operations: dict[int, list[Operation]] = field(default_factory=dict)  # of each rank, in its order

    def __str__(self) -> str:
        return f"{self.name} {list(self.ranks)}"


@dataclass(eq=False)
class Operation:
    """One rank's part of a collective, or one end of a message."""

    rank: int
    communicator: Communicator
    kind: str
    dtype: Any
    size: int  # elements
    detail: str = ""  # what else must be the same on all ranks: which sum, whose broadcast
    peer: int | None = None  # of a message
    sends: tuple[int, ...] = ()  # elements to each member, of an all-to-all
    receives: tuple[int, ...] = ()

    @property
    def message(self) -> bool:
        """Whether this is one end of a message, not a part of a collective."""
        return self.peer is not None

    @property
    def channel(self) -> tuple[Any, ...]:
        """Operations of one channel match first in, first out, whatever their tags."""
        if self.peer is None:
            return (self.communicator,)
        ends = (self.rank, self.peer) if self.kind == "send" else (self.peer, self.rank)
        return self.communicator, *ends

    @property
    def connection(self) -> tuple[Any, ...]:
        """What is connected when it is first used, while the hosts of all members wait for each other."""
        return self.channel if self.message else (self.communicator, self.kind)

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks that it takes."""
        return self.communicator.ranks if self.peer is None else tuple(sorted((self.rank, self.peer)))

    @property
    def shape(self) -> tuple[str, Any, int, str]:
        """What must be the same on all ranks; of an all-to-all each two have a size of their own."""
        return "message" if self.message else self.kind, self.dtype, 0 if self.sends else self.size, self.detail

    def meets(self, other: Operation) -> bool:
        """Whether another rank's part is of the same operation."""
        if self.shape != other.shape:
            return False
        here, there = (self.communicator.ranks.index(rank) for rank in (self.rank, other.rank))
        ways = ((self.sends, there, other.receives, here), (self.receives, there, other.sends, here))
        return not self.sends or all(some[i] == others[j] for some, i, others, j in ways)

    def __str__(self) -> str:
        there = "" if self.peer is None else f" {'to' if self.kind == 'send' else 'from'} rank {self.peer}"
        dtype = str(self.dtype).removeprefix("torch.")
        size = f"sends {list(self.sends)}, receives {list(self.receives)}" if self.sends else self.size
        return f"{self.kind}{there} ({size} × {dtype}{self.detail and ', ' + self.detail}) on {self.communicator}"


class Launch(NamedTuple):
    """The host puts an operation into its communicator's stream, behind all that is in the compute stream by now."""

    operation: Operation


class Wait(NamedTuple):
    """The compute stream waits for an operation; the host goes on."""

    operation: Operation


class Synchronize(NamedTuple):
    """The host waits for the compute stream: it reads a number."""

    why: str


class Load(NamedTuple):
    """A kernel runs for the first time. CUDA loads it then, and may wait for all that runs on the device."""

    kernel: str


class Meet(NamedTuple):
    """The hosts of some ranks wait for each other, without the device."""

    ranks: tuple[int, ...]
    what: str
    number: int  # of those of the same ranks and of the same kind


Event = Launch | Wait | Synchronize | Load | Meet
