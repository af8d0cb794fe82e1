"""Starting the processes of a plan on this machine, again where one died, and telling what went wrong."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any

from heddle.console import plain_console
from heddle.errors import HeddleError
from heddle.runtime import forkserver
from heddle.runtime.device import has_gpus
from heddle.runtime.environment import LaunchedRank
from heddle.runtime.error_files import FOLDER as NOTES
from heddle.runtime.error_files import UNGUARDED, UNTOLD, final_error, read_error, write_error
from heddle.runtime.interfaces import bind_to_loopback
from heddle.runtime.joining import PATIENCE, join, leave
from heddle.runtime.leash import LOST, LeashedProcess, end_without
from heddle.runtime.limits import limit_reached, narrow_limits, refuse_few_files
from heddle.runtime.refit import Refit
from heddle.runtime.scratch import scratch_folder, scratch_of
from heddle.runtime.stop_request import Requests, answer, ignores_hangup, leave_closed_terminal, outlive_terminal
from heddle.spec.plan import Plan
from heddle.spec.ranks import coordinates

GRACE = 30.0  # seconds in which the others may end by themselves, and finish a checkpoint, before they are killed
ENOUGH = 1 << 16  # bytes in the folder for temporary files, without which processes cannot meet and tell
LOOK = 30.0  # seconds between two looks whether devices are back that a run does without
STORE, RESULT = "store", "result"  # files of one start: where the processes meet, and what rank 0 gives back


def run_processes(
    plan: Plan,
    work: Callable[..., Any],
    *arguments: Any,
    restarts: int = 0,
    script: bool = False,
    refit: Refit | None = None,
) -> Any:
    """Start the plan's processes on this machine, let each do `work(mesh, *arguments)`, give rank 0's result.

    When one dies, all are started again, up to `restarts` times; what a user has to fix is reported at once. Ctrl-C,
    SIGTERM and a closed terminal are passed on once, as a request to stop after the step; a second one ends everything.
    With `script`, each first runs the program that called us, as it may define what the work needs. With `refit`, each
    start has the plan for the devices that are there, and what comes from it goes before the arguments.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # we are such a process, and run that program
        os._exit(UNGUARDED)
    refuse_few_files(plan.world)
    forkserver.set_environment(plan.world)
    with scratch_folder() as folder, _Processes(folder, script or work.__module__ == "__main__") as processes:
        try:
            failures = 0
            for restart in count():
                given: tuple[Any, ...] = () if refit is None else refit.here(restart)
                now = plan if refit is None else given[0].plan
                # where the server that ranks are forked from was killed, this starts another one
                context = multiprocessing.get_context(_start_method())
                try:
                    tied = refit is None or refit.tied
                    processes.start(context, (now, tied), restart, work, (*given, *arguments))
                    failed = processes.first_to_fail(None if now.world == plan.world else refit)
                except ServerLostError:
                    processes.end()
                    if failures == restarts:
                        raise
                    failures += 1
                    continue
                if failed is None:
                    result = pickle.loads((processes.folder / RESULT).read_bytes())  # noqa: S301 (only we write it)
                    if refit is None or processes.asked or not refit.goes_on(result):
                        return result
                    processes.end()
                    continue
                code = processes.ranks[failed].exit_code
                processes.end()
                if processes.asked:
                    raise KeyboardInterrupt
                if (final := final_error(processes.folder)) is not None:
                    raise final
                if failures == restarts or code in (UNTOLD, UNGUARDED):
                    raise _told(now, processes.folder, failed, code)
                failures += 1
        finally:
            plain_console().show_cursor()  # which rank 0 hides while it shows a live line, and cannot restore if killed


def _start_method() -> str:
    """Fork from the server; spawn where there are GPUs, which do not survive a fork."""
    return "forkserver" if not has_gpus() and forkserver.start() else "spawn"


class ServerLostError(HeddleError):
    """Ranks could not be forked: the server was killed, and another one may do."""


