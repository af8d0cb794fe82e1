"""Timing: what is the same code counts as the same."""

import pytest

pytest.importorskip("llvmlite")

from heddle.lanes import ir
from heddle.lanes.timing import AGAIN, code_of, time_function

PLAIN = """define void @f(ptr %a) {
start:
  %x = load float, ptr %a, align 4
  %y = fadd float %x, 1.0
  store float %y, ptr %a, align 4
  ret void
}
"""
OTHER = PLAIN.replace("fadd", "fmul")
RENAMED = PLAIN.replace("%x", "%first").replace("%y", "%second").replace("start", "begin")
CALLS = "define void @g(ptr %a) {\n  ret void\n}\n" + PLAIN.replace("  ret", "  call void @g(ptr %a)\n  ret")


def test_names_do_not_make_other_code():
    assert code_of(PLAIN, "@f") == code_of(RENAMED, "@f") == code_of(OTHER.replace("fmul", "fadd"), "@f") != ""
    assert code_of(PLAIN, "@f") != code_of(OTHER, "@f")
    assert code_of(CALLS, "@f") == ""  # what it calls may be another function in another module


def test_the_same_code_takes_the_same_time():
    function = ir.take_apart(ir.named(ir.parse_llvm(PLAIN))).functions[0]
    taken = time_function({"scalar": RENAMED, "ilp": OTHER, "llvm": PLAIN}, function, rounds=3)
    assert taken["scalar"] == taken["llvm"]
    assert set(taken) == {"scalar", "ilp", "llvm", AGAIN}
    assert min(taken.values()) > 0
