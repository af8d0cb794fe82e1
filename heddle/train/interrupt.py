"""Ctrl-C and SIGTERM: the first asks the loop to stop after its step, the second stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """True once somebody asked to stop; listens while it is entered."""

    def __init__(self) -> None:
        self.asked = False
        self.previous: dict[signal.Signals, Any] = {}

    def __bool__(self) -> bool:
        return self.asked

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # Python delivers signals nowhere else
            self.previous = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)
        self.previous = {}
