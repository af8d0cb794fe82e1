"""One run, one set of processes: who writes to a run folder holds its lock.

The lock is the kernel's (flock), so it is free the moment that the last process which has the file open is gone,
however it went: nothing has to be cleaned up after kill -9. `heddle train` takes it before it starts processes, and
they inherit the open file: orphans of a killed launcher still hold it. Where another launcher starts the processes,
the first rank takes it; the others write nothing without the first. On NFS the server keeps the lock for all machines
(Linux turns flock into a lock of the server's); a file system that has no locks is told of, and trained on.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import reduction
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError

LOCK = "lock"  # the file's name in the run folder
PATIENCE = 5.0  # seconds that the processes of a killed launcher have to notice that it is gone
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)  # what file systems without locks say


@dataclass(frozen=True)
class RunLock:
    """An open file that holds a lock; a process that gets it as an argument when it is started holds it, too."""

    descriptor: int

    def __reduce__(self) -> Any:
        return _inherit, (reduction.DupFd(self.descriptor),)


def _inherit(passed: Any) -> RunLock:
    return RunLock(passed.detach())


@contextmanager
def locked(folder: Path, warn: Callable[[str], None]) -> Iterator[RunLock]:
    """Hold the lock of a run folder, which is made if need be, and is gone again if nothing came into it."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        descriptor = _take(folder, warn)
    except OSError as error:
        raise HeddleError(
            f"The run folder {folder} cannot be written.",
            f"Its file '{LOCK}' is a link, which is not followed."
            if error.errno == errno.ELOOP
            else f"{error.strerror}.",
            "Choose another place with [train] runs, or --set train.runs=FOLDER.",
        ) from None
    try:
        yield RunLock(descriptor)
    finally:
        if made and not begun(folder):
            (folder / LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # others may have come into the outer ones
                for each in made:
                    each.rmdir()
        os.close(descriptor)


def begun(folder: Path) -> bool:
    """Whether there is anything in a run folder but the lock of one that is about to be made."""
    return folder.exists() and (not folder.is_dir() or any(path.name != LOCK for path in folder.iterdir()))


def _take(folder: Path, warn: Callable[[str], None]) -> int:
    end = time.monotonic() + PATIENCE
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        # Not where a link leads, whose file would be written over, and not into a pipe.
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, f"What is called '{LOCK}' in it is not a file")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_there(folder, descriptor):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
                return descriptor
        except BlockingIOError:
            if time.monotonic() > end:
                holder = os.pread(descriptor, 1000, 0).decode(errors="replace")
                os.close(descriptor)
                raise _in_use(folder, holder) from None
            time.sleep(0.05)
        except OSError as error:
            if error.errno in NO_LOCKS:
                warn(f"{folder} is on a file system without locks: make sure that no other process trains there.")
                return descriptor
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_there(folder: Path, descriptor: int) -> bool:
    """Whether the locked file is still the one of that name: whoever had it may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), (folder / LOCK).stat())
    except FileNotFoundError:
        return False


def _in_use(folder: Path, holder: str) -> HeddleError:
    pid, _, host = holder.strip().partition(" ")
    who = f"Process {pid} on {host}" if pid.isdecimal() and host else "Another process"
    here = host == socket.gethostname() and pid.isdecimal()
    if here and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
        why, hint = f"{who} is gone, but processes that it started still run.", "End them, then continue with --resume."
    else:
        why = f"{who} trains there."
        hint = "Wait for it to end or stop it with Ctrl-C; for a separate run, choose another --name."
    return HeddleError(f"The run folder {folder} is in use.", why, hint)
