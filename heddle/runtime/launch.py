"""Starting the processes of a plan on this machine, or joining those that another launcher started."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch.distributed as dist
from rich.console import Console

from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh, build_mesh
from heddle.runtime import forkserver
from heddle.runtime.cuda import refuse_few_queues
from heddle.runtime.device import abandon, backend, has_gpus, on_gpu, pick_device
from heddle.runtime.environment import LaunchedRank
from heddle.runtime.error_files import FOLDER as NOTES
from heddle.runtime.error_files import final_error, tell, told
from heddle.runtime.interfaces import bind_to_loopback
from heddle.runtime.meeting import TIMEOUT, SharedError, meet_at_address, meet_in_file
from heddle.runtime.scratch import scratch_folder, scratch_of
from heddle.runtime.stop_request import Requests, answer, ignores_hangup, leave_closed_terminal, outlive_terminal
from heddle.spec.plan import Plan
from heddle.spec.ranks import coordinates, world_in_words

PATIENCE = 2.0  # seconds that a process stays which was not the first to fail, so that the first one is seen
GRACE = 30.0  # seconds in which the others may end by themselves, and finish a checkpoint, before they are killed
STORE, RESULT = "store", "result"  # files of one start: where the processes meet, and what rank 0 gives back


def join(plan: Plan, place: LaunchedRank, file: Path | None = None) -> Mesh:
    """Meet the other processes of this launch, in a file or at its address, and find this one's place in the mesh."""
    if place.world != plan.world:
        raise SharedError(
            f"{place.world} processes started, but the plan needs {world_in_words(plan)}.",
            "Every process takes one position in the mesh.",
            f"Start {plan.world} of them, or change the plan.",
        )
    # a launcher's process number is a device of the network; which rank that device gets is the plan's to say
    rank = plan.devices.index(place.rank) if plan.devices else place.rank
    device = pick_device()  # what is wrong with it is told before anybody waits for anybody
    if place.world > 1:
        gpu = device if on_gpu(device) else None
        if gpu is not None:
            refuse_few_queues(plan)
        store = meet_at_address(place) if file is None else meet_in_file(file, place)
        # With its device known, NCCL connects now, and its groups are split from this one.
        dist.init_process_group(
            backend(gpu is not None),
            store=store,
            rank=rank,
            world_size=place.world,
            timeout=TIMEOUT,
            device_id=gpu,
        )
    mesh = build_mesh(plan, rank, place.world)
    assert mesh is not None
    return mesh


def leave() -> None:
    """Part from the other processes."""
    if dist.is_initialized():
        dist.destroy_process_group()


def part_in_failure(rank: int) -> None:
    """Part from the others because of an error that this process is about to tell, and nobody else is to."""
    if dist.is_initialized():
        _claim(dist.distributed_c10d._get_default_store(), rank)
    abandon()


def _claim(store: Any, rank: int) -> bool:
    """Whether this process is the one to tell what went wrong: the first that claims it, however often it does."""
    return bool(store.compare_set("heddle/failed", "", str(rank)) == str(rank).encode())


def run_joined(plan: Plan, place: LaunchedRank, work: Callable[..., Any], *arguments: Any) -> Any:
    """Do this process's part, `work(mesh, *arguments)`, among those that another launcher started.

    Only one process tells what went wrong. The others wait for the launcher to end them.
    """
    store = None
    try:
        mesh = join(plan, place)
        store = dist.distributed_c10d._get_default_store() if dist.is_initialized() else None
        result = work(mesh, *arguments)
    except Exception as error:
        if _is_first_to_fail(place, error, store):
            raise
        time.sleep(PATIENCE)
        os._exit(2 if isinstance(error, HeddleError) else 1)
    leave()
    return result


def _is_first_to_fail(place: LaunchedRank, error: Exception, store: Any) -> bool:
    if store is None:  # they have not met
        return place.rank == 0 or not isinstance(error, SharedError)
    try:
        return _claim(store, place.rank)
    except RuntimeError:  # whoever kept the store is gone
        return isinstance(error, HeddleError)


def run_processes(plan: Plan, work: Callable[..., Any], *arguments: Any, restarts: int = 0) -> Any:
    """Start the plan's processes on this machine, let each do `work(mesh, *arguments)`, give rank 0's result.

    When one dies, all are started again, up to `restarts` times; what a user has to fix is reported at once. Ctrl-C,
    SIGTERM and a closed terminal are passed on once, as a request to stop after the step; a second one ends everything.
    """
    forkserver.set_environment(plan.world)
    context = multiprocessing.get_context(_start_method())
    with scratch_folder() as folder, _Processes(folder) as processes:
        try:
            for restart in count():
                processes.start(context, plan, restart, work, arguments)
                failed = processes.first_to_fail()
                if failed is None:
                    return pickle.loads((processes.folder / RESULT).read_bytes())  # noqa: S301 (only we can write it)
                processes.end()
                if processes.asked:
                    raise KeyboardInterrupt
                if (final := final_error(processes.folder)) is not None:
                    raise final
                if restart == restarts:
                    raise _told(plan, processes.folder, failed, processes.exit_code(failed))
        finally:
            Console().show_cursor()  # which rank 0 hides while it shows a live line, and cannot restore if killed