class _Processes(Requests):
    """The processes of one start after the other; passes a first request to stop on to them, and kills by a second.

    None of them is left once this is no longer entered.
    """

    def __init__(self, scratch: Path, script: bool) -> None:
        super().__init__()
        self.scratch = self.folder = scratch
        self.script = script  # whether each is to run the program that this one runs
        self.ranks: list[LeashedProcess] = []
        self.starting = False

    def __exit__(self, *_: object) -> None:
        self._send(signal.SIGKILL)
        self.end()
        self.leave()

    def first(self) -> None:
        """One is enough: at the end of each step they ask each other."""
        if not self.ranks and not self.starting:
            raise KeyboardInterrupt
        if self.starting:
            forkserver.stop()  # which may be what we wait for
        else:
            self.ranks[0].send(signal.SIGTERM)
            answer()

    def second(self, _number: int) -> None:
        """At once, then."""
        self._send(signal.SIGKILL)
        if not self.starting:
            raise KeyboardInterrupt

    def start(
        self, context: Any, mesh: tuple[Plan, bool], restart: int, work: Callable[..., Any], arguments: Any
    ) -> None:
        """Start all processes; `mesh`: what theirs is made of."""
        plan, _ = mesh
        self.folder = self.scratch / f"start-{restart}"
        self.folder.mkdir()
        # A process that is given only half of what to do says so with a traceback.
        self.starting = True
        try:
            for rank in range(plan.world):
                place, ignore_hangup = LaunchedRank(rank, plan.world), ignores_hangup()
                process = LeashedProcess(
                    context, _worker, (ignore_hangup, mesh, place, restart, self.folder, work, arguments)
                )
                with nullcontext() if self.script else _nothing_to_run():
                    process.start()
                self.ranks.append(process)
        except (EOFError, ConnectionError) as error:
            if not self.asked:  # else it was stopped by us
                raise ServerLostError(
                    f"Rank {len(self.ranks)} could not be started.",
                    "The server that ranks are forked from was killed.",
                    "Start again, with --resume if there are checkpoints.",
                ) from error
        except OSError as error:
            if not self.asked:
                raise HeddleError(
                    f"Rank {len(self.ranks)} of {plan.world} could not be started: {error.strerror or error}.",
                    "The system allows no more processes, memory or open files.",
                    "See `ulimit -a`, or use fewer processes.",
                ) from error
        finally:
            self.starting = False
        if self.asked:
            raise KeyboardInterrupt

    def first_to_fail(self, refit: Refit | None = None) -> int | None:
        """Wait until all have ended well, or one has not: its rank, before that of any that failed because of it.

        With `refit`, ranks are asked to stop after their step once the devices are back that are missing.
        """
        running = {each.process.sentinel: rank for rank, each in enumerate(self.ranks)}
        while running:
            ready = wait(list(running), None if refit is None or refit.returning else LOOK)
            if refit is not None and not ready and not self.asked and refit.back():
                refit.returning = True
                self.ranks[0].send(signal.SIGTERM)
            ended = [running.pop(sentinel) for sentinel in list(running) if sentinel in ready]
            if failed := [rank for rank in ended if self.ranks[rank].exit_code]:
                # negative: killed by a signal, and not by another's death
                return min(failed, key=lambda rank: self.ranks[rank].exit_code)
        return None

    def end(self) -> None:
        """Let them end by themselves for a while, then end them."""
        patience = time.monotonic() + GRACE
        self._send(signal.SIGTERM)
        for each in self.ranks:
            each.wait(patience - time.monotonic())
        self._send(signal.SIGKILL)
        for each in self.ranks:
            each.wait(GRACE)
        ended, self.ranks = self.ranks, []
        for each in ended:
            each.let_go()

    def _send(self, number: signal.Signals) -> None:
        for each in self.ranks:
            each.send(number)


