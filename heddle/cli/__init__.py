"""The command line: one file a command, nothing heavy imported before a command needs it."""

from __future__ import annotations

import sys


def main() -> None:
    """Run a command. Ctrl-C while it still imports what it needs ends it as later on: with a word, not a traceback."""
    try:
        from heddle.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("Stopped.\n")
        sys.exit(130)


__all__ = ["main"]
