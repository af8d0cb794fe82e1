"""A process and the leash that ties it to the one that started it: whoever ends, the other one sees it.

Multiprocessing hears of a forked process by the server that forked it. Where that one is killed, multiprocessing takes
its processes for ended, sends them nothing more, and knows no exit code. The leash still tells whether one lives.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from heddle.runtime.scratch import remove_abandoned

LOST = 255  # the exit code that multiprocessing gives processes whose server was killed


class LeashedProcess:
    """A process that ends when this one lets go of it, or dies; `target` gets the other end of the leash first."""

    def __init__(self, context: Any, target: Any, arguments: tuple[Any, ...]) -> None:
        self.leash, self.held = context.Pipe()
        self.process: BaseProcess = context.Process(target=target, args=(self.held, *arguments))

    def start(self) -> None:
        """Start it, which an OSError or EOFError says is not possible."""
        try:
            self.process.start()
        except (EOFError, OSError):
            self.leash.close()
            raise
        finally:
            self.held.close()

    @property
    def lost(self) -> bool:
        """Whether the server was killed from which it was forked, or it gave that exit code by itself."""
        return self.process.exitcode == LOST

    @property
    def lives(self) -> bool:
        """Whether it runs."""
        return self.process.exitcode is None or (self.lost and not self.leash.poll())

    @property
    def exit_code(self) -> int:
        """How an ended process did; negative, the signal that killed it."""
        self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it lives."""
        assert self.process.pid is not None
        with suppress(ProcessLookupError):
            if self.lives:
                os.kill(self.process.pid, number)

    def wait(self, seconds: float) -> None:
        """Until it has ended, or for a while."""
        end = time.monotonic() + seconds
        self.process.join(max(0.0, seconds))
        if self.lost:
            wait([self.leash], max(0.0, end - time.monotonic()))

    def let_go(self) -> None:
        """End it, if it lives in spite of all."""
        self.leash.close()


def end_without(leash: Connection, folder: Path) -> None:
    """A process whose parent was killed must not stay behind, nor what the parent would have removed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([leash])
        if not parent.is_alive():
            remove_abandoned(folder)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
