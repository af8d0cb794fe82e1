"""The command line: one file a command, nothing heavy imported before a command needs it."""

from heddle.cli.app import main

__all__ = ["main"]
