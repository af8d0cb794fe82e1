"""Runs work on all ranks of a plan, each a thread, over the strict transport; then replays what they did."""

from __future__ import annotations

import gc
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.multi_threaded_pg import ThreadLocalWorld, WorldData

import heddle.parallel.mesh
from heddle.parallel.mesh import Mesh, build_mesh
from heddle.runtime.cuda import STREAMS
from heddle.spec import Job, Plan
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.choose import make_trainer
from heddle.training.step.in_flight import StepInFlight
from heddle.training.step.trainer import Trainer
from tests.helpers.gloo import sharing
from tests.strict.program import Event, Synchronize
from tests.strict.replay import Replay, StrictError
from tests.strict.transport import Exchange, Stalled, StrictGroup
from tests.strict.watch import Watch

OFTEN = 8  # runs, after which garbage is looked for: that takes half as long as one of them
RUNS = itertools.count(1)
PATIENCE = 60  # seconds; only gloo can hang here, and nothing takes as long


@dataclass(frozen=True)
class Run:
    """What came out."""

    results: list[Any]  # of each rank
    programs: Mapping[int, Sequence[Event]]

    def replay(self, queues: int = 32, lazy_loading: bool = True) -> None:
        """Run the programs on devices; a StrictError tells what waits for ever."""
        Replay(self.programs, queues, lazy_loading).run()


def strict_run(job: Job, steps: int = 2, evaluate: bool = True, reads: int | None = None) -> Run:
    """Take steps of a job, evaluate, and replay it all on devices with many queues and with as few as Heddle allows.

    Its host may wait for its device as often per step as it has to read something, which is once, and for nothing else;
    where ranks share experts, also for every exchange of tokens, whose sizes the device knows.
    """
    run = record(job, steps, evaluate)
    run.replay()
    assert job.plan is not None
    run.replay(queues=1 if job.plan.pipeline == 1 else STREAMS)  # as few as Heddle allows
    reads = 1 + most_exchanges(job) if reads is None else reads
    for rank, program in run.programs.items():
        waits = [event for event in program if isinstance(event, Synchronize)]
        if len(waits) > reads * (steps + evaluate):  # a step is read when it is done, and so is an evaluation
            raise StrictError(
                f"rank {rank}: its host waits for its device {len(waits)} times in {steps} steps: {waits}"
            )
    return run


def most_exchanges(job: Job) -> int:
    """How often a rank tells others how many tokens will come to their experts: in every forward, repeated or not."""
    plan = job.planned.plan
    if plan.expert == 1:
        return 0
    layers = [layer for layer in range(job.model.layers) if job.model.layer(layer).experts]
    each = [1 + (plan.recompute_of(layer) in ("elementwise", "full")) for layer in layers]
    return plan.microbatches(job.train.global_batch) * sum(each)


def record(job: Job, steps: int = 2, evaluate: bool = True) -> Run:
    """Take steps of a job, and evaluate; nothing is replayed yet."""

    def work(mesh: Mesh) -> list[float]:
        tokens = synthetic_tokens(job)
        trainer = make_trainer(job, tokens, mesh)
        losses, handed = [], deque[StepInFlight]()
        for number in range(steps):  # as the training loop does on devices that run ahead of their host
            handed.append(trainer.steps.start_step())
            while len(handed) > (trainer.steps.in_flight if number < steps - 1 else 0):
                losses.append(handed.popleft().read().loss)
        return [*losses, trainer.evaluate(tokens)] if evaluate else losses

    assert job.plan is not None
    return strict_ranks(work, job.plan, job.model.tied)


