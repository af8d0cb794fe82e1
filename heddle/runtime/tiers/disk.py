"""A file on disk, which has no name: the kernel forgets it with the last process that holds it, however that ended.

Activations are written and read by a thread of their own, so that a failing disk is an error that can be told. What
stays from step to step is mapped into memory: the kernel writes what changed, and reads what is asked for ahead.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from heddle.errors import HeddleError
from heddle.runtime.tiers.tier import PAGE, Slot, Tier

BLOCK = 1 << 26  # bytes of the file that are mapped at once, at least


class Disk(Tier):
    """One file; regions of it are handed out from its end."""

    name = "disk"

    def __init__(self, folder: Path | str | None = None) -> None:
        super().__init__()
        self.folder = Path(folder or tempfile.gettempdir())
        self.file = -1  # opened when something is put there
        self.end = 0
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="disk tier")
        self.block: tuple[mmap.mmap, int, int] | None = None  # a map, where it starts in the file, bytes of it in use
        self.homes: dict[int, tuple[mmap.mmap, int, int]] = {}  # by address: where what was reserved is, and its bytes

    def _region(self, size: int) -> int:
        """Where so many bytes of the file start, which are taken at once."""
        start = self.end
        self._take(start, size)
        self.end += size
        return start

    def _take(self, start: int, size: int, now: bool = True) -> None:
        """Take room on the disk for so many bytes from there on, now or later: that it is full is found out here."""
        try:
            if self.file < 0:
                self.file = _nameless(self.folder)
                weakref.finalize(self, os.close, self.file)  # maps hold it on their own
            if now:
                os.posix_fallocate(self.file, start, size)
            else:
                os.ftruncate(self.file, start + size)
        except OSError as error:
            raise self._failed("take what leaves the device", error) from error

    def _home(self, size: int) -> Tensor:
        if any(isinstance(mode, FakeTensorMode) for mode in _get_current_dispatch_mode_stack()):
            return torch.zeros(size, dtype=torch.uint8)
        room = -(-size // PAGE) * PAGE
        mapped, start, used = self._block(room)
        self._take(start + used, room)
        home = torch.frombuffer(mapped, dtype=torch.uint8, count=room, offset=used)
        self.block = mapped, start, used + room
        self.homes[home.data_ptr()] = mapped, used, room
        return home

    def _block(self, room: int) -> tuple[mmap.mmap, int, int]:
        """A part of the file that is mapped as one, for much that is reserved: each map has a descriptor of its own."""
        if self.block is None or self.block[2] + room > len(self.block[0]):
            size, start = max(room, BLOCK, self.end // 8 // PAGE * PAGE), self.end  # the larger, the fewer
            try:
                self._take(start, size, now=False)
            except HeddleError:  # files may not be as long here
                self._take(start, size := room, now=False)
            self.end += size
            self.block = mmap.mmap(self.file, size, offset=start), start, 0
        return self.block

    def expect(self, home: Tensor) -> None:
        self._advise(home, mmap.MADV_WILLNEED)

    def leave(self, home: Tensor) -> None:
        self._advise(home, mmap.MADV_DONTNEED)  # of a shared file: what was changed is written, not forgotten

    def _advise(self, home: Tensor, what: int) -> None:
        found = self.homes.get(home.untyped_storage().data_ptr()) if self.homes else None
        if found is not None:
            mapped, start, room = found
            mapped.madvise(what, start, room)

    def _write(self, slot: Slot, region: object, x: Tensor) -> None:
        assert isinstance(region, int)
        slot.region = region
        future = self.thread.submit(self._put, region, [x])
        slot.wait = future.result

    def _put(self, start: int, only: list[Tensor]) -> None:
        # out of the list: what the thread was given would live until it is given something else
        left = memoryview(only.pop().cpu().numpy().data)
        try:
            while left:
                done = os.pwrite(self.file, left, start)
                left, start = left[done:], start + done
        except OSError as error:
            raise self._failed("take activations", error) from error

    def _begin(self, slot: Slot) -> None:
        value = torch.empty(slot.size, dtype=torch.uint8)
        slot.coming = self.thread.submit(self._get, slot.region, value)

    def _get(self, start: int, value: Tensor) -> Tensor:
        left = memoryview(value.numpy().data)
        try:
            while left:
                done = os.preadv(self.file, [left], start)
                if done == 0:
                    raise OSError(0, "the file ends too early")
                left, start = left[done:], start + done
        except OSError as error:
            raise self._failed("give activations back", error) from error
        return value

    def _read(self, slot: Slot) -> Tensor:
        future, slot.coming = slot.coming, None
        assert isinstance(future, Future)
        value: Tensor = future.result()
        return value.to(slot.device)

    def _failed(self, what: str, error: OSError) -> HeddleError:
        return HeddleError(
            f"The file that offload uses in {self.folder} could not {what}.",
            f"{error.strerror or error}.",
            "The last checkpoint is untouched. Free space or set train.offload_folder, then --resume.",
        )


def _nameless(folder: Path) -> int:
    """A new file that has no name, from the beginning where the file system can do that."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except (OSError, AttributeError):
        file, name = tempfile.mkstemp(prefix="heddle-offload-", dir=folder)
        Path(name).unlink()
        return file
