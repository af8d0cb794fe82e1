"""The functions of a module, called from Python."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable
from typing import Any, cast

from heddle.errors import HeddleError
from heddle.native.llvm import binding, for_this_machine, load, parse_llvm

C_TYPES: dict[str, Any] = {
    "void": None, "i1": ctypes.c_bool, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32,
    "i64": ctypes.c_int64, "float": ctypes.c_float, "double": ctypes.c_double, "ptr": ctypes.c_void_p,
}  # fmt: skip


class Loaded:
    """A module in machine code. Its functions take addresses as they are: whoever calls them checks what they get."""

    def __init__(self, text: str) -> None:
        self.text = text
        parsed = parse_llvm(for_this_machine(text))
        _refuse_missing(parsed)
        for function in parsed.functions:
            if not function.is_declaration:
                function.name = _ascii(function.name)
        self._engine = load(parsed)

    def function(self, name: str, result: str, arguments: Iterable[str]) -> Callable[..., Any]:
        """One of its functions, by name and LLVM types."""
        signature = ctypes.CFUNCTYPE(C_TYPES[result], *(C_TYPES[a] for a in arguments))
        address = self._engine.get_function_address(_ascii(name))
        if not address:
            raise HeddleError(
                f"There is no machine code for '{name}'.",
                "LLVM may remove internal symbols when it compiles a module.",
                "Remove `internal`, `private` or `static`, or give it another name.",
            )
        function: Any = signature(address)
        function.code = self._engine  # which is unloaded with whoever holds it last
        return cast(Callable[..., Any], function)


def _ascii(name: str) -> str:
    """A name by which llvmlite finds a function; it knows no others."""
    return name if name.isascii() else f"heddle.{name.encode().hex()}"


def _refuse_missing(parsed: Any) -> None:
    """LLVM ends the process over what it cannot find, or runs into nothing when it is called."""
    llvm = binding()
    for declared in (*parsed.functions, *parsed.global_variables):
        name = declared.name
        if re.match(r"@\S+ = (?:\w+ )*thread_local\b", str(declared).strip()):
            raise HeddleError(
                f"'{name}' is thread-local (thread_local).",
                "Code that is compiled into a running process cannot have thread-local variables.",
                "Pass a pointer to it, or only write the IR: heddle lanes FILE -o kernel.ll.",
            )
        missing = declared.is_declaration and not name.startswith("llvm.")
        if missing and llvm.address_of_symbol(name) is None:
            weak = " (even if it may be missing: extern_weak)" if declared.linkage == llvm.Linkage.external_weak else ""
            raise HeddleError(
                f"'{name}' is used but not defined here.",
                f"To run, a module needs every function and variable it uses{weak}.",
                "Define it in the same file, or only write the IR: heddle lanes FILE -o kernel.ll.",
            )
