"""The server that a plan's processes are forked from: it imports everything once, for all of them.

No torch here, so that the server imports it at the same time as the process that starts the server.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import forkserver, get_all_start_methods, resource_tracker
from multiprocessing.util import Finalize
from typing import Any

from heddle.runtime.environment import launched_place
from heddle.runtime.scratch import scratch
from heddle.spec.plan import Plan

# The last one is what the first optimizer of a process imports: a second that every start and restart would wait for.
PRELOADED = ["heddle.training.loop", "torch._dynamo"]
PATIENCE = 2.0  # seconds until what this process started and ended must be gone; else it goes without
GPUS = ("/dev/nvidia0", "/dev/kfd")  # of NVIDIA and AMD; what was forked could not use them


def start_early(plan: Plan) -> None:
    """Start the server before torch is imported here, if this command is to start processes by itself."""
    if plan.world > 1 and launched_place() is None and not any(map(os.path.exists, GPUS)):
        set_environment(plan.world)
        start()


def set_environment(world: int) -> None:
    """What the processes inherit, where the user has not said otherwise."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // world)))


def start() -> bool:
    """Start the server, unless it runs already; False where a system cannot fork."""
    if "forkserver" not in get_all_start_methods():
        return False
    forkserver.set_forkserver_preload(PRELOADED)
    _end_at_exit()
    try:
        with _ignore_hangups(), _temporary_files_in_scratch():
            forkserver.ensure_running()
    except OSError:  # the path of its socket may be too long, by the folder for temporary files
        return False
    return True


def stop() -> None:
    """End the server, whatever it is doing: while it imports, which takes seconds, it hears nothing else."""
    server = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if server is not None:
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)


def abandon() -> None:
    """Leave nothing behind when this process ends without further ado."""
    _end(getattr(_tracker(), "_fd", None) is not None)
    if scratch.cache_info().currsize:
        shutil.rmtree(scratch(), ignore_errors=True)


def _tracker() -> Any:
    return resource_tracker._resource_tracker


@cache
def _end_at_exit() -> None:
    started_here = getattr(_tracker(), "_fd", None) is None  # or it is the program's, which may need it to the end
    Finalize(None, _end, args=(started_here,), exitpriority=-50)


def _end(tracker_too: bool) -> None:
    """End the server and the process that tracks its resources, and see them gone: nobody is left when this one is."""
    stop()
    pids = [getattr(forkserver._forkserver, "_forkserver_pid", None)]
    tracker = _tracker()
    if tracker_too and getattr(tracker, "_fd", None) is not None:
        os.close(tracker._fd)  # at which it ends
        pids.append(tracker._pid)
        tracker._fd = tracker._pid = None
    end = time.monotonic() + PATIENCE
    for pid in filter(None, pids):
        with suppress(ChildProcessError):
            while not os.waitpid(pid, os.WNOHANG)[0] and time.monotonic() < end:
                time.sleep(0.002)


@contextmanager
def _ignore_hangups() -> Iterator[None]:
    """What is started ignores a terminal's signals, and leaves SIGTERM waiting: it may be sent to the whole group.

    SIGTERM is blocked, not ignored. A process that was forked but has not begun its work gets it when it unblocks it.
    """
    resource_tracker.ensure_running()  # which unblocks SIGTERM when it starts its process
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _temporary_files_in_scratch() -> Iterator[None]:
    """The server's socket lies where it is found and removed even if everything is killed."""
    before, tempfile.tempdir = tempfile.tempdir, str(scratch())
    try:
        yield
    finally:
        tempfile.tempdir = before
