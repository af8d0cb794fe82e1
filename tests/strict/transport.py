"""A process group with NCCL's rules for ranks that are threads: it moves real numbers, and writes down who did what.

Numbers travel as late as the rules allow: a result lies in its buffer once somebody has waited for it, and NaN lies
there until then. While an operation is under way its buffers belong to it. `Watch`, which sees every kernel of a rank,
refuses one that reads what has not arrived, or overwrites what has not been sent.

Tags are ignored. Objects do not travel here: NCCL knows tensors of the device only, so host objects need gloo.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Work

from heddle.runtime.tiers import tier_of
from tests.strict.program import Communicator, Launch, Operation, Synchronize, Wait
from tests.strict.recording import Pending, Recording, check_memory, span_of
from tests.strict.replay import StrictError, check_match


class Stalled(BaseException):
    """All ranks wait for each other: they end, and the replay of what they did so far tells why."""


class Delivery:
    """What an operation brings: tensors and where they go."""

    def __init__(self, operation: Operation, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self.operation = operation
        self.inputs = [x.detach().clone() for x in inputs]
        self.outputs = [x.detach() for x in outputs]
        self.brought: list[Tensor] | None = None  # once all parts have come

    def deliver(self) -> None:
        assert self.brought is not None
        for target, values in zip(self.outputs, self.brought, strict=True):
            target.copy_(values.view_as(target))


class Turn:
    """Ranks compute one at a time, each until it has to wait: threads that swap after every kernel mostly swap.

    It is no more than a courtesy. Whoever has waited for long goes ahead: who has the turn may be waiting on the host.
    """

    PATIENCE = 0.25  # seconds

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holder: int | None = None

    def take(self, rank: int) -> None:
        if self.lock.acquire(timeout=self.PATIENCE):
            self.holder = rank

    def give(self, rank: int) -> None:
        if self.holder == rank:
            self.holder = None
            self.lock.release()


class Exchange:
    """The memory that all ranks of a run share."""

    def __init__(self, size: int) -> None:
        self.turn = Turn()
        self.recordings = [Recording(rank) for rank in range(size)]
        self.communicators: dict[str, Communicator] = {}
        self.changed = threading.RLock()
        self.woken = [threading.Condition(self.changed) for _ in range(size)]  # one for each rank
        self.parts: dict[Any, list[Delivery]] = defaultdict(list)
        self.counts: dict[Any, int] = defaultdict(int)
        self.blocked: dict[int, Callable[[], bool]] = {}  # what the ranks that wait are waiting for
        self.living = size
        self.stalled = False

    def communicator(self, key: str, name: str, ranks: tuple[int, ...]) -> Communicator:
        with self.changed:
            return self.communicators.setdefault(key, Communicator(name, ranks))

    def launch(
        self,
        operation: Operation,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        result: Callable[[list[Delivery], int], list[Tensor]],
    ) -> StrictWork:
        """Begin an operation; `result` gives what it brings to the rank of that number, given all parts by rank."""
        recording = self.recordings[operation.rank]
        with recording.silence():
            for x in (*inputs, *outputs):
                if not x.is_contiguous():
                    raise StrictError(f"rank {operation.rank}: {operation} of a tensor that is not contiguous")
                if tier_of(x) is not None:
                    raise StrictError(f"rank {operation.rank}: {operation} of memory that is not the device's")
            for x in inputs:
                check_memory(recording, span_of(x), False, operation)
            for x in outputs:
                check_memory(recording, span_of(x), True, operation)
            delivery = Delivery(operation, inputs, outputs)
            for x in delivery.outputs:
                x.fill_(torch.nan if x.is_floating_point() else torch.iinfo(x.dtype).max)
            recording.program.append(Launch(operation))
            recording.pending += [Pending(span_of(x), False, operation) for x in inputs if x.numel()]
            recording.pending += [Pending(span_of(x), True, operation) for x in outputs if x.numel()]
            recording.undelivered[operation.communicator].append(delivery)
            with self.changed:
                self._add(delivery, result)
        return StrictWork(self, delivery)

    def _add(self, delivery: Delivery, result: Callable[[list[Delivery], int], list[Tensor]]) -> None:
        operation = delivery.operation
        end = (operation.channel, operation.rank, operation.kind if operation.message else "")
        parts = self.parts[operation.channel, self.counts[end]]
        self.counts[end] += 1
        check_match([part.operation for part in parts], operation)
        parts.append(delivery)
        if len(parts) == len(operation.members):
            parts.sort(key=lambda part: operation.members.index(part.operation.rank))
            for number, part in enumerate(parts):
                part.brought = result(parts, number)
                self.woken[part.operation.rank].notify()

    def wait(self, delivery: Delivery) -> None:
        """Let compute wait for an operation, and with it for all that came before it on its stream."""
        operation = delivery.operation
        recording = self.recordings[operation.rank]
        recording.program.append(Wait(operation))
        stream = recording.undelivered[operation.communicator]
        if delivery not in stream:
            return
        before = stream[: stream.index(delivery) + 1]
        self.block(operation.rank, lambda: all(each.brought is not None for each in before))
        with recording.silence():
            for each in before:
                each.deliver()
        del stream[: len(before)]
        done = {each.operation for each in before}
        recording.pending = [pending for pending in recording.pending if pending.operation not in done]

    def block(self, rank: int, arrived: Callable[[], bool]) -> None:
        with self.changed:
            if arrived():
                return
            self.turn.give(rank)
            self.blocked[rank] = arrived
            self._look()
            self.woken[rank].wait_for(lambda: self.stalled or arrived())
            del self.blocked[rank]
            if not arrived():
                raise Stalled
        self.turn.take(rank)

    def end(self, rank: int, well: bool) -> None:
        """A rank is through; the others do not wait for one that failed."""
        with self.changed:
            self.turn.give(rank)
            self.living -= 1
            if not well:
                self._stall()
            self._look()

    def _look(self) -> None:
        if self.living and len(self.blocked) == self.living and not any(arrived() for arrived in self.blocked.values()):
            self._stall()

    def _stall(self) -> None:
        self.stalled = True
        for woken in self.woken:
            woken.notify()


class StrictWork(Work):
    """A handle as torch gives them."""

    def __init__(self, exchange: Exchange, delivery: Delivery) -> None:
        super().__init__()
        self.exchange, self.delivery = exchange, delivery

    def wait(self, timeout: timedelta | None = None) -> bool:
        self.exchange.wait(self.delivery)
        return True


class StrictGroup(dist.ProcessGroup):
    """One rank's end of a communicator."""

    def __init__(self, exchange: Exchange, key: str, name: str, ranks: tuple[int, ...], rank: int) -> None:
        super().__init__(ranks.index(rank), len(ranks))  # type: ignore[call-arg]
        self.exchange, self.world_rank, self.key = exchange, rank, key
        self.options: Any = None  # what NCCL would be asked for
        self.communicator = exchange.communicator(key, name, ranks)

    def size(self) -> int:
        return len(self.communicator.ranks)

    @property
    def group_name(self) -> str:
        return self.key

    def getBackendName(self) -> str:
        return "strict"

    def _launch(
        self,
        kind: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        result: Callable[[list[Delivery], int], list[Tensor]],
        **more: Any,
    ) -> StrictWork:
        first = (*inputs, *outputs)[0]
        size = max(x.numel() for x in (*inputs, *outputs))
        operation = Operation(self.world_rank, self.communicator, kind, first.dtype, size, **more)
        return self.exchange.launch(operation, inputs, outputs, result)

    def _objects(self, *_: Any, **__: Any) -> None:
        raise StrictError(
            f"rank {self.world_rank}: host objects on {self.communicator}; NCCL exchanges tensors of the device, "
            "so objects need a group over gloo"
        )

    allgather = gather = scatter = _objects

    def allreduce(self, tensors: list[Tensor], opts: Any) -> StrictWork:
        reduce = _reduction(opts.reduceOp)
        detail = str(opts.reduceOp.op).rpartition(".")[2].lower()
        return self._launch(
            "all-reduce", tensors, tensors, lambda parts, _: [reduce([part.inputs[0] for part in parts])], detail=detail
        )

    def broadcast(self, tensors: list[Tensor], opts: Any) -> StrictWork:
        root = opts.rootRank
        inputs = tensors if root == self.rank() else []
        return self._launch(
            "broadcast", inputs, tensors, lambda parts, _: [parts[root].inputs[0]], detail=f"from {root}"
        )

    def all_gather_single(self, output: Tensor, x: Tensor, opts: Any = None) -> StrictWork:
        return self._launch(
            "all-gather", [x], [output], lambda parts, _: [torch.cat([p.inputs[0].flatten() for p in parts])]
        )

    def reduce_scatter_single(self, output: Tensor, x: Tensor, opts: Any) -> StrictWork:
        reduce = _reduction(opts.reduceOp)
        size, count = self.size(), output.numel()

        def share(parts: list[Delivery], number: int) -> list[Tensor]:
            return [reduce([part.inputs[0].flatten().chunk(size)[number] for part in parts])]

        assert x.numel() == size * count
        return self._launch("reduce-scatter", [x], [output], share)

    def all_to_all_single(self, output: Tensor, x: Tensor, out_sizes: Any, in_sizes: Any, opts: Any) -> StrictWork:
        """As torch's over NCCL: without sizes one collective, with sizes messages between every two; never both."""
        assert bool(out_sizes) == bool(in_sizes)
        size = self.size()
        sends, receives = (
            tuple(n * whole.shape[1:].numel() for n in sizes or [len(whole) // size] * size)
            for whole, sizes in ((x, in_sizes), (output, out_sizes))
        )
        assert (sum(sends), sum(receives)) == (x.numel(), output.numel())

        def mine(parts: list[Delivery], number: int) -> list[Tensor]:
            return [torch.cat([p.inputs[0].flatten().split(p.operation.sends)[number] for p in parts])]

        detail = "sizes given" if in_sizes else "equal sizes"
        return self._launch("all-to-all", [x], [output], mine, detail=detail, sends=sends, receives=receives)

    def barrier(self, opts: Any = None) -> StrictWork:
        """As NCCL's: a sum of one number, for which the host waits."""
        work = self.allreduce([torch.zeros(1)], dist.AllreduceOptions())
        work.wait()
        self.exchange.recordings[self.world_rank].program.append(Synchronize("meets the others at a barrier"))
        return work

    def send(self, tensors: list[Tensor], peer: int, tag: int = 0) -> StrictWork:
        peer = self.communicator.ranks[peer]
        return self._launch("send", tensors, [], _received, peer=peer)

    def recv(self, tensors: list[Tensor], peer: int, tag: int = 0) -> StrictWork:
        peer = self.communicator.ranks[peer]
        return self._launch("receive", [], tensors, _received, peer=peer)


def _received(parts: list[Delivery], number: int) -> list[Tensor]:
    return parts[1 - number].inputs if parts[number].outputs else []


def _reduction(operation: Any) -> Callable[[list[Tensor]], Tensor]:
    def reduce(parts: list[Tensor]) -> Tensor:
        stacked = torch.stack(parts)
        if operation == dist.ReduceOp.SUM:
            return stacked.sum(0, dtype=stacked.dtype)
        assert operation == dist.ReduceOp.MAX, operation
        return stacked.amax(0)

    return reduce
