"""Answers computed in processes of their own: a new question of a page ends the one before it."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

MOST = 4  # questions at once; a page has one, and its curve of scaling

# an answer at once, or one that comes in parts
Answer = Callable[..., "dict[str, Any] | Iterator[dict[str, Any]]"]


class CanceledError(Exception):
    """Another question of the same page came."""


class Workers:
    """Asks one process per question. They are forked from a server that has imported everything, which is quick."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["heddle.explore.warm"])
        self.lock = threading.Lock()
        self.asked: dict[str, Any] = {}  # the process that works for each page
        self.slots = threading.BoundedSemaphore(MOST)

    def ask(self, page: str, function: Answer, *arguments: Any) -> dict[str, Any]:
        """All parts of an answer in one; raises `CanceledError` if the page asks something else meanwhile."""
        whole: dict[str, Any] = {}
        for part in self.parts(page, function, *arguments):
            whole |= part
        return whole

    def parts(self, page: str, function: Answer, *arguments: Any) -> Generator[dict[str, Any], None, None]:
        """The parts of an answer as they come; the same."""
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(target=_work, args=(sender, function, arguments), daemon=True)
        with self.lock:
            before = self.asked.get(page)
            if before is not None and before.pid is not None:
                before.terminate()
            self.asked[page] = process
        with self.slots:
            with self.lock:
                if self.asked.get(page) is not process:  # another question came while this one waited for its turn
                    raise CanceledError
                process.start()
            sender.close()
            try:
                while (part := _received(receiver)) is not None:
                    yield part
            finally:
                process.terminate()  # where nobody listens any more
                process.join()
                with self.lock:
                    if self.asked.get(page) is process:
                        del self.asked[page]

    def warm_up(self) -> None:
        """Start the server before the first question."""
        self.ask("", _nothing)

    def close(self) -> None:
        """End whatever is still at work."""
        with self.lock:
            for process in self.asked.values():
                if process.pid is not None:
                    process.terminate()


def _received(receiver: Connection) -> dict[str, Any] | None:
    """The next part; None after the last."""
    try:
        found: dict[str, Any] | None = receiver.recv()
    except EOFError:
        raise CanceledError from None
    return found


def _nothing() -> dict[str, Any]:
    return {}


def _work(sender: Connection, function: Answer, arguments: tuple[Any, ...]) -> None:
    # The server may be one that a training in this program started, which blocks it: nothing would end us.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    found = function(*arguments)
    for part in [found] if isinstance(found, Mapping) or found is None else found:
        sender.send({} if part is None else part)
    sender.send(None)
    sender.close()
