"""Where a command's words go: a terminal, a file, a pipe that somebody closes, a disk that is full."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Callable
from contextlib import suppress

from heddle.errors import HeddleError
from heddle.files import shown

PLAIN = "heddle.plain"
# What to write where the encoding lacks a character: in Python's ASCII, say, or in a terminal's Latin-1.
SPELLED = {
    "…": "...",
    "–": "-",
    "—": "-",
    "×": "x",
    "·": "*",
    "→": "->",
    "←": "<-",
    "≤": "<=",
    "≥": ">=",
    "≈": "~",
    "±": "+-",
    "µ": "u",
    "μ": "u",
    "²": "^2",
    "³": "^3",
    "√": "sqrt",
    "∞": "inf",
    "█": "#",
    "▓": "#",
    "▒": "+",
    "░": ".",
    "│": "|",
    "─": "-",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
}


def _spell(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(SPELLED.get(char, "?") for char in error.object[error.start : error.end]), error.end


def speak_plainly() -> None:
    """Let standard output and error spell what their encoding lacks, rather than fail in the middle of a line."""
    codecs.register_error(PLAIN, _spell)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=PLAIN)


NARROWEST = 20  # columns: in a frame of fewer no word of a message is left


def ignore_absurd_sizes() -> None:
    """Forget the size of a terminal that no terminal has: lines are padded to it, in memory, or cut to nothing."""
    for name, least in (("COLUMNS", NARROWEST), ("LINES", 1)):
        told = os.environ.get(name)
        if told is not None and not (told.isascii() and told.isdigit() and len(told) <= 4 and int(told) >= least):
            del os.environ[name]


def finish(command: Callable[[], int]) -> int:
    """Run a command to the last byte that it says; returns its exit code.

    What it printed may still wait in memory. Written by Python when it exits, a failure would be a traceback.
    """
    try:
        code = command()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # `heddle … | head -1` has read enough: nothing is wrong, and nobody listens
        _drop_output()
        return 1
    except OSError as error:
        _drop_output()
        show(told(error))
        return 2
    return code


def _drop_output() -> None:
    """What could not be written is not tried again at exit."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def told(error: OSError) -> HeddleError:
    """What the system refused, where nobody nearer to it knew more."""
    reason = f"{error.strerror or error}."
    if error.filename is None:
        return HeddleError(
            "The output cannot be written.", reason, "Free some disk space, or send the output elsewhere."
        )
    return HeddleError(
        f"{shown(os.fsdecode(error.filename))} cannot be used.",
        reason,
        "Check the path, its permissions, and the free space on its disk.",
    )


def show(error: HeddleError) -> None:
    """What is wrong, why, and the nearest thing that works."""
    lines = [f"error: {_line(error.what)}", *(f"  {_line(part)}" for part in (error.why, error.hint) if part)]
    with suppress(OSError, AttributeError):  # standard error may be full, or closed
        if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
            lines[0] = f"\x1b[1;31m{lines[0]}\x1b[0m"
        # Not by Typer's echo, which writes UTF-8 to a stream whose encoding is ASCII.
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()


MOST = 2000  # characters of a part that are shown: a value in it may be a whole file


def _line(text: str) -> str:
    """One part of a message: what a value holds must neither steer the terminal nor fill it."""
    plain = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
    cut = plain if len(plain) <= MOST else f"{plain[: MOST // 2]} … {plain[-MOST // 2 :]}"
    return cut.replace("\n", "\n  ")