def _start_method() -> str:
    """Fork from the server; spawn where there are GPUs, which do not survive a fork."""
    return "forkserver" if not has_gpus() and forkserver.start() else "spawn"


class _Processes(Requests):
    """The processes of one start after the other; passes a first request to stop on to them, and kills by a second.

    None of them is left once this is no longer entered.
    """

    def __init__(self, scratch: Path) -> None:
        super().__init__()
        self.scratch = self.folder = scratch
        self.processes: list[BaseProcess] = []
        self.leash: Connection | None = None
        self.starting = False

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        self.end()
        self.restore()

    def first(self) -> None:
        """One is enough: at the end of each step they ask each other."""
        if not self.processes and not self.starting:
            raise KeyboardInterrupt
        if self.starting:
            forkserver.stop()  # which may be what we wait for
        else:
            self.processes[0].terminate()
            answer()

    def second(self, _number: int) -> None:
        """At once, then."""
        for process in self.processes:
            process.kill()
        if not self.starting:
            raise KeyboardInterrupt

    def start(self, context: Any, plan: Plan, restart: int, work: Callable[..., Any], arguments: Any) -> None:
        """Start all processes, each with a leash that ends it when this process lets go, or dies."""
        self.folder = self.scratch / f"start-{restart}"
        self.folder.mkdir()
        held, self.leash = context.Pipe(duplex=False)
        self.processes = []
        # A process that is given only half of what to do says so with a traceback.
        self.starting = True
        for rank in range(plan.world):
            place, deaf = LaunchedRank(rank, plan.world), ignores_hangup()
            process = context.Process(
                target=_worker, args=(held, deaf, plan, place, restart, self.folder, work, arguments)
            )
            try:
                process.start()
            except (EOFError, OSError):  # the server was stopped
                if not self.asked:
                    raise
                break
            self.processes.append(process)
        held.close()
        self.starting = False
        if self.asked:
            raise KeyboardInterrupt

    def first_to_fail(self) -> int | None:
        """Wait until all have ended well, or one has not: its rank, before that of any that failed because of it."""
        running = {process.sentinel: rank for rank, process in enumerate(self.processes)}
        while running:
            ready = wait(list(running))
            ended = [running.pop(sentinel) for sentinel in list(running) if sentinel in ready]
            if failed := [rank for rank in ended if self.exit_code(rank)]:
                return min(failed, key=self.exit_code)  # negative: killed by a signal, and not by another's death
        return None

    def exit_code(self, rank: int) -> int:
        """How an ended process did; negative, the signal that killed it."""
        process = self.processes[rank]
        process.join()
        assert process.exitcode is not None
        return process.exitcode

    def end(self) -> None:
        """Let them end by themselves for a while, then end them."""
        patience = time.monotonic() + GRACE
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join(max(0.0, patience - time.monotonic()))
            process.kill()
            process.join()
        if self.leash is not None:
            self.leash.close()


def _worker(
    leash: Connection,
    deaf: bool,
    plan: Plan,
    place: LaunchedRank,
    restart: int,
    folder: Path,
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    """One process of `run_processes`. What goes wrong is written, not raised: raised, it ends in a long report."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where processes are spawned they have to say so themselves
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # inherited, it may be ignored, and then nothing ends them
    signal.signal(signal.SIGHUP, signal.SIG_IGN if deaf else leave_closed_terminal)
    outlive_terminal()
    _end_without(leash, folder)
    os.environ |= {"RANK": str(place.rank), "LOCAL_RANK": str(place.rank)}
    os.environ |= {"WORLD_SIZE": str(place.world), "LOCAL_WORLD_SIZE": str(place.world)}
    os.environ |= {"TORCHELASTIC_RESTART_COUNT": str(restart), NOTES: str(folder)}
    bind_to_loopback()
    try:
        result = work(join(plan, place, folder / STORE), *arguments)
    except HeddleError as error:
        tell(place.rank, error)
        os._exit(2)
    except Exception as error:
        last_line = traceback.format_exception_only(error)[-1].strip()
        died = HeddleError(
            f"{_name(plan, place.rank)} failed: {last_line}",
            "That should not happen, whatever the job says; the traceback above shows where it did.",
            "Resume from the newest checkpoint with --resume; if it happens again, please report it.",
        )
        tell(place.rank, died, traceback.format_exc(), final=False)
        time.sleep(PATIENCE)  # if it failed because another one was killed, that one is to be seen first
        os._exit(1)
    leave()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # all is done; a request to stop comes too late to change that
    if place.rank == 0:
        (folder / RESULT).write_bytes(pickle.dumps(result))


def _end_without(leash: Connection, folder: Path) -> None:
    """A process whose parent was killed must not stay behind, nor what the parent would have removed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([leash])
        if not parent.is_alive():
            shutil.rmtree(scratch_of(folder), ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _told(plan: Plan, folder: Path, rank: int, code: int) -> HeddleError:
    """What the process that failed first told, or how it died without a word."""
    if (note := told(folder, rank)) is not None:
        sys.stderr.write(note.trace)
        return note.error
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return HeddleError(
        f"{_name(plan, rank)} {how}.",
        "It left no error message. Linux kills processes with SIGKILL when memory runs out, and `dmesg` then says so.",
        "Resume from the newest checkpoint with --resume.",
    )


def _name(plan: Plan, rank: int) -> str:
    return f"Rank {rank} ({coordinates(plan, rank)})"
