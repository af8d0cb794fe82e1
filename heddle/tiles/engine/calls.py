"""Calls under way, so that Python can end while other threads are at them.

A daemon thread that wants the interpreter's lock while Python ends is unwound by force. Where PyTorch's code is on its
stack, which must not be unwound, that aborts the process. So when Python begins to end, such a thread is led to a place
where it waits without anything of PyTorch around it.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import NoReturn

PATIENCE = 10.0  # seconds that the end of Python waits for calls that are not at tiles: a busy machine may take some


class Calls:
    """Which threads are at them; a context for each."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Threads do not survive a fork: the child begins without any."""
        self.change, self.ending = threading.Condition(), False
        self.threads: set[int] = set()

    def __enter__(self) -> None:
        with self.change:
            self.threads.add(threading.get_ident())
        self.wait_if_ending()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        with self.change:
            self.threads.discard(threading.get_ident())
            self.change.notify_all()

    def wait_if_ending(self) -> None:
        """Where Python is about to end, a daemon thread goes no further; others find the workers stopped."""
        if self.ending and threading.current_thread().daemon:
            self._wait_forever()

    def _wait_forever(self) -> NoReturn:
        self._leave()
        while True:
            threading.Event().wait()

    def begin_to_end(self) -> None:
        """From now on daemon threads wait."""
        self.ending = True

    def wait_for_all(self) -> None:
        """Until all have ended, or wait."""
        with self.change:
            self.change.wait_for(lambda: not self.threads, PATIENCE)


calls = Calls()
