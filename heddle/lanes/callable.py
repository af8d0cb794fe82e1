"""`heddle.lanes.compile`: IR or a Numba function in, a checked callable out."""

from __future__ import annotations

import ctypes
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

from heddle.errors import HeddleError
from heddle.lanes import ir
from heddle.lanes.numba_functions import Marshal, native_part
from heddle.lanes.portfolio import Options, improve
from heddle.lanes.reports import FunctionReport

_C_TYPES: dict[str, Any] = {
    "void": None, "i1": ctypes.c_bool, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32,
    "i64": ctypes.c_int64, "float": ctypes.c_float, "double": ctypes.c_double, "ptr": ctypes.c_void_p,
}  # fmt: skip
_CONVENTION = re.compile(r"\b(?:\w*cc|cc \d+|amdgpu_\w+|ptx_\w+|spir_\w+)(?= )")
_PASSED_SPECIALLY = re.compile(
    r"\b(?:byval|sret|inalloca|preallocated|byref)\(|\b(?:nest|swiftself|swifterror|swiftasync)\b"
)


class Loaded:
    """Functions of a module in machine code, as it is. For pointers go in arrays, or whatever has `.ctypes`."""

    def __init__(self, text: str) -> None:
        llvm = ir.binding()
        self.text = text
        parsed = ir.parse_llvm(ir.for_this_machine(text))
        _refuse_missing(parsed)
        for function in parsed.functions:
            if not function.is_declaration:
                function.name = _ascii(function.name)
        self._machine = ir.machine()
        self._engine = llvm.create_mcjit_compiler(parsed, self._machine)
        self._engine.finalize_object()

    def function(self, name: str, result: str, arguments: Iterable[str]) -> Callable[..., Any]:
        """One of them, by its name and LLVM types."""
        signature = ctypes.CFUNCTYPE(_C_TYPES[result], *(_C_TYPES[a] for a in arguments))
        address = self._engine.get_function_address(_ascii(name))
        if not address:
            raise HeddleError(
                f"There is no machine code for '{name}'.",
                "What is internal to a module may go when it is compiled; and names are of plain text.",
                "Take `internal`, `private` or `static` away from it, or give it another name.",
            )
        return signature(address)

    @property
    def assembly(self) -> str:
        return ir.assembly(ir.for_this_machine(self.text))


def _ascii(name: str) -> str:
    """A name by which llvmlite finds a function; it knows no others."""
    return name if name.isascii() else f"heddle.{name.encode().hex()}"


