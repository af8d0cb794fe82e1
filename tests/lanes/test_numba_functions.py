"""Numba's calling convention, with types that say of themselves what Numba's do."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from heddle.errors import HeddleError
from heddle.lanes.numba_functions import Marshal, native_part


class Kind(str):
    """A type of Numba's: a number, or an array if it says of what."""

    def __new__(cls, name, of=None, ndim=1, layout="C"):
        made = super().__new__(cls, name)
        if of is not None:
            made.dtype, made.ndim, made.layout = Kind(of), ndim, layout  # type: ignore[attr-defined]
        return made


VECTOR = Kind("array(float64, 1d, C)", "float64")
COLUMNS = Kind("array(float64, 2d, F)", "float64", 2, "F")


def marshal(*arguments, returns="none"):
    return Marshal("f", SimpleNamespace(args=arguments, return_type=Kind(returns)))


def test_arrays_go_in_parts_and_numbers_as_they_are():
    given = []
    f = marshal(VECTOR, Kind("int64"), Kind("float32"), Kind("bool"))
    x = np.zeros(3)
    assert f(lambda *all_of_it: given.extend(all_of_it[2:]) or 0, x, np.int32(4), 1, np.True_) is None
    assert given == [0, 0, 3, 8, x.ctypes.data, 3, 8, 4, 1.0, 1]


@pytest.mark.parametrize(
    ("argument", "returns", "says"),
    [
        ("unicode_type", "int64", "takes unicode_type"),
        ("complex128", "none", "takes complex128"),
        ("UniTuple(float64 x 2)", "none", "takes UniTuple"),
        ("int64", "UniTuple(float64 x 2)", "returns UniTuple"),
        ("int64", "array(float64, 1d, C)", "returns array"),
        ("int64", "OptionalType(float64)", "returns OptionalType"),
    ],
)
def test_what_cannot_be_passed_is_refused_before_any_work(argument, returns, says):
    with pytest.raises(HeddleError, match=says) as caught:
        marshal(Kind(argument), returns=returns)
    assert caught.value.why
    assert caught.value.hint


def test_another_type_than_it_was_compiled_for():
    called = []
    for kind, wrong in (
        (VECTOR, [1.0]),
        (VECTOR, np.zeros(3, np.float32)),
        (VECTOR, np.zeros((3, 3))),
        (VECTOR, np.zeros(6)[::2]),
        (COLUMNS, np.zeros((3, 3))),
        (Kind("int64"), 3.5),
        (Kind("float64"), "x"),
        (Kind("float64"), 10**400),
        (Kind("int32"), 2**31),
    ):
        with pytest.raises(HeddleError, match="f was given"):
            marshal(kind)(called.append, wrong)
    with pytest.raises(HeddleError, match="takes 1 arguments, got 0"):
        marshal(VECTOR)(called.append)
    assert called == []


def test_an_exception_is_told_of():
    with pytest.raises(HeddleError, match="raised an exception"):
        marshal(Kind("int64"))(lambda *_: 1, 2)


def test_only_what_numba_compiled_has_ir():
    with pytest.raises(HeddleError, match="neither LLVM IR nor a function"):
        native_part(print)
    with pytest.raises(HeddleError, match="has not been compiled yet"):
        native_part(SimpleNamespace(inspect_llvm=dict))