@contextmanager
def _nothing_to_run() -> Iterator[None]:
    """What is started does not run the user's program again, which need not be guarded then."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _worker(
    leash: Connection,
    ignore_hangup: bool,
    mesh: tuple[Plan, bool],
    place: LaunchedRank,
    restart: int,
    folder: Path,
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    """One process of `run_processes`. What goes wrong is written, not raised: raised, it ends in a long report."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where processes are spawned they have to say so themselves
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # inherited, it may be ignored, and then nothing ends them
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # which the server that we were forked from blocks
    signal.signal(signal.SIGHUP, signal.SIG_IGN if ignore_hangup else leave_closed_terminal)
    outlive_terminal()
    end_without(leash, folder)
    plan, tied = mesh
    os.environ |= {"RANK": str(place.rank), "LOCAL_RANK": str(place.rank)}
    os.environ |= {"WORLD_SIZE": str(place.world), "LOCAL_WORLD_SIZE": str(place.world)}
    os.environ |= {"TORCHELASTIC_RESTART_COUNT": str(restart), NOTES: str(folder)}
    bind_to_loopback()
    try:
        result = work(join(plan, place, folder / STORE, tied=tied), *arguments)
    except HeddleError as error:
        _tell_or_leave(place.rank, error)
        os._exit(2)
    except Exception as error:
        if (limited := limit_reached(_name(plan, place.rank), error)) is not None:
            _tell_or_leave(place.rank, limited)
            os._exit(2)
        last_line = traceback.format_exception_only(error)[-1].strip()
        died = HeddleError(
            f"{_name(plan, place.rank)} failed: {last_line}",
            "That should not happen, whatever the job says; the traceback above shows where it did.",
            "Resume from the newest checkpoint with --resume; if it happens again, please report it.",
        )
        _tell_or_leave(place.rank, died, traceback.format_exc(), final=False)
        time.sleep(PATIENCE)  # if it failed because another one was killed, that one is to be seen first
        os._exit(1)
    leave()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # all is done; a request to stop comes too late to change that
    if place.rank == 0:
        try:
            (folder / RESULT).write_bytes(pickle.dumps(result))
        except OSError:
            os._exit(UNTOLD)


def _tell_or_leave(rank: int, error: HeddleError, trace: str = "", final: bool = True) -> None:
    """Leave a note; where that cannot be written, the exit code has to do."""
    try:
        write_error(rank, error, trace, final)
    except OSError:
        sys.stderr.write(trace)
        os._exit(UNTOLD)


def _told(plan: Plan, folder: Path, rank: int, code: int) -> HeddleError:
    """What the process that failed first told, or how it died without a word."""
    if (note := read_error(folder, rank)) is not None:
        sys.stderr.write(note.trace)
        return note.error
    if code == UNGUARDED:
        return HeddleError(
            "The program starts processes whenever it is imported.",
            "Each process imports it, to have what it defines, and must not start further ones.",
            'Put what it does, after definitions, under `if __name__ == "__main__":`.',
        )
    free = shutil.disk_usage(folder).free
    if code == UNTOLD or free < ENOUGH:  # where torch's store cannot be written, it aborts
        return HeddleError(
            f"{_name(plan, rank)} could not write what came of its work to {scratch_of(folder)}.",
            f"The folder for temporary files has {free / 2**10:,.0f} KiB free.",
            "Free some space there, or set TMPDIR to another folder; then resume with --resume.",
        )
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    if code == LOST:
        how += ", or the server was killed that it was forked from"
    return HeddleError(
        f"{_name(plan, rank)} {how}.",
        "It left no error message."
        + " Linux kills processes with SIGKILL when memory runs out, and `dmesg` then says so."
        * (code == -signal.SIGKILL)
        + narrow_limits(),
        "Resume from the newest checkpoint with --resume.",
    )


def _name(plan: Plan, rank: int) -> str:
    return f"Rank {rank} ({coordinates(plan, rank)})"
