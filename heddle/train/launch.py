"""Starting the processes of a plan: our own by torch's elastic launcher, or joining those that another one started."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import torch.distributed as dist
from rich.console import Console
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.rendezvous import rendezvous

from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh, build_mesh, coordinates
from heddle.spec.plan import Plan
from heddle.train import forkserver
from heddle.train.device import abandon, backend, has_gpus, pick_device, set_defaults
from heddle.train.interrupt import answer
from heddle.train.launched import Place, launched_place
from heddle.train.notes import FOLDER as NOTES
from heddle.train.notes import final_error, restart_count, set_restart_count, tell, told

TIMEOUT = timedelta(minutes=30)
STOP = "stop"  # a file in the folder of notes: there once somebody asked to stop
PATIENCE = 2.0  # seconds that a process stays which was not the first to fail, so that the first one is seen


def join(plan: Plan, place: Place) -> Mesh:
    """Meet the other processes of this launch, and find this one's place in the mesh."""
    if place.world != plan.world:
        raise HeddleError(
            f"{place.world} processes started, but the plan needs tensor × pipeline × data = {plan.tensor} × "
            f"{plan.pipeline} × {plan.data} = {plan.world}.",
            "Every process holds one place of the mesh.",
            f"Start {plan.world} of them, or change the plan.",
        )
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if place.world > 1 and name not in os.environ:
            raise HeddleError(
                f"{name} is not set.",
                "The processes meet at that address.",
                "torchrun sets it; under Slurm use the script that `heddle launch --slurm` prints.",
            )
    set_defaults()
    pick_device()  # what is wrong with it is told before anybody waits for anybody
    if place.world > 1:
        try:
            store, rank, world = next(rendezvous("env://", timeout=TIMEOUT))
        except dist.DistError as error:
            raise _nowhere_to_meet(error) from None
        store = _of_this_start(store, rank)
        dist.init_process_group(backend(), store=store, rank=rank, world_size=world, timeout=TIMEOUT)
    mesh = build_mesh(plan, place.rank, place.world)
    assert mesh is not None
    return mesh


def _of_this_start(store: Any, rank: int) -> Any:
    """A launcher that starts all again may keep its store, in which the addresses of the dead still stand.

    Every rank counts its own starts, which are as many for all of them. The agents of torchrun do not agree: one that
    starts its processes again because of another node's does not count that.
    """
    starts = store.add(f"starts/{rank}", 1) - 1
    set_restart_count(max(starts, restart_count()))
    return PrefixStore(f"start-{starts}", store)


def _nowhere_to_meet(error: dist.DistError) -> HeddleError:
    """Another program has the port, or the address leads nowhere."""
    taken = "EADDRINUSE" in str(error)
    return HeddleError(
        f"The processes cannot meet at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}.",
        "Another program listens there; perhaps a run that has not ended." if taken else str(error).splitlines()[0],
        "Set MASTER_PORT to a free port of that machine: heddle launch --port, or torchrun --master-port.",
    )


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


def run_joined(plan: Plan, place: Place, work: Callable[..., Any], *arguments: Any) -> Any:
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
        os._exit(1)
    leave()
    return result


def _is_first_to_fail(place: Place, error: Exception, store: Any) -> bool:
    if store is None:  # what is wrong before they meet is wrong for all of them
        return place.rank == 0 or not isinstance(error, HeddleError)
    try:
        return _claim(store, place.rank)
    except RuntimeError:  # whoever kept the store is gone
        return isinstance(error, HeddleError)


