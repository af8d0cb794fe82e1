"""LLVM is brought up in one place, and says in one way that it is not there."""

import ctypes
import gc
import sys
import weakref

import pytest

from heddle.errors import HeddleError
from heddle.native.library import Library
from heddle.native.llvm import binding, machine
from heddle.native.loaded import Loaded
from tests.helpers.commands import REPOSITORY


def test_a_machine_without_llvmlite_is_told_how_to_get_it(monkeypatch):
    binding.cache_clear()
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    with pytest.raises(HeddleError, match="llvmlite is not installed") as caught:
        binding()
    assert "[lanes]" in caught.value.hint
    assert "[tiles]" in caught.value.hint
    binding.cache_clear()


def test_nobody_else_brings_up_llvm():
    files = [path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "heddle").rglob("*.py")]
    using = ("llvmlite.binding", "create_mcjit_compiler", "create_target_machine", "initialize_native")
    found = {name for name in files if any(word in (REPOSITORY / name).read_text(encoding="utf-8") for word in using)}
    # the latter asks LLVM which CPUs it knows, in a child
    assert found == {"heddle/native/llvm.py", "heddle/lanes/ir/target.py"}


ANSWER = "define i64 @{name}() {{\n  ret i64 42\n}}\n"


def test_code_outlives_the_library_that_compiled_it():
    """Six threads that are the first to ask make six libraries; five are dropped while their addresses are in use."""
    library = Library(machine(), "", lambda: None)
    address, engine = library.function("answer", lambda name: ANSWER.format(name=name)), weakref.ref(library.engine)
    del library
    gc.collect()
    assert engine() is not None
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(address)() == 42


def test_a_function_keeps_its_own_code():
    module = Loaded(ANSWER.format(name="answer"))
    answer, engine = module.function("answer", "i64", []), weakref.ref(module._engine)
    del module
    gc.collect()
    assert engine() is not None
    assert answer() == 42
    del answer
    gc.collect()
    assert engine() is None
