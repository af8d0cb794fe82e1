"""Ctrl-C and SIGTERM: the first asks the loop to stop after its step, the second stops at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ECHO = 1.0  # seconds in which a launcher passes on what the terminal has sent to all its processes already


class StopRequest:
    """True once somebody asked to stop; listens while it is entered."""

    def __init__(self, answer: bool = False) -> None:
        self.answer = answer  # whether this process is the one that tells the user
        self.asked_at: float | None = None
        self.shared = False  # whether any process of the run was asked
        self.launched = "RANK" in os.environ
        self.previous: dict[signal.Signals, Any] = {}

    def __bool__(self) -> bool:
        return self.asked_at is not None

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # Python delivers signals nowhere else
            self.previous = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        if self.launched and (self or self.shared):
            # All is saved. The same request may still be on its way here, and must not make an end of a good end.
            self.previous = dict.fromkeys(self.previous, signal.SIG_IGN)
        self._restore()

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        if self.asked_at is None:
            self.asked_at = time.monotonic()
            if self.answer:
                answer()
        elif not (self.launched and time.monotonic() < self.asked_at + ECHO):
            self._restore()
            if (
                number == signal.SIGINT
            ):  # restored, it may be ignored: a shell does so for what it runs in the background
                raise KeyboardInterrupt
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)
        self.previous = {}


def answer() -> None:
    """Tell a person that the request was heard, and what another one would do."""
    if sys.stderr.isatty():
        os.write(
            sys.stderr.fileno(), b"\nStopping after this step. Ctrl-C again stops at once, without a checkpoint.\n"
        )
