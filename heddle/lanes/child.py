"""Work that may crash, in a process of its own."""

from __future__ import annotations

import faulthandler
import os
import signal
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

IDLE = 5  # times the seconds of CPU time, by the clock: code that waits for something, not just for a busy machine


def in_child(work: Callable[[], Iterable[bytes]], seconds: int = 20) -> bytes:
    """What `work` says in a process of its own, as far as it gets before it crashes or takes too much CPU time."""
    if not hasattr(os, "fork"):
        return b"".join(work())
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads hold nothing that the child touches
        child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()  # a crash is an answer
            for ends in (signal.SIGPROF, signal.SIGALRM):
                signal.signal(ends, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_PROF, seconds)
            signal.alarm(IDLE * seconds)
            with Path(os.devnull).open("w+b", buffering=0) as nothing:
                for stream in (0, 1, 2):  # what runs may ask or print: neither is for whoever started us
                    os.dup2(nothing.fileno(), stream)
            os.close(read)
            for said in work():
                os.write(write, said)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer
