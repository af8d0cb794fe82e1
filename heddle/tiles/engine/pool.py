"""Workers: native threads in compiled code, outside the interpreter's lock, asleep while nothing runs.

The thread that calls a compiled module is worker 0 while it waits; the others are made once per pool. A second thread
that calls meanwhile hands its call in and sleeps, until it is finished or worker 0 is needed again.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from heddle.errors import HeddleError
from heddle.tiles.engine import layout as at
from heddle.tiles.engine.calls import calls
from heddle.tiles.engine.worker import write
from heddle.tiles.kernels.library import library

MOST = 1024  # workers
LINGER = 1000  # rounds, some 200 µs, that workers wait for the next call before they sleep
WORDS = 32  # of a mutex and of a condition: more than any system's


def _engine(name: str) -> int:
    """The address of a function of the engine."""
    return library().function("engine", lambda _: write(library().target.triple), name)


class CallLine:
    """Calls of one level, in the order in which they came.

    Workers take the newest tiles first, so that a call could wait for as long as others come behind it: one goes
    ahead of the oldest that runs, and no more.
    """

    AHEAD = 2  # places from the oldest call that runs to the newest that may

    def __init__(self) -> None:
        self.tickets = count()
        self.waiting: list[int] = []
        self.running: dict[int, int] = {}  # tickets, the oldest first, with the thread that called

    def join(self) -> int:
        """A ticket, at the end of the line."""
        ticket = next(self.tickets)
        self.waiting.append(ticket)
        return ticket

    def turn_of(self, ticket: int) -> bool:
        """Whether it may run now. A call within a call is what the outer one waits for."""
        if threading.get_ident() in self.running.values():
            return True
        return ticket == self.waiting[0] and ticket - next(iter(self.running), ticket) < self.AHEAD


class Pool:
    """Some workers and their stacks."""

    def __init__(self, threads: int) -> None:
        if not 1 <= threads <= MOST:
            raise HeddleError(
                f"threads must be in [1, {MOST}], got {threads}.",
                "Each worker is a thread.",
                f"This machine has {cores()} cores.",
            )
        self.threads, self.process = threads, os.getpid()
        self.library = ctypes.CDLL(None)
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
        self.call = kind(_engine("heddle_call"))
        self.memory = np.zeros(at.POOL_WORDS + 3 * WORDS, dtype=np.int64)
        self.stacks = np.zeros(threads * at.LEVELS * at.STACK_WORDS, dtype=np.int64)
        self.calls = np.zeros((at.RUNS, at.RUN_WORDS), dtype=np.int64)
        self.table = np.array([row.ctypes.data for row in self.calls], dtype=np.int64)
        self.address = self.memory.ctypes.data
        mutex, work, done = (self.address + 8 * (at.POOL_WORDS + number * WORDS) for number in range(3))
        for name, place in (("mutex", mutex), ("cond", work), ("cond", done)):
            getattr(self.library, f"pthread_{name}_init")(ctypes.c_void_p(place), None)
        given = {
            at.MUTEX: mutex, at.WORK: work, at.DONE: done, at.WORKERS: threads, at.LINGER: LINGER,
            at.STACKS: self.stacks.ctypes.data, at.TABLE: self.table.ctypes.data,
        }  # fmt: skip
        for place, value in given.items():
            self.memory[place] = value
        self.change = threading.Condition()
        self.free, self.tiles = list(range(at.RUNS)), 0
        self.lines = [CallLine() for _ in range(at.LEVELS)]
        self.helpers: list[ctypes.c_size_t] = []
        self.starts = [self._start(number) for number in range(1, threads)]

    def _start(self, number: int) -> Any:
        """A native thread that runs `heddle_worker(pool, number, 0)`."""
        arguments = np.array([self.address, number, 0], dtype=np.int64)
        entry = _engine("heddle_thread")
        thread = ctypes.c_size_t()
        failed = self.library.pthread_create(
            ctypes.byref(thread), None, ctypes.c_void_p(entry), ctypes.c_void_p(arguments.ctypes.data)
        )
        if failed:
            self.stop()
            raise HeddleError(
                f"The system refused to start worker {number} of {self.threads}: {os.strerror(failed)}.",
                "Each worker is a thread.",
                "Use fewer threads.",
            )
        self.helpers.append(thread)
        return arguments

    def run(self, fill: Callable[[Any], None], tiles: int, level: int = 1) -> None:
        """Run a call: `fill` writes its words; all tiles are done when this returns."""
        line = self.lines[level]
        number, ticket = self._admit(tiles, line)
        call = self.calls[number]
        try:
            call[:] = 0
            call[at.LEVEL] = level
            fill(call)
            self.call(self.address, int(self.table[number]))
            if not call[at.FINISHED]:
                calls.wait_if_ending()
                raise HeddleError(
                    "The workers were stopped.",
                    "Python is ending, or their group was closed.",
                    "Wait for calls to finish first.",
                )
        finally:
            with self.change:
                self.free.append(number)
                self.tiles -= tiles
                del line.running[ticket]
                self.change.notify_all()

    def _admit(self, tiles: int, line: CallLine) -> tuple[int, int]:
        """A free place, as soon as the tiles of all calls fit a stack and it is this call's turn; and its ticket."""
        if tiles > at.CAPACITY:
            raise HeddleError(
                f"The module has {tiles:,} tiles.",
                f"A worker holds at most {at.CAPACITY:,}.",
                "Compile parts of the module.",
            )
        with self.change:
            ticket = line.join()
            try:
                while not self.free or self.tiles + tiles > at.CAPACITY or not line.turn_of(ticket):
                    self.change.wait()
            finally:
                line.waiting.remove(ticket)
                self.change.notify_all()
            line.running[ticket] = threading.get_ident()
            self.tiles += tiles
            return self.free.pop(), ticket

    def stop(self) -> None:
        """Let the workers end after the tile that they are at."""
        if self.process != os.getpid() or not self.memory[at.MUTEX]:
            return
        mutex = ctypes.c_void_p(int(self.memory[at.MUTEX]))
        self.library.pthread_mutex_lock(mutex)
        self.memory[at.STOP] = 1
        for place in (at.WORK, at.DONE):
            self.library.pthread_cond_broadcast(ctypes.c_void_p(int(self.memory[place])))
        self.library.pthread_mutex_unlock(mutex)
        for thread in self.helpers:
            self.library.pthread_join(thread, None)
        self.helpers.clear()


_pools: dict[int, Pool] = {}
_lock = threading.Lock()


def pool(threads: int) -> Pool:
    """The pool of so many workers that compiled modules share; another one in a process that was forked."""
    with _lock:
        if threads not in _pools or _pools[threads].process != os.getpid():
            _pools[threads] = Pool(threads)
        return _pools[threads]


def worker_count(threads: int | None) -> int:
    """How many workers a user asked for; all cores by default."""
    whole = isinstance(threads, int) and not isinstance(threads, bool)
    if threads is not None and (not whole or not 1 <= threads <= MOST):
        raise HeddleError(
            f"threads must be in [1, {MOST}], got {threads!r}.",
            "Each worker is a thread.",
            f"This process may use {cores()} cores.",
        )
    return threads or cores()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end() -> None:
    calls.begin_to_end()
    for each in list(_pools.values()):
        each.stop()
    calls.wait_for_all()


def _forked() -> None:
    """Threads do not survive a fork: the child makes pools of its own when it needs them."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()
    calls.forget()


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
