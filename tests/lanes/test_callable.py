"""`heddle.lanes.compile`: whatever it is given, code that runs or a word on why not."""

import math
import re

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import heddle.lanes
from heddle.errors import HeddleError
from heddle.lanes import ir
from heddle.lanes.portfolio import Options, improve

COPY = """define void @f(ptr noalias %o, ptr %a) {
  %x = load float, ptr %a
  store float %x, ptr %o
  ret void
}
"""
ADD = "define i32 @f(i32 %a, i32 %b) {\n  %s = add i32 %a, %b\n  ret i32 %s\n}\n"


def number(kind):
    return f"define {kind} @f({kind} %a) {{\n  ret {kind} %a\n}}\n"


@pytest.mark.parametrize("name", ["é", "a b", r"a\22b", r"a\5Cb", "ünï"])
def test_any_name_will_do(name):
    add = heddle.lanes.compile(ADD.replace("@f", f'@"{name}"').replace("%a", f'%"{name}"').replace("%s", '%"1 2"'))
    assert add(2, 3) == 5
    assert add.name == name.replace(r"\22", '"').replace(r"\5C", "\\")


def test_odd_names_are_packed_like_others():
    lines = []
    for k in range(4):
        lines += [
            f'  %"p\\22{k}" = getelementptr i8, ptr %"é", i64 {4 * k}',
            f'  %"x {k}" = load float, ptr %"p\\22{k}"',
            f'  %"y{k}\\5C" = fadd float %"x {k}", 1.0',
            f'  %"q\\FF{k}" = getelementptr i8, ptr %o, i64 {4 * k}',
            f'  store float %"y{k}\\5C", ptr %"q\\FF{k}"',
        ]
    text = 'define void @"a\\FF\\22"(ptr noalias %o, ptr %"é") {\n"b\\22":\n' + "\n".join(lines) + "\n  ret void\n}\n"
    (report,) = improve(text, Options(method="ilp", seconds=1)).reports
    assert report.function == r"a\xff" + '"'
    assert report.checked == 1


def test_code_that_was_not_to_be_optimized_is():
    text = ADD.replace(") {", ') noinline optnone "why"="not optnone here" {')
    text += '@optnone = global [8 x i8] c" optnone"\n'
    made = heddle.lanes.compile(text)
    assert made(2, 3) == 5
    assert "not optnone here" in made.text
    assert 'c" optnone"' in made.text
    assert not re.search(r"noinline[^\n]*\boptnone\b(?! here)", made.text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("@v = thread_local global i32 5\ndefine i32 @f() {\n  %x = load i32, ptr @v\n  ret i32 %x\n}", "thread_local"),
        ("@nope = external global i32\ndefine i32 @f() {\n  %x = load i32, ptr @nope\n  ret i32 %x\n}", "not defined"),
        (
            "declare extern_weak void @no()\ndefine i1 @f() {\n  %x = icmp eq ptr @no, null\n  ret i1 %x\n}",
            "extern_weak",
        ),
        ("define i32 @f(ptr byval(i32) %a) {\n  %x = load i32, ptr %a\n  ret i32 %x\n}", "byval"),
        ("define void @f(ptr sret(i64) %a) {\n  store i64 3, ptr %a\n  ret void\n}", "sret"),
        ("define i32 @f(ptr inalloca(i32) %a) {\n  %x = load i32, ptr %a\n  ret i32 %x\n}", "inalloca"),
        (ADD.replace("define ", "define fastcc "), "fastcc"),
        (ADD.replace("define ", "define cc 10 "), "non-C calling convention"),
    ],
)
def test_what_cannot_be_called_is_refused(text, what):
    with pytest.raises(HeddleError, match=what):
        heddle.lanes.compile(text)


@pytest.mark.parametrize(
    "given",
    [
        {"function": 5}, {"method": None}, {"method": [1]}, {"family": 4}, {"family": [1]}, {"seconds": "x"},
        {"seconds": -1}, {"seconds": math.nan}, {"seconds": math.inf}, {"seconds": True},
    ],
    ids=str,
)  # fmt: skip
def test_options_of_another_kind_are_refused(given):
    with pytest.raises(HeddleError):
        heddle.lanes.compile(COPY, **given)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("float", 10**400), ("double", 10**400), ("i32", 2**32), ("i32", -(2**31) - 1), ("i8", 256), ("i1", 2),
        ("i1", -1), ("i64", 10**5000), ("ptr", -1), ("ptr", 2**64), ("ptr", 1.5),
    ],
    ids=lambda v: str(v)[:9] if not isinstance(v, int) or abs(v) < 2**70 else "many",
)  # fmt: skip
def test_numbers_that_do_not_fit_are_refused(kind, value):
    made = heddle.lanes.compile(number(kind), method="llvm")
    with pytest.raises(HeddleError, match=kind):
        made(value)


def test_numbers_that_fit_go_through():
    made = heddle.lanes.compile(number("i32"), method="llvm")
    assert [made(-(2**31)), made(2**31 - 1), made(2**32 - 1)] == [-(2**31), 2**31 - 1, -1]
    o, a = np.zeros(1, np.float32), np.ones(1, np.float32)
    heddle.lanes.compile(COPY)(o, a)
    assert o[0] == 1
    assert ir.take_apart(ir.named(ir.parse_llvm(COPY))).functions[0].written == "@f"
