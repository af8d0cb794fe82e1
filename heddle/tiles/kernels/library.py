"""Kernels by what they are: written when first asked for, compiled through LLVM, and kept on disk by their content."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Protocol

from heddle.tiles.kernels.target import Target, llvm, this_cpu

FOLDER = "HEDDLE_TILES_CACHE"  # where compiled kernels and tuned sizes are kept; empty keeps nothing


class Kernel(Protocol):
    """A frozen dataclass whose fields say everything about the code that it writes."""

    def write(self, name: str, target: Target) -> str:
        """The function as LLVM IR."""


class Library:
    """Compiled kernels of this process; code is never unloaded, because tiles hold its addresses."""

    def __init__(self, target: Target) -> None:
        self.target, self.lock = target, threading.RLock()
        binding = llvm()
        self.binding = binding
        self.machine = binding.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=3, jit=True, codemodel="jitdefault"
        )
        self.engine = binding.create_mcjit_compiler(binding.parse_assembly(""), self.machine)
        self.addresses: dict[str, int] = {}
        self.modules: set[str] = set()
        self.compiled = 0  # those that were not on disk

    def address(self, kernel: Kernel) -> int:
        """Where a kernel's code is."""
        return self.function(repr(kernel), lambda name: kernel.write(name, self.target))

    def function(self, content: str, write: Callable[[str], str]) -> int:
        """The address of the code that `write` gives; `content` says what it is."""
        with self.lock:
            if content not in self.addresses:
                name = self._name(content)
                self._add(name, write)
                self.addresses[content] = self.engine.get_function_address(name)
            return self.addresses[content]

    def module_function(self, content: str, write: Callable[[str], str], name: str) -> int:
        """A function of a module that holds several; `write` gives it for a triple."""
        with self.lock:
            known = f"{content}.{name}"
            if known not in self.addresses:
                if content not in self.modules:
                    self._add(self._name(content), lambda _: write(self.target.triple))
                    self.modules.add(content)
                self.addresses[known] = self.engine.get_function_address(name)
            return self.addresses[known]

    def _name(self, content: str) -> str:
        key = f"{content}\n{self.target}\n{self.binding.llvm_version_info}\n{_generator()}"
        return f"heddle_{hashlib.sha256(key.encode()).hexdigest()[:32]}"

    def _add(self, name: str, write: Callable[[str], str]) -> None:
        folder = cache_folder()
        path = None if folder is None else folder / f"{name}.o"
        data = None if path is None else kept_code(path)
        if data is None:
            module = self.binding.parse_assembly(write(name))
            data = self.machine.emit_object(module)
            self.compiled += 1
            if path is not None:
                store(path, hashlib.sha256(data).digest() + data)
        self.engine.add_object_file(self.binding.ObjectFileRef.from_data(data))
        self.engine.finalize_object()


@cache
def library() -> Library:
    """The one library of this process."""
    return Library(this_cpu())


def cache_folder() -> Path | None:
    """Where kernels and tuned sizes are kept; None where nothing is."""
    chosen = os.environ.get(FOLDER)
    if chosen is not None:
        return Path(chosen) if chosen else None
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "heddle" / "tiles"
    except RuntimeError:  # nobody's home
        return None


def kept_code(path: Path) -> bytes | None:
    """Code that an earlier run kept behind its digest; None where there is none, or it is damaged or another user's.

    It will be run, and the loader believes what it is given: half a file would end the process.
    """
    with suppress(OSError), path.open("rb") as file:
        if os.fstat(file.fileno()).st_uid == os.getuid():
            digest, data = file.read(32), file.read()
            return data if hashlib.sha256(data).digest() == digest else None
    return None


def store(path: Path, data: bytes) -> None:
    """Write a file that is whole or not there; a full disk only costs the next start its time."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).replace(path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)


@cache
def _generator() -> str:
    """The content of the generator itself: another version writes other code."""
    digest = hashlib.sha256()
    for folder in (Path(__file__).parent, Path(__file__).parent.parent / "engine"):
        for file in sorted(folder.glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
