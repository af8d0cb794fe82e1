"""What is kept on disk of code that will run: in a folder of this user alone, and checked before it is believed.

Whoever can put a file there runs code as this user. So the folder belongs to the user and nobody else may write to it,
links are not followed, and each file begins with a digest of its name and content under a key that lies beside it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hmac import compare_digest
from pathlib import Path

from heddle.errors import HeddleError
from heddle.files import shown

KEY, SIZE = "key", 32  # the file of the key; bytes of it, and of a digest
LARGEST = 64 << 20  # bytes of a file: an object has a few thousand


class CodeCache:
    """Files by name in a private folder."""

    def __init__(self, folder: Path, chosen: str = "") -> None:
        """`chosen`: the variable by which a user chose the folder; they are told where it cannot be used."""
        self.folder, self.chosen = folder, chosen

    def read(self, name: str) -> bytes | None:
        """What was written; None where it was not, or not by us, or has changed since."""
        with self._opened() as folder:
            found = b"" if folder is None else _read(folder, name)
            if folder is not None and len(found) > SIZE and compare_digest(found[:SIZE], _digest(folder, name, found)):
                return found[SIZE:]
        return None

    def write(self, name: str, data: bytes) -> None:
        """All of it or nothing; a full disk only costs the next start its time."""
        with self._opened() as folder:
            if folder is not None:
                _write(folder, name, _digest(folder, name, bytes(SIZE) + data) + data)

    @contextmanager
    def _opened(self) -> Iterator[int | None]:
        """The folder, made where it is missing; what is done through it reaches no other, whatever its path becomes."""
        try:
            folder = private(self.folder, ours=not self.chosen)
        except (OSError, ValueError) as error:
            if self.chosen:
                reason = getattr(error, "strerror", None) or "The name holds the character NUL"
                raise HeddleError(
                    f"{self.chosen} names {shown(self.folder)}, which cannot hold compiled code: {reason}.",
                    "What lies there is run, so nobody else may be able to write to it.",
                    f"Name a folder of your own (mkdir -m 700 FOLDER), or set {self.chosen}= to keep nothing.",
                ) from None
            yield None
            return
        try:
            yield folder
        finally:
            os.close(folder)


def private(folder: Path, ours: bool = True) -> int:
    """A descriptor of a folder that this user alone may write to; an OSError says why there is none.

    `ours`: nobody keeps anything else there, so that its permissions may be mended.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    found = os.fstat(handle)
    reason = ""
    if found.st_uid != os.getuid():
        reason = "It belongs to another user"
    elif stat.S_IMODE(found.st_mode) & 0o022:
        if ours:
            os.fchmod(handle, 0o700)
        else:
            reason = "Other users may write to it"
    if reason:
        os.close(handle)
        raise PermissionError(errno.EACCES, reason)
    return handle


def user_folder(name: str) -> Path | None:
    """A folder among this user's caches; None where they have no home."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "heddle" / name
    except RuntimeError:
        return None


def _read(folder: int, name: str) -> bytes:
    """A plain file of this user; nothing where it is anything else: no link is followed, no pipe waited for."""
    with suppress(OSError):
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and found.st_size <= LARGEST:
                return file.read(LARGEST)
    return b""


def _write(folder: int, name: str, data: bytes) -> None:
    partial = f".{secrets.token_hex(8)}"
    with suppress(OSError):
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(partial, dir_fd=folder)


def _digest(folder: int, name: str, found: bytes) -> bytes:
    """Of a file's content behind its own digest, and of its name: no file can stand in for another."""
    if len(_read(folder, KEY)) != SIZE:
        _write(folder, KEY, secrets.token_bytes(SIZE))
    # Read back, since several processes may begin at once; without a key, on a full disk, nothing is believed.
    key = _read(folder, KEY)
    key = key if len(key) == SIZE else secrets.token_bytes(SIZE)
    return hashlib.blake2b(name.encode() + b"\0" + found[SIZE:], key=key, digest_size=SIZE).digest()
