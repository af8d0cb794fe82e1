"""A private folder for what processes of one command share while it runs: gone with it, however it ended.

The folder is locked for as long as the command lives, and the kernel lets go of a lock whoever was killed. So the next
command can tell a folder that is in use from one that was left behind, and removes the latter.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import IO, cast

PREFIX = "heddle-run-"
PATIENCE = 2.0  # seconds in which a command that was killed lets go of its folder


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new empty folder that only this user can look into, for as long as it is entered."""
    folder = Path(tempfile.mkdtemp(dir=scratch()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def scratch_of(folder: Path) -> Path:
    """The folder that has to be removed for whoever made this one in it, and was killed."""
    return next(path for path in folder.parents if path.name.startswith(PREFIX))


def remove_abandoned(folder: Path) -> None:
    """Remove what has to be for whoever was killed that made this folder; whoever lives keeps it."""
    left = scratch_of(folder)
    end = time.monotonic() + PATIENCE  # a process that dies lets go of one thing after the other
    while left.exists() and not _swept(left) and time.monotonic() < end:
        time.sleep(0.01)


@cache
def scratch() -> Path:
    """This process's own folder, made when it is first asked for."""
    sweep()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))  # mode 0700
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):  # another command may have swept it before the lock
            if os.path.samestat(folder.stat(), os.fstat(lock)):
                break
        os.close(lock)
    # Not by `atexit`: multiprocessing removes its own, which lies in this one, at priority -100, and insists on it.
    Finalize(None, shutil.rmtree, args=(folder, True), exitpriority=-200)
    return folder


def file_of_this_process() -> tuple[IO[str], str]:
    """A file to write to, and the name under which other processes of this machine can read it.

    On Linux no folder has it: the kernel removes it with its process, however that ends.
    """
    descriptors = Path(f"/proc/{os.getpid()}/fd")
    if not descriptors.is_dir():
        named = tempfile.NamedTemporaryFile("w", prefix="heddle-")  # noqa: SIM115 - open as long as its process
        return cast(IO[str], named), named.name
    file = cast(IO[str], tempfile.TemporaryFile("w"))  # noqa: SIM115
    return file, str(descriptors / str(file.fileno()))


def sweep() -> None:
    """Remove the folders of this user's commands that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        _swept(folder)


def _swept(folder: Path) -> bool:
    """Remove a folder, unless it is somebody else's, in use, or gone meanwhile."""
    with suppress(OSError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(lock).st_uid == os.getuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                return True
        finally:
            os.close(lock)
    return False
