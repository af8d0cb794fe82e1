"""Runs recorded programs on machines that follow the rules of CUDA and NCCL, and names what waits for whom for ever.

Of each rank there is a host, which goes through its program; a compute stream; and a stream for each communicator.

* The first use of a communicator for a kind of collective, or of a pair of its ranks for a message, holds the host
  until the hosts of all members have come to theirs (NCCL connects lazily, even where it was created eagerly).
* An operation runs when those before it in its stream are done, and so is what the compute stream had been given when
  it was launched. It is done when all its members run it: no message is buffered.
* `wait` holds the compute stream, never the host. Reading a number holds the host until the compute stream is idle.
* A kernel's first use holds the host until the whole device is idle (CUDA_MODULE_LOADING=LAZY, which is the default).
* Streams take turns in using the device's hardware queues (CUDA_DEVICE_MAX_CONNECTIONS). What is launched first into a
  queue has to start first, in whichever stream: what cannot start yet holds up all that is behind it in its queue.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.strict.program import Communicator, Event, Launch, Load, Meet, Operation, Synchronize, Wait


class StrictError(AssertionError):
    """What real devices would not forgive."""


class Mark(NamedTuple):
    """In the compute stream: where it was when an operation was launched."""

    operation: Operation


Entry = Wait | Mark | Operation  # of a hardware queue
Node = int | tuple[int, int] | Operation


@dataclass
class _Device:
    """A rank's program, and how far it has come."""

    program: Sequence[Event]
    at: int = 0  # where the host is
    queues: dict[int, deque[Entry]] = field(default_factory=lambda: defaultdict(deque))
    streams: dict[Communicator, deque[Operation]] = field(default_factory=dict)
    queue_of: dict[Communicator, int] = field(default_factory=dict)  # that of the compute stream is 0

    @property
    def compute(self) -> deque[Entry]:
        return self.queues[0]

    @property
    def busy(self) -> bool:
        return any(self.queues.values()) or any(self.streams.values())

    @property
    def event(self) -> Event | None:
        return self.program[self.at] if self.at < len(self.program) else None


