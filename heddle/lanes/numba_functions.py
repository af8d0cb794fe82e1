"""Functions that Numba compiled: their IR, and how their arguments go in and results come out."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from heddle.errors import HeddleError
from heddle.lanes import ir


def native_part(function: Callable[..., Any]) -> tuple[str, str, Any]:
    """The IR of the first signature a function was compiled for, the name of its native code, and the signature."""
    if not hasattr(function, "inspect_llvm"):
        raise HeddleError(
            f"{function!r} is neither LLVM IR nor a function that Numba compiled.",
            "Lanes pack LLVM IR.",
            "Give the IR as text, or decorate the function with @numba.njit.",
        )
    made = list(function.inspect_llvm().items())
    if not made:
        raise HeddleError(
            f"{function!r} has not been compiled yet.",
            "A Numba function has IR once it has been called or given a signature.",
            "Call it once, or write @njit('void(float32[::1])').",
        )
    arguments, text = made[0]
    compiled = function.overloads[arguments]  # type: ignore[attr-defined]
    name = str(compiled.fndesc.llvm_func_name)
    module = ir.parse_llvm(str(text), f"The IR of {function.__name__}")
    for other in module.functions:
        if not other.is_declaration and other.name != name:
            other.linkage = "internal"  # wrappers for Python, which need its symbols: nobody calls them here
    return str(module), name, compiled.signature


class Marshal:
    """Numba's calling convention: a place for the result, one for an exception, then arrays in parts, and numbers."""

    def __init__(self, name: str, signature: Any) -> None:
        self.name, self.signature = name, signature
        for kind in signature.args:
            if _number(getattr(kind, "dtype", kind)) is None or (_number(kind) or np.dtype(int)).kind == "c":
                raise self._foreign(f"takes {kind}")
        self.result = _number(signature.return_type)
        if self.result is None and str(signature.return_type) != "none":
            raise self._foreign(f"returns {signature.return_type}")

    def _foreign(self, what: str) -> HeddleError:
        return HeddleError(
            f"{self.name} {what}, which packed code cannot pass.",
            "It takes arrays and real numbers, and returns nothing or one number, in Numba's calling convention.",
            "Take an array for the result as an argument, and pass tuples and complex numbers in arrays.",
        )

    def __call__(self, call: Callable[..., int], *arguments: Any) -> Any:
        if len(arguments) != len(self.signature.args):
            raise HeddleError(
                f"{self.name} takes {len(self.signature.args)} arguments, got {len(arguments)}.",
                f"It was compiled as {self.signature}.",
                "Call it like the original function.",
            )
        given: list[Any] = []
        for value, kind in zip(arguments, self.signature.args, strict=True):
            given += self._array(value, kind) if hasattr(kind, "ndim") else [self._scalar(value, kind)]
        place, exception = ctypes.create_string_buffer(16), ctypes.c_void_p()
        status = call(ctypes.addressof(place), ctypes.addressof(exception), *given)
        if status not in (0, -2):  # -2 is None
            raise HeddleError(
                f"{self.name} raised an exception.",
                "Packed code cannot pass on Python exceptions.",
                "Call the Numba function itself with the same arguments to see which.",
            )
        return None if self.result is None else np.frombuffer(place.raw, self.result, 1)[0].item()

    def _scalar(self, value: Any, kind: Any) -> int | float:
        try:
            dtype = np.dtype(str(kind))
            if dtype.kind == "f":
                return float(value)
            number = operator.index(bool(value) if isinstance(value, np.bool_) else value)
        except (TypeError, ValueError, OverflowError):
            raise self._another(value, kind) from None
        least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if not least <= number <= most:
            raise self._another(value, kind)
        return number

    def _array(self, value: Any, kind: Any) -> list[int]:
        if not isinstance(value, np.ndarray) or value.ndim != kind.ndim or value.dtype != np.dtype(str(kind.dtype)):
            raise self._another(value, kind)
        if (kind.layout == "C" and not value.flags.c_contiguous) or (
            kind.layout == "F" and not value.flags.f_contiguous
        ):
            raise HeddleError(
                f"{self.name} was given an array with gaps, or in another order.",
                f"It takes {kind}.",
                f"Pass np.as{'contiguous' if kind.layout == 'C' else 'fortran'}array(array).",
            )
        if (getattr(kind, "mutable", True) and not value.flags.writeable) or not value.flags.aligned:
            raise HeddleError(
                f"{self.name} was given an array that is {'read-only' if value.flags.aligned else 'not aligned'}.",
                f"It takes {kind}, and may write to it.",
                "Pass array.copy().",
            )
        return [0, 0, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides]

    def _another(self, value: Any, kind: Any) -> HeddleError:
        return HeddleError(
            f"{self.name} was given {type(value).__name__} {getattr(value, 'dtype', '')}".rstrip() + f" for {kind}.",
            "Packed code only takes the types that its function was compiled for.",
            f"It was compiled as {self.signature}.",
        )


def _number(kind: Any) -> np.dtype[Any] | None:
    """Numba's type as NumPy's, if it is a number."""
    try:
        found = np.dtype(str(kind))
    except (TypeError, ValueError, SyntaxError):
        return None
    return found if found.kind in "biufc" else None