def strict_ranks(work: Callable[[Mesh], Any], plan: Plan, tied: bool = True) -> Run:
    """Let every rank of a plan do `work(mesh)`; gives the results, and the programs to replay."""
    exchange = Exchange(plan.world)
    store = dist.HashStore()
    results: list[Any] = [None] * plan.world
    errors: list[BaseException | None] = [None] * plan.world

    def live(rank: int) -> None:
        threading.current_thread().strict_rank = rank  # type: ignore[attr-defined]
        try:
            dist.init_process_group(
                "strict", store=store, rank=rank, world_size=plan.world, timeout=timedelta(seconds=PATIENCE)
            )
            with Watch(exchange, rank):
                mesh = build_mesh(plan, rank, plan.world, tied)
                assert mesh is not None
                results[rank] = work(mesh)
        except BaseException as error:
            errors[rank] = error
        finally:
            exchange.end(rank, well=errors[rank] is None)

    with _ranks_are_threads(exchange):
        threads = [threading.Thread(target=live, args=(rank,), daemon=True) for rank in range(plan.world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            if thread.is_alive():
                raise TimeoutError("a rank is not done")
    programs = {recording.rank: recording.program for recording in exchange.recordings}
    failed = [error for error in errors if error is not None and not isinstance(error, Stalled)]
    if failed:
        raise failed[0]
    if exchange.stalled:
        Replay(programs).run()
        raise StrictError("all ranks wait for each other, and the replay does not see why")
    return Run(results, programs)


NCCL = SimpleNamespace(Options=lambda: SimpleNamespace(config=SimpleNamespace(max_ctas=None)))


def _rank() -> int:
    return threading.current_thread().strict_rank  # type: ignore[attr-defined]


class _RankWorld(ThreadLocalWorld):
    """Torch's own bookkeeping of groups, once for each rank; threads belong to the rank that started them."""

    def __init__(self) -> None:
        self.worlds: dict[int, WorldData] = {}

    def _get_world(self) -> WorldData:
        return self.worlds.setdefault(_rank(), WorldData(None, {}, {}, {}, {}, 0, {}, {}, {}, []))

    def end(self) -> None:
        """Let go of all groups at once: each of gloo's sleeps for a while until its threads have ended."""
        ending = [threading.Thread(target=self.worlds.pop, args=(rank,)) for rank in list(self.worlds)]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()


@contextmanager
def _ranks_are_threads(exchange: Exchange) -> Iterator[None]:
    def create(options: Any, _: Any) -> StrictGroup:
        ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
        return StrictGroup(exchange, options.group_id, "world", ranks, _rank())

    def split(
        split_ranks: list[list[int]], group_desc: str, timeout: timedelta | None = None, pg_options: Any = None
    ) -> StrictGroup:
        """As `dist.split_group`: every process of the world calls it, with the same groups."""
        rank = _rank()
        recording = exchange.recordings[rank]
        recording.meet(tuple(range(len(exchange.recordings))), f"split of the world into {split_ranks}")
        mine = next(ranks for ranks in split_ranks if rank in ranks)
        key = f"{group_desc}, split {len(recording.meetings)}: {mine}"
        group = StrictGroup(exchange, key, group_desc, tuple(mine), rank)
        group.options = pg_options
        numbers = {member: number for number, member in enumerate(mine)}
        dist.distributed_c10d._register_pg_in_world(group, "strict", None, key, "cpu:strict", rank_mapping=numbers)
        return group

    begin, tolist = threading.Thread.__init__, torch.Tensor.tolist

    def begin_thread(self: threading.Thread, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self.strict_rank = getattr(threading.current_thread(), "strict_rank", None)  # type: ignore[attr-defined]

    def read(x: torch.Tensor) -> Any:
        if (rank := getattr(threading.current_thread(), "strict_rank", None)) is not None:
            exchange.recordings[rank].program.append(Synchronize("reads numbers"))
        return tolist(x)

    def indexed(access: Callable[..., Any]) -> Callable[..., Any]:
        """Numbers of the host that say which elements are meant are copied to the device, and the host waits."""

        def access_by(x: torch.Tensor, index: Any, *values: torch.Tensor) -> Any:
            listed = any(isinstance(part, list) for part in (index if isinstance(index, tuple) else (index,)))
            if listed and (rank := getattr(threading.current_thread(), "strict_rank", None)) is not None:
                exchange.recordings[rank].program.append(Synchronize(f"copies the list {index} to the device"))
            return access(x, index, *values)

        return access_by

    if "STRICT" not in dist.Backend._plugins:
        dist.Backend.register_backend("strict", lambda *_: None, extended_api=True, devices=["cpu"])
    plugin = dist.Backend._plugins["STRICT"]._replace(creator_fn=create)
    world = _RankWorld()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)  # type: ignore[attr-defined]
    try:
        with (
            patch.dict(dist.Backend._plugins, STRICT=plugin),
            patch.object(dist.distributed_c10d, "_world", world),
            patch.object(heddle.parallel.mesh, "_device", lambda: torch.device("cpu")),  # bound, as a GPU would be
            patch.object(dist.distributed_c10d, "ProcessGroupGloo", sharing()),
            patch.object(dist, "split_group", split),
            patch.object(dist, "ProcessGroupNCCL", NCCL, create=True),
            patch.object(Trainer, "in_flight", property(lambda self: 1)),  # as on a device that runs ahead
            patch.object(threading.Thread, "__init__", begin_thread),
            patch.object(torch.Tensor, "tolist", read),
            patch.object(torch.Tensor, "__getitem__", indexed(torch.Tensor.__getitem__)),
            patch.object(torch.Tensor, "__setitem__", indexed(torch.Tensor.__setitem__)),
        ):
            yield
    finally:
        torch._C._distributed_c10d._set_thread_isolation_mode(False)  # type: ignore[attr-defined]
        world.end()
        if next(RUNS) % OFTEN == 0:  # trainers refer to themselves, and keep groups with their threads and sockets
            gc.collect()
