"""Functions by what they are: compiled when first asked for, and kept on disk by their content."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

from heddle.native.cache import CodeCache
from heddle.native.llvm import binding, load

_LOADED: list[Any] = []  # code of all libraries: it outlives them, because others hold its addresses


class Library:
    """Compiled functions of this process; code is never unloaded, not even with the library.

    `machine` compiles; `version` says what the code depends on beside its content; `cache` says where it is kept now.
    """

    def __init__(self, machine: Any, version: str, cache: Callable[[], CodeCache | None]) -> None:
        self.machine, self.version, self.cache = machine, version, cache
        self.engine = load(binding().parse_assembly(""), machine)
        _LOADED.append(
            self.engine
        )  # of two threads that are the first to ask, each makes a library, and one is dropped
        self.addresses: dict[tuple[str, str], int] = {}
        self.modules: set[str] = set()
        self.compiled = 0  # those that were not on disk
        self.lock = threading.RLock()

    def function(self, content: str, write: Callable[[str], str], name: str = "") -> int:
        """The address of a function; `content` says what its module is, and `write` gives that as LLVM IR.

        `write` is told a name for the function; a module that has several names them itself, and `name` is one.
        """
        with self.lock:
            known = content, name
            if known not in self.addresses:
                own = self._name(content)
                if own not in self.modules:
                    self._add(own, write)
                    self.modules.add(own)
                self.addresses[known] = self.engine.get_function_address(name or own)
            return self.addresses[known]

    def _name(self, content: str) -> str:
        key = f"{content}\n{self.version}\n{binding().llvm_version_info}"
        return f"heddle_{hashlib.sha256(key.encode()).hexdigest()[:32]}"

    def _add(self, name: str, write: Callable[[str], str]) -> None:
        cache = self.cache()
        data = None if cache is None else cache.read(f"{name}.o")
        if data is None:
            data = self.machine.emit_object(binding().parse_assembly(write(name)))
            self.compiled += 1
            if cache is not None:
                cache.write(f"{name}.o", data)
        self.engine.add_object_file(binding().ObjectFileRef.from_data(data))
        self.engine.finalize_object()
