"""Runs recorded programs on machines that follow the rules of CUDA and NCCL, and names what waits for whom for ever.

Of each rank there is a host, which goes through its program; a compute stream; and a stream for each communicator.

* The first use of a communicator for a kind of collective, or of a pair of its ranks for a message, holds the host
  until the hosts of all members have come to theirs (NCCL connects lazily, even where it was created eagerly).
* An operation runs when those before it in its stream are done, and so is what the compute stream had been given when
  it was launched. It is done when all its members run it: no message is buffered.
* `wait` holds the compute stream, never the host. Reading a number holds the host until the compute stream is idle.
* A kernel's first use holds the host until the whole device is idle (CUDA_MODULE_LOADING=LAZY, which is the default).
* With `one_queue` (CUDA_DEVICE_MAX_CONNECTIONS=1) whatever is launched first has to start first, in whichever stream:
  an operation that cannot start yet holds up all that was launched behind it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from strict.program import Event, Launch, Load, Meet, Operation, Synchronize, Wait


class Fault(AssertionError):
    """What real devices would not forgive."""


@dataclass
class _Device:
    """A rank's program, and how far it has come."""

    program: Sequence[Event]
    at: int = 0  # where the host is
    compute: deque[Wait | Operation] = field(default_factory=deque)  # an operation here: the moment of its launch
    queue: deque[Wait | Operation] = field(default_factory=deque)  # the one of `one_queue`
    streams: dict[object, deque[Operation]] = field(default_factory=lambda: defaultdict(deque))

    @property
    def event(self) -> Event | None:
        return self.program[self.at] if self.at < len(self.program) else None


class Replay:
    """All ranks' programs under one set of rules."""

    def __init__(
        self, programs: Mapping[int, Sequence[Event]], one_queue: bool = False, lazy_loading: bool = True
    ) -> None:
        self.devices = {rank: _Device(program) for rank, program in programs.items()}
        self.one_queue, self.lazy_loading = one_queue, lazy_loading
        self.ready: set[Operation] = set()  # the compute stream has come to their launch
        self.running: dict[Operation, None] = {}
        self.done: set[Operation] = set()
        self.arrived: dict[object, set[int]] = defaultdict(set)  # at a connection, or at a meeting
        self.partners = _partners(programs)

    def run(self) -> None:
        """Until all is done; a Fault if that never happens."""
        active = deque(self.devices)
        waiting = set(active)
        while active:
            rank = active.popleft()
            waiting.discard(rank)
            for other in self._advance(rank):
                if other not in waiting:
                    waiting.add(other)
                    active.append(other)
        stuck = [rank for rank, device in self.devices.items() if device.event is not None or self._busy(device)]
        if stuck:
            raise Fault(self._explain(stuck))

    def _busy(self, device: _Device) -> bool:
        return bool(device.compute or device.queue or any(device.streams.values()))

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
            if self.one_queue:
                device.queue.append(operation)
            else:
                device.compute.append(operation)
            device.streams[operation.communicator].append(operation)
        elif isinstance(event, Wait):
            (device.queue if self.one_queue else device.compute).append(event)
        elif isinstance(event, Synchronize):
            return not device.compute and not device.queue
        elif isinstance(event, Load):
            return not self.lazy_loading or not self._busy(device)
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
        lane = device.queue if self.one_queue else device.compute
        while lane and self._passes(device, lane[0]):
            head = lane.popleft()
            if isinstance(head, Operation):
                self.ready.add(head)
            moved = True
        for stream in device.streams.values():
            if stream and stream[0] in self.ready and stream[0] not in self.running:
                self.running[stream[0]] = None
                moved |= self._complete(stream[0], others)
            while stream and stream[0] in self.done:
                stream.popleft()
                moved = True
        return moved

    def _passes(self, device: _Device, head: Wait | Operation) -> bool:
        if isinstance(head, Wait):
            return head.operation in self.done
        return not self.one_queue or device.streams[head.communicator][0] is head

    def _complete(self, operation: Operation, others: set[int]) -> bool:
        """Whether all parts of an operation run now, and so are done."""
        parts = self.partners[operation]
        if len(parts) < len(operation.members) or not all(part in self.running for part in parts):
            return False
        self.done.update(parts)
        others.update(operation.members)
        return True

    # What waits for what, once nothing moves any more. A node is a rank's host ("host", rank), its compute stream
    # ("compute", rank), or an operation.

    def _explain(self, stuck: Sequence[int]) -> str:
        path: list[object] = []
        node: object | None = ("host", stuck[0])
        for start in stuck:  # a host that waits for its own streams leads to them
            if self.devices[start].event is not None:
                node = ("host", start)
                break
        else:
            node = ("compute", stuck[0])
        while node is not None and node not in path:
            path.append(node)
            node = self._waits_for(node)
        cycle = path[path.index(node) :] if node is not None else path
        what = "Deadlock: each waits for the next" if node is not None else "Some wait for what never comes"
        return "\n  ".join([f"{what}:", *map(self._tell, cycle)])

    def _waits_for(self, node: object) -> object | None:
        if isinstance(node, Operation):
            return self._operation_waits_for(node)
        assert isinstance(node, tuple)
        what, rank = node
        device = self.devices[rank]
        if what == "compute":
            lane = device.queue if self.one_queue else device.compute
            if not lane:
                return None
            head = lane[0]
            return head.operation if isinstance(head, Wait) else device.streams[head.communicator][0]
        event = device.event
        if isinstance(event, Launch):
            operation = event.operation
            return self._absent(operation.connection, operation.members)
        if isinstance(event, Meet):
            return self._absent(event, event.ranks)
        if isinstance(event, Load):
            running = next((stream[0] for stream in device.streams.values() if stream), None)
            return running or ("compute", rank)
        return None if event is None else ("compute", rank)

    def _absent(self, key: object, members: Iterable[int]) -> object:
        return next(("host", member) for member in members if member not in self.arrived[key])

    def _operation_waits_for(self, operation: Operation) -> object | None:
        device = self.devices[operation.rank]
        stream = device.streams[operation.communicator]
        if operation not in stream:
            return ("host", operation.rank)  # not launched yet
        if stream[0] is not operation:
            return stream[0]
        if operation not in self.ready:
            return ("compute", operation.rank)
        parts = self.partners[operation]
        for member in operation.members:
            part = next((part for part in parts if part.rank == member), None)
            if part is None:
                return ("host", member)
            if part not in self.running:
                return part
        return None

    def _tell(self, node: object) -> str:
        if isinstance(node, Operation):
            state = "runs" if node in self.running else "waits for its turn"
            return f"rank {node.rank}, stream of {node.communicator.name}: {node} {state}"
        assert isinstance(node, tuple)
        what, rank = node
        device = self.devices[rank]
        if what == "compute":
            lane = device.queue if self.one_queue else device.compute
            name = "the device's one queue" if self.one_queue else "compute stream"
            if not lane:
                return f"rank {rank}, {name}: idle"
            head = lane[0]
            if isinstance(head, Wait):
                return f"rank {rank}, {name}: waits for {head.operation}"
            return f"rank {rank}, {name}: {head} cannot start, and holds up what is behind it"
        return f"rank {rank}, host: {_doing(device.event)}"


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
    """The parts of each operation: first in, first out on each channel; whatever does not match is a Fault."""
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
    """Refuse an operation that meets another one: kind, dtype and size have to be the same on all ranks."""
    for part in parts:
        if part.shape != operation.shape:
            raise Fault(
                "Operations that meet are not alike:"
                f"\n  rank {part.rank}: {part}\n  rank {operation.rank}: {operation}"
            )
