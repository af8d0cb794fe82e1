"""Processes that stay for all tests that need some: starting them takes longer than most of what is asked of them."""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.helpers.gloo import sharing

SIZE = 8
MANY = 24  # meshes of other degrees, after which the processes are let go: each has connections of its own
PATIENCE = 120  # seconds that a task may take


class World:
    """Eight processes over gloo. A task is a function of a mesh; ranks beyond its plan do nothing.

    Tasks and answers travel as bytes: torch would send each tensor as a file of shared memory, open in both processes
    for as long as anybody has the tensor, and a suite that keeps its references would run out of descriptors.
    """

    def __init__(self) -> None:
        self.processes: list[Any] = []
        self.pipes: list[Connection] = []
        self.made: set[tuple[object, ...]] = set()  # the degrees of all that was asked of these processes

    def run(self, work: Callable[..., Any], plan: Any, *arguments: Any) -> list[Any]:
        """What `work(mesh, *arguments)` gives on each rank of the plan's mesh."""
        if not self.processes:
            self._start()
        self.made.add(_degrees(plan))
        task = pickle.dumps((work, plan, arguments))
        for pipe in self.pipes:
            pipe.send_bytes(task)
        results: dict[int, Any] = {}
        end = time.monotonic() + PATIENCE
        while len(results) < SIZE:
            ready = wait([pipe for rank, pipe in enumerate(self.pipes) if rank not in results], end - time.monotonic())
            if not ready:
                self.close()
                raise TimeoutError(f"ranks {sorted(set(range(SIZE)) - set(results))} are not done")
            for pipe in ready:
                rank = self.pipes.index(pipe)  # type: ignore[arg-type]
                try:
                    well, results[rank] = pickle.loads(pipe.recv_bytes())  # type: ignore[union-attr]
                except EOFError:
                    well, results[rank] = False, "it ended without a word"
                if not well:
                    self.close()  # the others may wait for it forever; the next task starts anew
                    raise AssertionError(f"rank {rank}: {results[rank]}")
        return [results[rank] for rank in range(plan.world)]

    def close(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.kill()
            process.join()
        for pipe in self.pipes:
            pipe.close()
        if self.processes:
            self.folder.cleanup()
        self.processes, self.pipes, self.made = [], [], set()

    def _start(self) -> None:
        # A server that has imported everything once, and processes forked from it before anything has run there.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["heddle.training.prove.prove", "heddle.lanes.callable", "torch._dynamo"])
        self.folder = tempfile.TemporaryDirectory()
        for rank in range(SIZE):
            ours, theirs = context.Pipe()
            process = context.Process(target=_live, args=(rank, Path(self.folder.name) / "store", theirs), daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes.append(ours)


SHARED = World()  # by all files that need one, as long as they follow each other


def _degrees(plan: Any) -> tuple[object, ...]:
    """What meshes differ in."""
    from heddle.spec.ranks import degrees, stage_pairs

    inner = plan.context_inner if plan.context_exchange == "2d" else 0
    pairs = tuple(sorted(stage_pairs(plan)))
    return (
        *degrees(plan),
        inner,
        plan.expert,
        plan.whole_experts,
        plan.shards,
        plan.local_steps > 0,
        plan.last_rank,
        pairs,
    )


def _live(rank: int, store: Path, pipe: Connection) -> None:
    import torch
    import torch.distributed as dist

    from heddle.parallel.mesh import build_mesh

    torch.set_num_threads(1)
    dist.distributed_c10d.ProcessGroupGloo = sharing()  # type: ignore[misc]
    limit = timedelta(seconds=PATIENCE)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=SIZE, timeout=limit)
    meshes: dict[tuple[object, ...], Any] = {}  # groups take long to make, and equal degrees can share them
    while True:
        work, plan, arguments = pickle.loads(pipe.recv_bytes())
        degrees = _degrees(plan)
        try:
            if degrees not in meshes:
                meshes[degrees] = build_mesh(plan, rank, SIZE)
            mesh = meshes[degrees]
            answer = pickle.dumps((True, None if mesh is None else work(mesh, *arguments)))
        except BaseException:
            answer = pickle.dumps((False, traceback.format_exc()))
        pipe.send_bytes(answer)
