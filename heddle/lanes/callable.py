"""`heddle.lanes.compile`: IR or a Numba function in, a checked callable out."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from heddle.errors import HeddleError
from heddle.lanes import ir
from heddle.lanes.numba_functions import Marshal, native_part
from heddle.lanes.portfolio import Options, improve
from heddle.lanes.reach import IntegerRange, Pointer, Reach
from heddle.lanes.reports import FunctionReport
from heddle.native.loaded import C_TYPES, Loaded

_CONVENTION = re.compile(r"\b(?:\w*cc|cc \d+|amdgpu_\w+|ptx_\w+|spir_\w+)(?= )")
_PASSED_SPECIALLY = re.compile(
    r"\b(?:byval|sret|inalloca|preallocated|byref)\(|\b(?:nest|swiftself|swifterror|swiftasync)\b"
)
# What NumPy calls the numbers behind a pointer.
_NUMBERS = {
    "float": ("float32",), "double": ("float64",), "half": ("float16",), "i8": ("int8", "uint8", "bool"),
    "i16": ("int16", "uint16"), "i32": ("int32", "uint32"), "i64": ("int64", "uint64"),
}  # fmt: skip


class CompiledFunction(Loaded):
    """A function that was packed and checked, in machine code."""

    def __init__(
        self, text: str, wanted: Reach, report: FunctionReport, result: str, marshal: Marshal | None = None
    ) -> None:
        function = wanted.function
        ir.assembly(ir.for_this_machine(text), function.name)  # if LLVM crashes over it, then in a child
        super().__init__(text)
        self.report, self._marshal = report, marshal
        self.name, self.kinds = function.name, [function.types[a] for a in function.arguments]
        self._call = self.function(function.name, result, self.kinds)
        if marshal is None:
            # How far it reaches is that of the code that runs; what numbers it takes is what its author wrote.
            module = ir.take_apart(ir.named(ir.parse_llvm(text)))
            (made,) = ir.choose_functions(module, function.name)
            reach = Reach(made, module, wanted)
            self._needed = reach.needed
            places = [n for n, kind in enumerate(self.kinds) if kind == "ptr"]
            kinds = [each.kinds for each in wanted.pointers.values()]
            self._pointers = list(zip(places, reach.pointers.values(), map(_dtypes, kinds), strict=True))

    @property
    def assembly(self) -> str:
        return ir.assembly(ir.for_this_machine(self.text))

    def __call__(self, *arguments: Any) -> Any:
        if self._marshal is not None:
            return self._marshal(self._call, *arguments)
        if len(arguments) != len(self.kinds):
            raise HeddleError(
                f"{self.name} takes {len(self.kinds)} arguments, got {len(arguments)}.",
                f"In the IR they are: {', '.join(self.kinds) or 'none'}.",
                "Pass one value each: arrays for pointers, numbers for the rest.",
            )
        passed = [_passed(self.name, a, k) for a, k in zip(arguments, self.kinds, strict=True)]
        if self._pointers:
            needed = self._needed(tuple(p for p, k in zip(passed, self.kinds, strict=True) if k[0] == "i"))
            for (place, pointer, dtypes), span in zip(self._pointers, needed, strict=True):
                if isinstance(arguments[place], np.ndarray):
                    wrong = _wrong(arguments[place], passed[place], span, pointer, dtypes)
                    if wrong is not None:
                        raise HeddleError(f"{self.name} was given {wrong[0]} for argument {place + 1}.", *wrong[1:])
        return self._call(*passed)


def _dtypes(kinds: set[str]) -> frozenset[np.dtype[Any]]:
    """What an array may hold whose numbers the IR reads as these; none: anything, because it reads them in two ways."""
    (kind,) = kinds if len(kinds) == 1 else ("",)
    return frozenset(map(np.dtype, _NUMBERS.get(kind, ())))


def _wrong(
    array: np.ndarray[Any, Any],
    address: int,
    span: IntegerRange | None,
    pointer: Pointer,
    dtypes: frozenset[np.dtype[Any]],
) -> tuple[str, str, str] | None:
    """Why machine code would misread an array, or reach past its ends."""
    flags = array.flags
    if not flags.c_contiguous:
        why = "Machine code reads memory as it lies, without shapes and strides."
        return "an array with gaps", why, "Pass np.ascontiguousarray(array)."
    if dtypes and array.dtype not in dtypes:
        names = " or ".join(sorted(map(str, dtypes)))
        return f"an array of {array.dtype}", f"The function takes {names} there.", "Convert it first: array.astype."
    if pointer.written and not flags.writeable:
        return "a read-only array", "The function writes to it.", "Pass array.copy()."
    if span is None:
        why = "It depends on numbers in memory, on a loop whose end is not known, or on code elsewhere."
        hint = "If you are sure that the array is long enough, pass its address: array.ctypes.data."
        return "an array whose end it may pass: how far it reaches is not known before the call", why, hint
    if span.least < 0 or span.most > array.nbytes:
        what = f"an array of {array.nbytes} bytes, of which it would use bytes {span.least} to {span.most},"
        why = "Machine code does not know where an array ends, and would read or write beside it."
        return what, why, "Pass a longer array, or a smaller count."
    for align, offset in pointer.aligned:
        if (address + offset) % align and array.size:
            why = f"The function uses instructions that need a multiple of {align}."
            return f"an array at the address {address:#x}", why, "Pass array.copy(), which NumPy aligns."
    return None


def _passed(name: str, value: Any, kind: str) -> Any:
    """What machine code gets for an argument: the address of an array, or a number as it is."""
    if kind == "ptr" and isinstance(value, np.ndarray):
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
) -> CompiledFunction:
    """Pack a function and compile it for this machine.

    Args:
        source: LLVM IR as text, or a function that Numba has compiled.
        function: which one, if the IR has several.
        method: "auto", "llvm", "ilp", "policy" or "pairs".
        seconds: for the integer program, for each region.
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
            f"{function!r} is not a function name.", "A function is named as in the IR.", 'Pass text, such as "f".'
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
    return CompiledFunction(made.text, Reach(wanted, module), made.reports[0], result, marshal)


def _callable(function: ir.Function) -> str:
    """The type of the result, if Python can call the function."""
    before, _, behind = function.head.partition(function.written)
    result = re.search(r"((?:<[^>]*>|\{[^}]*\}|[\w]+)) $", before)
    kinds = [result[1] if result else "?", *(function.types[a] for a in function.arguments)]
    if not all(k in C_TYPES for k in kinds):
        raise HeddleError(
            f"'{function.name}' has {next(k for k in kinds if k not in C_TYPES)}, which Python can't pass.",
            "It can pass numbers and pointers, but not vectors and structures.",
            "Pass a pointer to it.",
        )
    special = _CONVENTION.search(before) or _PASSED_SPECIALLY.search(behind)
    if special is not None:
        raise HeddleError(
            f"'{function.name}' uses a non-C calling convention ({special[0].strip('( ')}).",
            "Python calls functions as C does, with numbers and pointers.",
            "Call it from a function with plain arguments in the same IR, and compile that one.",
        )
    return kinds[0]
