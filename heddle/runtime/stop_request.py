"""Ctrl-C, SIGTERM and closed terminals: the first asks the loop to stop after its step, the second stops at once."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import termios
import threading
import time
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ECHO = 1.0  # seconds in which one request may come twice: from a terminal and from the launcher that passes it on


class Requests:
    """Hears requests to stop while it is entered, and tells a second one from the echo of the first."""

    def __init__(self, echoes: bool = False) -> None:
        self.echoes = echoes  # whether a launcher may pass on what this process has heard already
        self.asked_at: float | None = None
        self.previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python delivers signals nowhere else
            heard = [number for number in SIGNALS if number != signal.SIGHUP or not ignores_hangup()]
            self.previous = {number: signal.signal(number, self._hear) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    @property
    def asked(self) -> bool:
        """Whether somebody asked to stop."""
        return self.asked_at is not None

    def first(self) -> None:
        """Called when somebody asks to stop."""

    def second(self, _number: int) -> None:
        """Called when somebody asks again."""

    def restore(self) -> None:
        """Listen no more."""
        for number, handler in self.previous.items():
            listener = getattr(signal.getsignal(number), "__self__", None)
            if isinstance(listener, Requests) and listener is not self:
                listener.previous[number] = handler  # one within us that still waits for an echo
            else:
                signal.signal(number, handler)
        self.previous = {}

    def leave(self) -> None:
        """Listen no more, except for the echo of a request that was answered: it must not end a good end badly."""
        before = self.previous
        self.restore()
        if self.asked and signal.SIGTERM in before:
            signal.signal(signal.SIGTERM, self._hear_echo)
            self.previous = {signal.SIGTERM: before[signal.SIGTERM]}

    def _hear_echo(self, number: int, _frame: FrameType | None) -> None:
        assert self.asked_at is not None
        if time.monotonic() < self.asked_at + ECHO:
            return
        self.restore()
        signal.raise_signal(number)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:  # the kernel, the shell and the system that goes down may all send one
            leave_closed_terminal()
            self.echoes = True
        if self.asked_at is None:
            self.asked_at = time.monotonic()
            self.first()
        elif number != signal.SIGHUP:
            # `timeout` and others send SIGTERM to the process and then to its group, where it hears it again
            echoes = self.echoes or number == signal.SIGTERM
            if not (echoes and time.monotonic() < self.asked_at + ECHO):
                self.second(number)


class StartUp(Requests):
    """Ends this process like Ctrl-C, whichever signal asks for it, as long as nobody else listens."""

    def first(self) -> None:
        """Everything on the way out is put in order."""
        raise KeyboardInterrupt

    def second(self, number: int) -> None:
        """At once, then."""
        self.restore()
        signal.raise_signal(number)


class StopRequest(Requests):
    """True once somebody asked this process to stop after its step."""

    def __init__(self, answer: bool = False) -> None:
        self.launched = "RANK" in os.environ
        super().__init__(echoes=self.launched)
        self.answer = answer  # whether this process is the one that tells the user
        self.shared = False  # whether any process of the run was asked

    def __bool__(self) -> bool:
        return self.asked

    def __exit__(self, *_: object) -> None:
        if self.launched and (self or self.shared):
            # All is saved. The same request may still be on its way here, and must not make an end of a good end.
            self.previous = dict.fromkeys(self.previous, signal.SIG_IGN)
            self.restore()
        else:
            self.leave()

    def first(self) -> None:
        """The loop looks at us after each step."""
        if self.answer:
            answer()

    def second(self, number: int) -> None:
        """At once, then."""
        self.restore()
        if number == signal.SIGINT:  # restored, it may be ignored: a shell does so for what it runs in the background
            raise KeyboardInterrupt
        signal.raise_signal(number)


def ignores_hangup() -> bool:
    """Whether this process was started to outlive its terminal, as by nohup."""
    return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def outlive_terminal() -> None:
    """Writing to a terminal that is gone fails, and shall not fail what is still to be saved."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.isatty():
            writer = io.BufferedWriter(_Terminal(stream.fileno(), "w", closefd=False))
            setattr(sys, name, io.TextIOWrapper(writer, stream.encoding, stream.errors, line_buffering=True))


class _Terminal(io.FileIO):
    """It may be gone long before the shell, which hears of it first, tells us."""

    def write(self, data: Any) -> int:
        """Write to it, or nowhere."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            leave_closed_terminal()
            return len(data)


def leave_closed_terminal(*_: object) -> None:
    """Write nowhere from now on, if the terminal is gone."""
    for stream in (1, 2):
        try:
            termios.tcgetattr(stream)
        except termios.error as error:
            if error.args[0] == errno.EIO:  # anything else: it is no terminal, and may well be read by somebody
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream)
                os.close(nowhere)


def answer() -> None:
    """Tell a person that the request was heard, and what another one would do."""
    if sys.stderr.isatty():
        os.write(
            sys.stderr.fileno(), b"\nStopping after this step. Ctrl-C again stops at once, without a checkpoint.\n"
        )
