"""Answers computed in processes of their own: a new question of a page ends the one before it."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

MOST = 4  # questions at once; a page has one, and its curve of scaling


class CanceledError(Exception):
    """Another question of the same page came."""


class Workers:
    """Asks one process per question. They are forked from a server that has imported everything, which is quick."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["heddle.explore.answers"])
        self.lock = threading.Lock()
        self.asked: dict[str, Any] = {}  # the process that works for each page
        self.slots = threading.BoundedSemaphore(MOST)

    def ask(self, page: str, function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
        """The answer; raises `CanceledError` if the page asks something else meanwhile."""
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(target=_work, args=(sender, function, arguments), daemon=True)
        with self.lock:
            before = self.asked.get(page)
            if before is not None:
                before.terminate()
            self.asked[page] = process
        with self.slots:
            process.start()
            sender.close()
            try:
                found: Mapping[str, Any] = receiver.recv()
            except EOFError:
                raise CanceledError from None
            finally:
                process.join()
                with self.lock:
                    if self.asked.get(page) is process:
                        del self.asked[page]
        return dict(found)

    def warm_up(self) -> None:
        """Start the server before the first question."""
        self.ask("", _nothing)

    def close(self) -> None:
        """End whatever is still at work."""
        with self.lock:
            for process in self.asked.values():
                if process.pid is not None:
                    process.terminate()


def _nothing() -> dict[str, Any]:
    return {}


def _work(sender: Connection, function: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> None:
    sender.send(function(*arguments))
    sender.close()
