"""The kernels of this process, by what they are."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Protocol

from heddle.native.cache import CodeCache, user_folder
from heddle.native.library import Library
from heddle.native.llvm import machine
from heddle.tiles.kernels.target import Target, this_cpu

FOLDER = "HEDDLE_TILES_CACHE"  # where compiled kernels and tuned sizes are kept; empty keeps nothing


class Kernel(Protocol):
    """A frozen dataclass whose fields say everything about the code that it writes."""

    def write(self, name: str, target: Target) -> str:
        """The function as LLVM IR."""


class KernelLibrary(Library):
    """A library of kernels for one kind of CPU."""

    def __init__(self, target: Target) -> None:
        super().__init__(machine(target.cpu, target.features), f"{target}\n{_generator()}", kernel_cache)
        self.target = target

    def address(self, kernel: Kernel) -> int:
        """Where a kernel's code is."""
        return self.function(repr(kernel), lambda name: kernel.write(name, self.target))


@cache
def library() -> KernelLibrary:
    """The one library of this process."""
    return KernelLibrary(this_cpu())


def kernel_cache() -> CodeCache | None:
    """Where kernels and tuned sizes are kept; None where nothing is."""
    chosen = os.environ.get(FOLDER)
    if chosen is not None:
        return CodeCache(Path(chosen), FOLDER) if chosen else None
    folder = user_folder("tiles")
    return None if folder is None else CodeCache(folder)


@cache
def _generator() -> str:
    """The content of the generator itself: another version writes other code."""
    digest = hashlib.sha256()
    for folder in (Path(__file__).parent, Path(__file__).parent.parent / "engine"):
        for file in sorted(folder.glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
