"""The command line: one file per command, nothing heavy imported before a command needs it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType


def main() -> None:
    """Run a command. Ctrl-C while it still imports what it needs ends it as later on: with a word, not a traceback."""
    ours = threading.current_thread() is threading.main_thread()
    ours = ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        from heddle.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("Stopped.\n")
        sys.exit(130)
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    """Ctrl-C. Raised within an import it might be taken for a missing module, or leave half of one behind."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            sys.stderr.write("Stopped.\n")
            sys.stderr.flush()
            server = sys.modules.get("heddle.runtime.forkserver")
            if server is not None and hasattr(server, "abandon"):  # not while that module itself is imported
                server.abandon()
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


__all__ = ["main"]