def _refuse_missing(parsed: Any) -> None:
    """LLVM ends the process over what it cannot find, or runs into nothing when it is called."""
    llvm = ir.binding()
    for declared in (*parsed.functions, *parsed.global_variables):
        name = declared.name
        if re.match(r"@\S+ = (?:\w+ )*thread_local\b", str(declared).strip()):
            raise HeddleError(
                f"'{name}' is a variable of each thread (thread_local).",
                "Code that is compiled into a running process has no place for those.",
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


class Compiled(Loaded):
    """A function that was packed and checked, in machine code."""

    def __init__(
        self, text: str, function: ir.Function, report: FunctionReport, result: str, marshal: Marshal | None = None
    ) -> None:
        ir.assembly(ir.for_this_machine(text), function.name)  # if LLVM crashes over it, then in a child
        super().__init__(text)
        self.report, self._marshal = report, marshal
        self.name, self.kinds = function.name, [function.types[a] for a in function.arguments]
        self._call = self.function(function.name, result, self.kinds)

    def __call__(self, *arguments: Any) -> Any:
        if self._marshal is not None:
            return self._marshal(self._call, *arguments)
        if len(arguments) != len(self.kinds):
            raise HeddleError(
                f"{self.name} takes {len(self.kinds)} arguments, got {len(arguments)}.",
                f"In the IR they are: {', '.join(self.kinds) or 'none'}.",
                "Pass one value each: arrays for pointers, numbers for the rest.",
            )
        return self._call(*(_passed(self.name, a, k) for a, k in zip(arguments, self.kinds, strict=True)))


def _passed(name: str, value: Any, kind: str) -> Any:
    """What machine code gets for an argument: the address of an array, or a number as it is."""
    if kind == "ptr" and hasattr(value, "ctypes"):
        if hasattr(value, "flags") and not value.flags.c_contiguous:
            raise HeddleError(
                f"{name} was given an array with gaps.",
                "Machine code reads memory as it lies, without shapes and strides.",
                "Pass np.ascontiguousarray(array).",
            )
        return value.ctypes.data
    try:
        number = float(value) if kind in ("float", "double") else operator.index(value)
    except (TypeError, ValueError, OverflowError) as error:
        wants = "an array, or an address as an integer" if kind == "ptr" else "a number"
        raise HeddleError(
            f"{name} was given {type(value).__name__} for {kind}.",
            f"For {kind} machine code takes {wants}{', and this one is too large' * isinstance(error, OverflowError)}.",
            "Convert it first: np.array for lists, int or float for numbers.",
        ) from error
    bits = 64 if kind == "ptr" else ir.BITS[kind]
    if isinstance(number, int) and not -(1 << bits - 1) * (kind not in ("ptr", "i1")) <= number < 1 << bits:
        raise HeddleError(
            f"{name} was given {number if abs(number) < 1 << 128 else 'a number of many digits'} for {kind}.",
            f"{kind} has {bits} bit{'s' * (bits > 1)}, signed or not.",
            "Pass a smaller number, or give the argument a wider type.",
        )
    return number


def compile(  # noqa: A001
    source: str | Callable[..., Any],
    function: str | None = None,
    *,
    method: str = "auto",
    seconds: float = 10.0,
    family: str | None = None,
) -> Compiled:
    """Pack a function and compile it for this machine.

    Args:
        source: LLVM IR as text, or a function that Numba has compiled.
        function: which one, if the IR has several.
        method: "auto", "llvm", "ilp", "policy" or "pairs".
        seconds: for the programme, for each region.
        family: whose costs; those nearest to this machine if not given.

    >>> import numpy as np, heddle
    >>> add = heddle.lanes.compile('''define void @add(ptr noalias %o, ptr %a) {
    ...   %x = load float, ptr %a, align 4
    ...   %q = getelementptr i8, ptr %a, i64 4
    ...   %y = load float, ptr %q, align 4
    ...   %u = fadd float %x, 1.0
    ...   %v = fadd float %y, 1.0
    ...   store float %u, ptr %o, align 4
    ...   %p = getelementptr i8, ptr %o, i64 4
    ...   store float %v, ptr %p, align 4
    ...   ret void
    ... }''')
    >>> a, o = np.array([1, 2], np.float32), np.zeros(2, np.float32)
    >>> add(o, a)
    >>> o.tolist()
    [2.0, 3.0]
    """
    marshal = None
    if function is not None and not isinstance(function, str):
        raise HeddleError(
            f"{function!r} is no name of a function.", "A function is named as in the IR.", 'Pass text, such as "f".'
        )
    if isinstance(source, str):
        text = source
    else:
        text, function, signature = native_part(source)
        marshal = Marshal(getattr(source, "__name__", function), signature)
    text = ir.fitted(text, "The IR")
    module = ir.take_apart(ir.named(ir.parse_foreign(text)))
    chosen = ir.choose_functions(module, function)
    if len(chosen) > 1:
        raise HeddleError(
            f"The IR has {len(chosen)} functions.",
            "One of them becomes the callable.",
            f"Name it: {', '.join(f.name for f in chosen[:5])}.",
        )
    (wanted,) = chosen
    result = _callable(wanted)
    made = improve(text, Options(method=method, seconds=seconds, family=family), wanted.name)
    return Compiled(made.text, wanted, made.reports[0], result, marshal)


def _callable(function: ir.Function) -> str:
    """The type of the result, if Python can call the function."""
    before, _, behind = function.head.partition(function.written)
    result = re.search(r"((?:<[^>]*>|\{[^}]*\}|[\w]+)) $", before)
    kinds = [result[1] if result else "?", *(function.types[a] for a in function.arguments)]
    if not all(k in _C_TYPES for k in kinds):
        raise HeddleError(
            f"'{function.name}' has {next(k for k in kinds if k not in _C_TYPES)}, which Python can't pass.",
            "It can pass numbers and pointers, but not vectors and structures.",
            "Pass a pointer to it.",
        )
    special = _CONVENTION.search(before) or _PASSED_SPECIALLY.search(behind)
    if special is not None:
        raise HeddleError(
            f"'{function.name}' is called in a way of its own ({special[0].strip('( ')}).",
            "Python calls functions as C does, with numbers and pointers.",
            "Call it from a function with plain arguments in the same IR, and compile that one.",
        )
    return kinds[0]
