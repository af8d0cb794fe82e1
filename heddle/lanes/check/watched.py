"""Scalar code that watches its own promises, since made-up inputs may break them.

LLVM's passes may have used that a sum does not overflow, a shift stays within its width or a number fits an integer.
Where that is not so, scalar and packed code may differ, and both are right. What breaks its promise therefore becomes
something else in each of two runs; if they agree, it did not matter, and other code must agree as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from heddle.lanes.ir import BITS, Function, Module, Statement, split_commas, typed

BROKEN = "@heddle.broken"  # a byte that is not 0 once a promise was broken that no value stands for
FILLING = "@heddle.filling"  # eight bytes: what is in local variables at first, and in place of broken promises
# What cannot be watched: floating point that may be rounded otherwise, values that are anything, code unknown to LLVM.
_LOOSE = re.compile(
    r"\b(?:fast|reassoc|arcp|contract|afn|nsz|nnan|ninf|undef|nofpclass|asm|musttail|indirectbr|callbr|blockaddress|"
    r"invoke|resume|va_arg|volatile|atomicrmw|cmpxchg|fence|strictfp)\b|llvm\.(?:va_|eh\.|coro|stack|frame|return|read_)"
)
_PARTS = {"insertelement", "shufflevector", "insertvalue"}


def watchable(function: Function) -> bool:
    """Whether every promise of a function can be watched."""
    for block in function.blocks:
        for s in block.statements:
            bare = re.sub(r'"[^"]*"', "", s.text)
            made_of = bare.partition(" = ")[2].partition(" ")[0]
            if _LOOSE.search(bare) or ("poison" in bare and made_of not in _PARTS):
                return False
            promises = s.flags - {"inbounds", "nusw"} or s.op in ("shl", "lshr", "ashr", "fptosi", "fptoui")
            if promises and (s.type not in BITS or s.operand_type not in BITS):
                return False
    return True


def watched(function: Function, module: Module, declared: set[str]) -> str:
    """The function's text, with a note of every promise that is broken; it declares more intrinsics for it."""
    lines = [function.head]
    count = 0
    for block in function.blocks:
        lines.append(f"{block.label}:")
        for s in block.statements:
            name = f"%heddle.{count}"
            count += 1
            tests = [*_broken_if(s, name, declared), *_out_of_range(s, name, module)]
            if s.text == "unreachable":
                lines.append("  call void @llvm.trap()")
            if tests and s.name is None:
                lines += _noted(tests, name)
            if tests and s.name is not None:
                lines += _replaced(s, tests, name, _kind(s, function))
            else:
                lines.append(f"  {s.text}")
            if m := re.match(r"(%\S+) = alloca (.*?)(?:, align \d+)?(?:, !.*)?$", s.text):
                declared.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
                lines += _filled(m[1], m[2], name)
    return "\n".join([*lines, "}"])


def _noted(conditions: Iterable[str], name: str) -> list[str]:
    """Lines whose last one makes an i1 of the name with `.c`: it is put to what was noted before."""
    return [
        *(f"  {line}" for line in conditions),
        f"  {name}.z = zext i1 {name}.c to i8",
        f"  {name}.o = load i8, ptr {BROKEN}",
        f"  {name}.n = or i8 {name}.o, {name}.z",
        f"  store i8 {name}.n, ptr {BROKEN}",
    ]


def _replaced(s: Statement, tests: list[str], name: str, kind: str) -> list[str]:
    """A value that is something else where it breaks its promise."""
    garbage = [f"  {name}.g = load {kind}, ptr {FILLING}, align 1"]
    if kind == "i1":
        garbage = [f"  {name}.b8 = load i8, ptr {FILLING}", f"  {name}.g = trunc i8 {name}.b8 to i1"]
    return [
        f"  {name}.v{s.text.removeprefix(s.name or '')}",
        *(f"  {line}" for line in tests),
        *garbage,
        f"  {s.name} = select i1 {name}.c, {kind} {name}.g, {kind} {name}.v",
    ]


def _kind(s: Statement, function: Function) -> str:
    return function.types.get(s.name or "", s.type)


def _filled(variable: str, what: str, name: str) -> list[str]:
    """Local variables begin with what another run gives them another of: code must not depend on it."""
    kind, *counts = split_commas(what)
    count = typed(counts[0])[1] if counts else "1"
    if count != "1":
        return [f"  store i8 1, ptr {BROKEN}"]
    return [
        f"  {name}.f = load i8, ptr {FILLING}",
        f"  {name}.e = getelementptr {kind}, ptr null, i64 1",
        f"  {name}.s = ptrtoint ptr {name}.e to i64",
        f"  call void @llvm.memset.p0.i64(ptr {variable}, i8 {name}.f, i64 {name}.s, i1 false)",
    ]


def _broken_if(s: Statement, name: str, declared: set[str]) -> Iterator[str]:
    if m := re.match(r"(?:tail )?call void @llvm\.assume\(i1 (?:noundef )?(\S+)\)(.*)", s.text):
        yield f"{name}.c = xor i1 {m[1]}, true" if " [" not in m[2] else f"{name}.c = or i1 true, true"
        return
    if m := re.search(r"@llvm\.(abs|ctlz|cttz)\.(i\d+)\(i\d+ (?:[a-z]+(?:\([^)]*\))? )*(\S+), i1 true\)", s.text):
        worst = -(1 << int(m[2][1:]) - 1) if m[1] == "abs" else 0
        yield f"{name}.c = icmp eq {m[2]} {m[3]}, {worst}"
        return
    tests = list(_tests(s, name, declared))
    if not tests:
        return
    known = "false"
    for k, (lines, condition) in enumerate(tests):
        yield from lines
        last = f"{name}.c" if k == len(tests) - 1 else f"{name}.k{k}"
        yield f"{last} = or i1 {known}, {condition}"
        known = last


