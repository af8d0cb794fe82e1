"""The server that a plan's processes are forked from: it imports everything once, for all of them.

No torch here, so that the server imports it at the same time as the process that starts the server.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import forkserver, get_all_start_methods
from multiprocessing.util import Finalize

from heddle.runtime.environment import launched_place
from heddle.runtime.scratch import scratch
from heddle.spec.plan import Plan

# The last one is what the first optimizer of a process imports: a second that every start and restart would wait for.
PRELOADED = ["heddle.train.loop", "torch._dynamo"]
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
    try:
        with _deaf(), _temporary_files_in_scratch():
            forkserver.ensure_running()
    except OSError:  # the path of its socket may be too long, by the folder for temporary files
        return False
    _stop_at_exit()
    return True


def stop() -> None:
    """End the server, whatever it is doing: while it imports, which takes seconds, it hears nothing else."""
    server = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if server is not None:
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)


def abandon() -> None:
    """Leave nothing behind when this process ends without further ado."""
    stop()
    if scratch.cache_info().currsize:
        shutil.rmtree(scratch(), ignore_errors=True)


@cache
def _stop_at_exit() -> None:
    Finalize(None, stop, exitpriority=-50)


@contextmanager
def _deaf() -> Iterator[None]:
    """What is started inherits that these are ignored: of a terminal's signals, only the parent shall hear."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
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
