"""The check: whatever goes in, right code passes and wrong code does not."""

import re

import pytest

pytest.importorskip("llvmlite")

from heddle.lanes import cost, ir, packs
from heddle.lanes.check import check
from heddle.lanes.check.promises import kept_by_all
from heddle.lanes.choose import ilp
from heddle.lanes.dependence import regions
from heddle.lanes.emit import emit


def packed(text):
    """The only region of a function, and the code that the integer program makes of it."""
    module = ir.take_apart(ir.named(ir.parse_llvm(text)))
    (region,) = regions(module.functions[0], module)
    graph = packs.build(region, cost.table("znver3"))
    found = ilp.solve(graph, 2.0)
    return region, emit(graph, found.packing, "lane"), module


def four(one, head="ptr noalias %o, ptr noalias %a, ptr noalias %b"):
    """Some lines for each of four lanes."""
    return f"define void @f({head}) {{\n" + "\n".join(one.replace("#", str(k)) for k in range(4)) + "\nret void\n}\n"


UNROLLED = four(
    """  %i# = or disjoint i64 %n, 1#
  %p# = getelementptr inbounds float, ptr %a, i64 %i#
  %x# = load float, ptr %p#, align 4
  %y# = fmul float %x#, 3.0
  %q# = getelementptr inbounds float, ptr %o, i64 %i#
  store float %y#, ptr %q#, align 4""",
    "ptr noalias %o, ptr noalias %a, i64 %n",
)
TO_SHORT = four(
    """  %p# = getelementptr inbounds float, ptr %a, i64 #
  %x# = load float, ptr %p#, align 4
  %y# = fmul float %x#, 32767.0
  %z# = fptosi float %y# to i16
  %q# = getelementptr inbounds i16, ptr %o, i64 #
  store i16 %z#, ptr %q#, align 2"""
)
SHIFTS = four(
    """  %p# = getelementptr inbounds i32, ptr %a, i64 #
  %x# = load i32, ptr %p#, align 4
  %r# = getelementptr inbounds i32, ptr %b, i64 #
  %n# = load i32, ptr %r#, align 4
  %y# = lshr i32 %x#, %n#
  %q# = getelementptr inbounds i32, ptr %o, i64 #
  store i32 %y#, ptr %q#, align 4"""
)


@pytest.mark.parametrize("text", [UNROLLED, TO_SHORT, SHIFTS], ids=["counter", "conversion", "shift"])
def test_right_code_passes_on_inputs_that_would_break_a_promise(text):
    region, made, module = packed(text)
    assert any(" x " in line for line in made.lines)
    assert check(region, made, module).equal


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [(UNROLLED, "fmul", "fadd"), (TO_SHORT, "fptosi", "fptoui"), (SHIFTS, "lshr", "ashr")],
    ids=["counter", "conversion", "shift"],
)
def test_wrong_code_does_not(text, right, wrong):
    region, made, module = packed(text)
    lines = [re.sub(rf"\b{right}\b", wrong, line) for line in made.lines]
    assert lines != made.lines
    made.lines = lines
    verdict = check(region, made, module)
    assert not verdict.equal
    assert "another result" in verdict.why


def test_lanes_keep_their_promises_like_scalars():
    lines, declared = kept_by_all(
        [
            "%a = shl nuw <4 x i16> %x, %n",
            "%b = fptoui <2 x double> %y to <2 x i8>",
            "%c = call i32 @llvm.abs.i32(i32 %z, i1 true)",
        ]
    )
    assert lines == [
        "%heddle.amount.0 = and <4 x i16> %n, splat (i16 15)",
        "%a = shl <4 x i16> %x, %heddle.amount.0",
        "%b = call <2 x i8> @llvm.fptoui.sat.v2i8.v2f64(<2 x double> %y)",
        "%c = call i32 @llvm.abs.i32(i32 %z, i1 false)",
    ]
    assert declared == {"declare <2 x i8> @llvm.fptoui.sat.v2i8.v2f64(<2 x double>)"}