def _tests(s: Statement, name: str, declared: set[str]) -> Iterator[tuple[list[str], str]]:
    """Lines, and the i1 that they make."""
    kind, flags = s.operand_type, s.flags
    a, b = (*s.lanes, "", "")[:2]
    if s.op in ("add", "sub", "mul"):
        for flag, sign in (("nsw", "s"), ("nuw", "u")):
            if flag in flags:
                called = f"@llvm.{sign}{s.op}.with.overflow.{kind}"
                declared.add(f"declare {{ {kind}, i1 }} {called}({kind}, {kind})")
                n = f"{name}.{flag}"
                sum_ = f"{n} = call {{ {kind}, i1 }} {called}({kind} {a}, {kind} {b})"
                yield [sum_, f"{n}.1 = extractvalue {{ {kind}, i1 }} {n}, 1"], f"{n}.1"
    elif s.op in ("shl", "lshr", "ashr"):
        n, bits = f"{name}.w", BITS[kind]
        yield [f"{n} = icmp uge {kind} {b}, {bits}"], n
        yield from _undone(s, name, kind, a, b, bits)
    elif s.op in ("udiv", "sdiv") and "exact" in flags:
        yield [f"{name}.r = {s.op[0]}rem {kind} {a}, {b}", f"{name}.x = icmp ne {kind} {name}.r, 0"], f"{name}.x"
    elif s.op == "or" and "disjoint" in flags:
        yield [f"{name}.r = and {kind} {a}, {b}", f"{name}.x = icmp ne {kind} {name}.r, 0"], f"{name}.x"
    elif s.op in ("zext", "uitofp") and "nneg" in flags:
        yield [f"{name}.x = icmp slt {kind} {a}, 0"], f"{name}.x"
    elif s.op == "trunc":
        for flag, back in (("nsw", "sext"), ("nuw", "zext")):
            if flag in flags:
                n = f"{name}.{flag}"
                there_and_back = f"{n}.t = trunc {kind} {a} to {s.type}", f"{n}.b = {back} {s.type} {n}.t to {kind}"
                yield [*there_and_back, f"{n} = icmp ne {kind} {n}.b, {a}"], n
    elif s.op == "icmp" and "samesign" in flags:
        yield [f"{name}.r = xor {kind} {a}, {b}", f"{name}.x = icmp slt {kind} {name}.r, 0"], f"{name}.x"
    elif s.op in ("fptosi", "fptoui"):
        yield _fits(s, name, declared)


def _undone(s: Statement, name: str, kind: str, a: str, b: str, bits: int) -> Iterator[tuple[list[str], str]]:
    """A shift that lost bits although it promised not to: shifted back, it is not what it was."""
    back = {"nsw": "ashr", "nuw": "lshr", "exact": "shl"}
    for flag in sorted(s.flags & set(back)):
        n = f"{name}.{flag}"
        yield (
            [
                f"{n}.m = and {kind} {b}, {bits - 1}",
                f"{n}.t = {s.op} {kind} {a}, {n}.m",
                f"{n}.b = {back[flag]} {kind} {n}.t, {n}.m",
                f"{n} = icmp ne {kind} {n}.b, {a}",
            ],
            n,
        )


def _fits(s: Statement, name: str, declared: set[str]) -> tuple[list[str], str]:
    short = {"float": "f32", "double": "f64"}[s.operand_type]
    called, whole = f"@llvm.{s.op}.sat.{s.type}.{short}", f"@llvm.trunc.{short}"
    declared |= {f"declare {s.type} {called}({s.operand_type})", f"declare {s.operand_type} {whole}({s.operand_type})"}
    back = "sitofp" if s.op == "fptosi" else "uitofp"
    return (
        [
            f"{name}.i = call {s.type} {called}({s.operand_type} {s.lanes[0]})",
            f"{name}.b = {back} {s.type} {name}.i to {s.operand_type}",
            f"{name}.t = call {s.operand_type} {whole}({s.operand_type} {s.lanes[0]})",
            f"{name}.x = fcmp une {s.operand_type} {name}.b, {name}.t",
        ],
        f"{name}.x",
    )


def _out_of_range(s: Statement, name: str, module: Module) -> list[str]:
    """A load that promises a range of values; one of several ranges counts as broken."""
    m = re.search(r"!range (!\d+)", s.text)
    if m is None or s.name is None:
        return []
    bounds = re.fullmatch(r"!\{i\d+ (-?\d+), i\d+ (-?\d+)\}", module.metadata.get(m[1], ""))
    if bounds is None or s.type not in BITS:
        return [f"{name}.c = or i1 true, true"]
    low, high = int(bounds[1]), int(bounds[2])
    plain = re.sub(r", !\w+ !\d+", "", s.text.partition(" = ")[2])
    return [
        f"{name}.r = {plain}",
        f"{name}.d = sub {s.type} {name}.r, {low}",
        f"{name}.c = icmp uge {s.type} {name}.d, {(high - low) % (1 << BITS[s.type])}",
    ]
