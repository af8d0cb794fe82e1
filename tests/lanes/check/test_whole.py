"""Whole functions beside the scalar ones: wrong code of any candidate is not chosen."""

import pytest

pytest.importorskip("llvmlite")

from heddle.lanes import ir, portfolio, settle
from heddle.lanes.check.whole import differing
from heddle.lanes.emit import combine
from heddle.lanes.portfolio import Options, improve, read


def four(one, head="ptr noalias %o, ptr noalias %a, i32 %n"):
    lines = (one.replace("#", str(k)).replace("@", str(4 * k)) for k in range(4))
    return f"define void @f({head}) {{\n" + "\n".join(lines) + "\n  ret void\n}\n"


SUM = four("""  %p# = getelementptr inbounds i8, ptr %a, i64 @
  %x# = load i32, ptr %p#, align 4
  %y# = add nsw i32 %x#, 77
  %q# = getelementptr inbounds i8, ptr %o, i64 @
  store i32 %y#, ptr %q#, align 4""")


def told(scalar, other):
    module = ir.take_apart(read(scalar))
    return differing(module, {"other": ir.named(ir.parse_llvm(other))}, [(f, "other") for f in module.functions])


LARGE = SUM.replace("77", "2000000000")
# The same but for sums that overflow, which it makes zero.
WIDER = """%w = sext i32 %x2 to i64
  %z = add i64 %w, 2000000000
  %c = icmp sgt i64 %z, 2147483647
  %t = trunc i64 %z to i32
  %y2 = select i1 %c, i32 0, i32 %t"""
PROMOTED = "define void @f(ptr %o, <4 x i32> %a, i32 %n) {\n  store <4 x i32> %a, ptr %o\n  ret void\n}\n"
CRASH = "store volatile i32 1, ptr inttoptr (i64 8 to ptr)\n  ret void"


@pytest.mark.parametrize(
    ("scalar", "other", "differs"),
    [
        (SUM, SUM, False),
        (SUM, SUM.replace("i32 %x2, 77", "i32 %x2, 78"), True),
        (LARGE, LARGE.replace("%y2 = add nsw i32 %x2, 2000000000", WIDER), False),
        (LARGE.replace(" nsw", ""), LARGE.replace("%y2 = add nsw i32 %x2, 2000000000", WIDER), True),
        (SUM.replace("ret void", CRASH.replace("volatile ", "")), SUM, False),
        (SUM, SUM.replace("ret void", CRASH), True),
        (SUM, PROMOTED, False),
    ],
    ids=["same", "another", "promised", "wraps", "scalar crashes", "crashes", "other arguments"],
)
def test_what_is_told(scalar, other, differs):
    assert bool(told(scalar, other)) == differs


@pytest.mark.parametrize("noalias", ["noalias ", ""])
def test_memory_overlaps_unless_it_may_not(noalias):
    head = f"define void @f(ptr {noalias}%o, ptr %a) {{\n"
    loads = [f"  %p{k} = getelementptr i8, ptr %a, i64 {4 * k}\n  %x{k} = load i32, ptr %p{k}" for k in range(2)]
    stores = [f"  %q{k} = getelementptr i8, ptr %o, i64 {4 * k}\n  store i32 %x{k}, ptr %q{k}" for k in range(2)]
    turns = [line for pair in zip(loads, stores, strict=True) for line in pair]
    scalar, other = (head + "\n".join(lines) + "\n  ret void\n}\n" for lines in (turns, [*loads, *stores]))
    assert bool(told(scalar, other)) == (not noalias)


def test_results_variables_and_locals_count():
    text = """@v = global [32 x i32] zeroinitializer
define i32 @f(ptr %a) {
  %l = alloca [4 x i32]
  %x = load i32, ptr %a
  store i32 %x, ptr getelementptr (i8, ptr @v, i64 8)
  store i32 %x, ptr %l
  %y = load i32, ptr %l
  %z = xor i32 %y, 1
  ret i32 %z
}
define i32 @g() {
  %x = load i32, ptr @v
  ret i32 %x
}
"""
    assert told(text, text) == set()
    assert told(text, text.replace("xor i32 %y, 1", "xor i32 %y, 3")) == {("f", "other")}
    assert told(text, text.replace("i64 8)", "i64 12)")) == {("f", "other")}
    assert told(text, text.replace("%x = load i32, ptr @v\n", "%x = add i32 0, 3\n")) == {("g", "other")}