class Replay:
    """All ranks' programs under one set of rules."""

    def __init__(self, programs: Mapping[int, Sequence[Event]], queues: int = 32, lazy_loading: bool = True) -> None:
        self.devices = {rank: _Device(program) for rank, program in programs.items()}
        self.queues, self.lazy_loading = queues, lazy_loading
        self.ready: set[Operation] = set()  # the compute stream has come to their launch
        self.running: set[Operation] = set()
        self.done: set[Operation] = set()
        self.arrived: dict[object, set[int]] = defaultdict(set)  # at a connection, or at a meeting
        self.partners = _partners(programs)

    def run(self) -> None:
        """Until all is done; a StrictError if that never happens."""
        active = deque(self.devices)
        waiting = set(active)
        while active:
            rank = active.popleft()
            waiting.discard(rank)
            for other in self._advance(rank):
                if other not in waiting:
                    waiting.add(other)
                    active.append(other)
        stuck = [rank for rank, device in self.devices.items() if device.event is not None or device.busy]
        if stuck:
            raise StrictError(self._explain(stuck))

    def _advance(self, rank: int) -> Iterable[int]:
        """Let a rank do all it can; gives the ranks that may then do more."""
        device, others, moved = self.devices[rank], set(), True
        while moved:
            moved = False
            while (event := device.event) is not None and self._host(rank, device, event, others):
                device.at += 1
                moved = True
            while self._streams(device, others):
                moved = True
        return others - {rank}

    def _host(self, rank: int, device: _Device, event: Event, others: set[int]) -> bool:
        """Whether the host gets past an event."""
        if isinstance(event, Launch):
            operation = event.operation
            if not self._met(rank, operation.connection, operation.members, others):
                return False
            communicator = operation.communicator
            if communicator not in device.streams:
                device.queue_of[communicator] = (1 + len(device.streams)) % self.queues
                device.streams[communicator] = deque()
            device.compute.append(Mark(operation))
            device.queues[device.queue_of[communicator]].append(operation)
            device.streams[communicator].append(operation)
        elif isinstance(event, Wait):
            device.compute.append(event)
        elif isinstance(event, Synchronize):
            return not device.compute
        elif isinstance(event, Load):
            return not self.lazy_loading or not device.busy
        elif isinstance(event, Meet):
            return self._met(rank, event, event.ranks, others)
        return True

    def _met(self, rank: int, key: object, members: Iterable[int], others: set[int]) -> bool:
        arrived = self.arrived[key]
        if rank not in arrived:
            arrived.add(rank)
            if arrived >= set(members):
                others.update(members)
        return arrived >= set(members)

    def _streams(self, device: _Device, others: set[int]) -> bool:
        """Whether any stream moved."""
        moved = False
        for queue in device.queues.values():
            while queue and self._starts(device, queue[0]):
                head = queue.popleft()
                moved = True
                if isinstance(head, Mark):
                    self.ready.add(head.operation)
                elif isinstance(head, Operation):
                    self.running.add(head)
                    self._complete(head, others)
        for stream in device.streams.values():
            while stream and stream[0] in self.done:
                stream.popleft()
                moved = True
        return moved

    def _starts(self, device: _Device, head: Entry) -> bool:
        if isinstance(head, Wait):
            return head.operation in self.done
        return isinstance(head, Mark) or (head in self.ready and device.streams[head.communicator][0] is head)

    def _complete(self, operation: Operation, others: set[int]) -> None:
        """Once all parts of an operation run, it is done."""
        parts = self.partners[operation]
        if len(parts) == len(operation.members) and all(part in self.running for part in parts):
            self.done.update(parts)
            others.update(operation.members)

    # What waits for what, once nothing moves any more. A node is a rank's host (rank), a queue of its device (rank,
    # number), or an operation.

    def _explain(self, stuck: Sequence[int]) -> str:
        hosts = [rank for rank in stuck if self.devices[rank].event is not None]
        node: Node | None = hosts[0] if hosts else next(iter(self._open(stuck[0])))
        path: list[Node] = []
        while node is not None and node not in path:
            path.append(node)
            node = self._waits_for(node)
        cycle = path[path.index(node) :] if node is not None else path
        what = "Deadlock: each waits for the next" if node is not None else "Some wait for what never comes"
        return "\n  ".join([f"{what}:", *map(self._tell, cycle)])

    def _open(self, rank: int) -> list[Node]:
        """What of a device is not done: operations, or else what the compute stream waits for."""
        device = self.devices[rank]
        heads: list[Node] = [stream[0] for stream in device.streams.values() if stream]
        return heads or [(rank, 0)]

    def _waits_for(self, node: Node) -> Node | None:
        if isinstance(node, Operation):
            return self._operation_waits_for(node)
        if isinstance(node, tuple):
            head = self.devices[node[0]].queues[node[1]][0]
            return head.operation if isinstance(head, Wait | Mark) else self._before(head)
        event = self.devices[node].event
        if isinstance(event, Launch):
            return self._absent(event.operation.connection, event.operation.members)
        if isinstance(event, Meet):
            return self._absent(event, event.ranks)
        if isinstance(event, Load):
            return self._open(node)[0]
        return None if event is None else (node, 0)

    def _absent(self, key: object, members: Iterable[int]) -> Node:
        return next(member for member in members if member not in self.arrived[key])

    def _before(self, operation: Operation) -> Node | None:
        """What an operation that does not run yet has to wait for on its own device."""
        device = self.devices[operation.rank]
        stream = device.streams.get(operation.communicator)
        if not stream or operation not in stream:
            return operation.rank  # not launched yet
        if stream[0] is not operation:
            return stream[0]
        number = device.queue_of[operation.communicator]
        return (operation.rank, 0 if device.queues[number][0] is operation else number)

    def _operation_waits_for(self, operation: Operation) -> Node | None:
        if operation not in self.running:
            return self._before(operation)
        parts = {part.rank: part for part in self.partners[operation]}
        missing = (member for member in operation.members if parts.get(member) not in self.running)
        return next((parts.get(member, member) for member in missing), None)

    def _tell(self, node: Node) -> str:
        if isinstance(node, Operation):
            state = "runs" if node in self.running else "waits for its turn"
            return f"rank {node.rank}, stream of {node.communicator.name}: {node} {state}"
        if isinstance(node, tuple):
            rank, number = node
            name = f"queue {number}" if number else "compute stream"
            head = self.devices[rank].queues[number][0]
            if isinstance(head, Operation):
                return f"rank {rank}, {name}: {head} cannot start, and holds up what is behind it"
            return f"rank {rank}, {name}: waits for {head.operation}"
        return f"rank {node}, host: {_doing(self.devices[node].event)}"


def _doing(event: Event | None) -> str:
    if event is None:
        return "is at the end of its program, and never gets there"
    if isinstance(event, Launch):
        return f"{event.operation}: first use, waits until all members connect"
    if isinstance(event, Load):
        return f"loads the kernel {event.kernel}, waits until the device is idle"
    if isinstance(event, Synchronize):
        return f"{event.why}, waits for the compute stream"
    if isinstance(event, Meet):
        return f"{event.what} of {list(event.ranks)}, waits for all of them"
    return "waits"


def _partners(programs: Mapping[int, Sequence[Event]]) -> dict[Operation, list[Operation]]:
    """The parts of each operation: first in, first out on each channel; whatever does not match is a StrictError."""
    counts: dict[tuple[object, ...], int] = defaultdict(int)
    matches: dict[tuple[object, ...], list[Operation]] = defaultdict(list)
    partners: dict[Operation, list[Operation]] = {}
    for program in programs.values():
        for event in program:
            if isinstance(event, Launch):
                operation = event.operation
                end = (operation.channel, operation.rank, operation.kind if operation.message else "")
                parts = matches[operation.channel, counts[end]]
                counts[end] += 1
                check_match(parts, operation)
                parts.append(operation)
                partners[operation] = parts
    return partners


def check_match(parts: Sequence[Operation], operation: Operation) -> None:
    """Refuse an operation that meets another one: kind, dtype and sizes have to fit on all ranks."""
    for part in parts:
        if not part.meets(operation):
            raise StrictError(
                f"Operations that meet are not alike:\n  rank {part.rank}: {part}\n  rank {operation.rank}: {operation}"
            )