def run_processes(plan: Plan, work: Callable[..., Any], *arguments: Any, restarts: int = 0) -> Any:
    """Start the plan's processes on this machine, let each do `work(mesh, *arguments)`, give rank 0's result.

    When one dies, all are started again, up to `restarts` times; what a user has to mend is told at once. Ctrl-C and
    SIGTERM are passed on once, as a request to stop after the step; a second one ends everything.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    forkserver.set_environment(plan.world)
    with tempfile.TemporaryDirectory(prefix="heddle-") as folder, _ForwardedSignals(Path(folder)) as stop:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=plan.world,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="127.0.0.1:0",
            local_addr="127.0.0.1",  # looking up its own name takes seconds on some laptops
            max_restarts=restarts,
            monitor_interval=0.1,
            start_method=_start_method(),
            signals_to_handle="SIGHUP",
            logs_specs=DefaultLogsSpecs(log_dir=folder),
        )
        try:
            result = elastic_launch(config, _worker)(plan, Path(folder), work, arguments)[0]
            if (final := final_error(Path(folder))) is not None:
                raise final
            if stop.asked and result is None:  # before the first step
                raise KeyboardInterrupt
            return result
        except ChildFailedError as error:
            if stop.asked:
                raise KeyboardInterrupt from None
            raise _told(plan, Path(folder), error) from None
        except SignalException:
            raise KeyboardInterrupt from None
        finally:
            Console().show_cursor()  # which rank 0 hides while it shows a live line, and cannot restore if killed


def _start_method() -> str:
    """Fork from the server; spawn where there are GPUs, which do not survive a fork."""
    return "forkserver" if not has_gpus() and forkserver.start() else "spawn"


def _worker(plan: Plan, folder: Path, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """One process of `run_processes`. What goes wrong is written, not raised: raised, it ends in a long report."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where processes are spawned they have to say so themselves
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # inherited, it may be ignored, and then nothing ends them
    _end_with_parent()
    place = launched_place()
    assert place is not None
    os.environ[NOTES] = str(folder)
    if final_error(folder) is not None or (folder / STOP).exists():
        return None  # the launcher starts all again, whatever it was that ended them
    (folder / f"{place.rank}.json").unlink(missing_ok=True)  # of an earlier start
    try:
        result = work(join(plan, place), *arguments)
    except HeddleError as error:
        tell(place.rank, error)
        os._exit(2)
    except Exception as error:
        last_line = traceback.format_exception_only(error)[-1].strip()
        died = HeddleError(
            f"{_name(plan, place.rank)} failed: {last_line}",
            "That should not happen, whatever the job says; the traceback above shows where it did.",
            "Go on from the newest checkpoint with --resume; if it happens again, please report it.",
        )
        tell(place.rank, died, traceback.format_exc(), final=False)
        time.sleep(PATIENCE)  # if it failed because another one was killed, that one is to be seen first
        os._exit(1)
    leave()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # all is done; the launcher waits for ever if one is missing now
    return result


def _end_with_parent() -> None:
    """A process whose parent was killed must not stay behind."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _told(plan: Plan, folder: Path, failed: ChildFailedError) -> HeddleError:
    """What the process that failed first told, or how it died without a word."""
    if (final := final_error(folder)) is not None:
        return final
    rank, failure = failed.get_first_failure()
    if (note := told(folder, rank)) is not None:
        sys.stderr.write(note.trace)
        return note.error
    how = f"ended with exit code {failure.exitcode}"
    if failure.exitcode < 0:
        how = f"was killed by {signal.Signals(-failure.exitcode).name}"
    return HeddleError(
        f"{_name(plan, rank)} {how}.",
        "It left no word. Linux kills processes with SIGKILL when memory runs out, and `dmesg` then says so.",
        "Go on from the newest checkpoint with --resume.",
    )


def _name(plan: Plan, rank: int) -> str:
    tensor, data, pipeline = coordinates(plan, rank)
    return f"Rank {rank} (data {data}, pipeline {pipeline}, tensor {tensor})"


class _ForwardedSignals:
    """Passes the first request to stop on to the processes; the second one kills them."""

    def __init__(self, folder: Path) -> None:
        self.asked, self.folder = False, folder
        self.others = set(multiprocessing.active_children())  # processes of whoever called us: none of our business

    def __enter__(self) -> _ForwardedSignals:
        self.previous = {number: signal.signal(number, self._forward) for number in (signal.SIGINT, signal.SIGTERM)}
        logging.disable()  # torch's launcher tells of every failure in its own long way
        return self

    def __exit__(self, *_: object) -> None:
        logging.disable(logging.NOTSET)
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def _forward(self, _number: int, _frame: FrameType | None) -> None:
        again, self.asked = self.asked, True
        processes = [process for process in multiprocessing.active_children() if process not in self.others]
        if again:
            for process in processes:
                process.kill()
        elif processes:
            (self.folder / STOP).touch()
            processes[0].terminate()  # one is enough: at the end of each step they ask each other
            answer()
        if again or not processes:
            raise KeyboardInterrupt