KEPT = """%n = type { i32, ptr }
@v = global [4 x %n] zeroinitializer
define void @f() {
  store ptr @v, ptr getelementptr (i8, ptr @v, i64 8)
  ret void
}
"""


@pytest.mark.parametrize(
    "text",
    [
        "@v = global [4 x i32] zeroinitializer\ndefine ptr @f() {\n  ret ptr @v\n}\n",
        "@v = global [4 x i32] zeroinitializer\ndefine void @f(ptr %a) {\n  store ptr @v, ptr %a\n  ret void\n}\n",
        KEPT,
    ],
    ids=["returned", "stored", "kept"],
)
def test_addresses_of_its_own_are_no_difference(text):
    assert told(text, text) == set()


def test_a_conversion_that_is_thrown_away_breaks_no_promise():
    """As compilers write `fits ? (int)x : 7`: both are computed, and one is chosen."""
    text = """define i32 @f(ptr %a) {
  %x = load float, ptr %a, align 4
  %big = fmul float %x, 1.0e12
  %y = fptosi float %big to i32
  %fits = fcmp olt float %big, -1.0e30
  %z = select i1 %fits, i32 %y, i32 7
  ret i32 %z
}
"""
    text = text.replace("1.0e12", "0x426D1A94A0000000").replace("-1.0e30", "0xC600000000000000")
    assert told(text, text) == set()
    assert told(text, text.replace("i32 7", "i32 8")) == {("f", "other")}


def test_what_is_only_declared_tells_nothing():
    text = "declare i32 @elsewhere(i32)\ndeclare double @sin(double)\n@there = external global i32\n"
    text += "define i32 @f(i32 %n) {\n  %x = call i32 @elsewhere(i32 %n)\n  ret i32 %x\n}\n"
    text += "define double @g(double %n) {\n  %x = call double @sin(double %n)\n  ret double %x\n}\n"
    wrong = text.replace("ret i32 %x", "ret i32 3").replace("ret double %x", "ret double 3.0")
    assert told(text, wrong) == {("g", "other")}


def test_wrong_code_of_llvm_is_not_chosen(monkeypatch):
    real = combine.through_llvm

    def wrong(text, target):
        return real(text, target).replace("splat (i32 77)", "splat (i32 78)")

    monkeypatch.setattr(portfolio, "through_llvm", wrong)
    monkeypatch.setattr(combine, "through_llvm", wrong)
    found = improve(SUM, Options(method="llvm"))
    (report,) = found.reports
    assert report.chosen == "scalar"
    assert "llvm: the function as a whole gave another result" in report.rejected[0]
    assert "LLVM's own packing gave another result" in report.notes[0]
    assert "<4 x i32>" not in found.text
    (report,) = improve(SUM, Options(method="ilp", seconds=1)).reports
    assert report.chosen in ("ilp", "scalar")


def test_what_only_the_last_module_gets_wrong_stays_scalar(monkeypatch):
    real = combine.through_llvm
    monkeypatch.setattr(
        combine, "through_llvm", lambda text, target: real(text, target).replace("splat (i32 77)", "splat (i32 78)")
    )
    other = SUM.replace("@f", "@g").replace("add nsw", "mul nsw")
    found = improve(SUM + other, Options(method="llvm"), "g")
    assert found.reports[0].chosen == "llvm"
    monkeypatch.setattr(settle.Settled, "choose", lambda *_: None)
    monkeypatch.setattr(portfolio, "through_llvm", combine.through_llvm)
    found = improve(SUM + other, Options(method="llvm"), "g")
    assert "add nsw <4 x i32>" not in found.text
