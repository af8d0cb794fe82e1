"""Makes the tables of costs from LLVM's `opt`: `python -m heddle.lanes.costs.make [opt]`.

One function for every family of CPUs, one instruction for every (opcode, type, width), asked for its reciprocal
throughput. Users need no LLVM tools: the tables ship.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from heddle.lanes.ir import CASTS, INTRINSICS

FAMILIES = {
    "x86-64-v3": "x86_64", "x86-64-v4": "x86_64", "znver3": "x86_64", "znver4": "x86_64", "skylake": "x86_64",
    "skylake-avx512": "x86_64", "icelake-server": "x86_64", "neoverse-n1": "aarch64", "neoverse-v1": "aarch64",
    "neoverse-v2": "aarch64",
}  # fmt: skip
INTEGERS = ["i8", "i16", "i32", "i64"]
FLOATS = ["float", "double"]
ROTATIONS = ("llvm.fshl", "llvm.fshr")
OF_INTEGERS = {
    "smax", "smin", "umax", "umin", "abs", "ctpop", "bswap", "sadd", "uadd", "ssub", "usub", "fshl", "fshr"
}  # fmt: skip
SIZE = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "float": 32, "double": 64}
WIDTHS = [1, 2, 4, 8, 16, 32]
INTEGER_OPERATIONS = [
    "add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "sdiv", "udiv", "srem", "urem",
]  # fmt: skip
FLOAT_OPERATIONS = ["fadd", "fsub", "fmul", "fdiv", "frem"]
INTEGER_PREDICATES = ["eq", "ne", "sgt", "sge", "slt", "sle", "ugt", "uge", "ult", "ule"]
FLOAT_PREDICATES = ["oeq", "ogt", "oge", "olt", "ole", "one", "ord", "uno", "ueq", "ugt", "uge", "ult", "ule", "une"]


def vector(kind: str, width: int) -> str:
    return kind if width == 1 else f"<{width} x {kind}>"


def widths(kind: str) -> list[int]:
    return [w for w in WIDTHS if w == 1 or (SIZE[kind] * w <= 1024 if kind != "i1" else w <= 32)]


def literal(kind: str, width: int, values: list[str]) -> str:
    return values[0] if width == 1 else "<" + ", ".join(f"{kind} {values[i % len(values)]}" for i in range(width)) + ">"


class Questions:
    """Instructions to ask about, each under a key."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.keys: dict[str, str] = {}  # name of the value → key
        self.functions: list[str] = []
        self.declared: set[str] = set()

    def ask(self, key: str, instruction: str, arguments: str, before: str = "", result: bool = True) -> None:
        n = len(self.functions)
        line = f"%q = {instruction}" if result else instruction
        self.functions.append(f"define void @q{n}({arguments}) #0 {{\n{before}  {line}\n  ret void\n}}")
        self.keys[f"q{n}"] = key


def questions() -> Questions:
    q = Questions()
    for kind in INTEGERS + FLOATS:
        for w in widths(kind):
            _arithmetic(q, kind, w)
            _memory(q, kind, w)
            _comparisons(q, kind, w)
            _intrinsics(q, kind, w)
    for w in widths("i1"):
        t = vector("i1", w)
        for op in ("and", "or", "xor"):
            q.ask(f"{op} {t}", f"{op} {t} %a, %b", f"{t} %a, {t} %b")
        q.ask(f"select {t}", f"select {t} %c, {t} %a, {t} %b", f"{t} %a, {t} %b, {t} %c")
    _conversions(q)
    for kind in SIZE:
        for w in widths(kind)[1:]:
            _movements(q, kind, w)
    return q


def _of_pairs(kind: str, w: int) -> tuple[str, str]:
    """A vector type, and arguments of it."""
    t = vector(kind, w)
    return t, f"{t} %a, {t} %b, ptr %p"


def _suffix(kind: str, w: int) -> str:
    """As intrinsics carry a type in their names."""
    return ("" if w == 1 else f"v{w}") + (kind if kind in INTEGERS else f"f{SIZE[kind]}")


def _arithmetic(q: Questions, kind: str, w: int) -> None:
    t, args = _of_pairs(kind, w)
    for op in INTEGER_OPERATIONS if kind in INTEGERS else FLOAT_OPERATIONS:
        q.ask(f"{op} {t}", f"{op} {t} %a, %b", args)
        if op in ("mul", "shl", "lshr", "ashr", "sdiv", "udiv", "srem", "urem"):
            for mark, values in (("k", ["3"]), ("p", ["4"]), ("c", ["3", "1", "2", "5"])):
                if w > 1 or mark != "c":
                    q.ask(f"{op} {t} {mark}", f"{op} {t} %a, {literal(kind, w, values)}", args)
    if kind in FLOATS:
        q.ask(f"fneg {t}", f"fneg {t} %a", args)


def _memory(q: Questions, kind: str, w: int) -> None:
    t, args = _of_pairs(kind, w)
    align = max(1, SIZE[kind] // 8)
    q.ask(f"load {t}", f"load {t}, ptr %p, align {align}", args)
    q.ask(f"store {t}", f"store {t} %a, ptr %p, align {align}", args, result=False)
    if w > 1:
        name = f"llvm.masked.load.{_suffix(kind, w)}.p0"
        every_other = literal("i1", w, ["true", "false"])
        q.declared.add(f"declare {t} @{name}(ptr, <{w} x i1>, {t})")
        asked = f"ptr align {align} %p, <{w} x i1> {every_other}, {t} poison"
        q.ask(f"masked {t}", f"call {t} @{name}({asked})", args)
        name = f"llvm.masked.gather.{_suffix(kind, w)}.v{w}p0"
        every = literal("i1", w, ["true"])
        q.declared.add(f"declare {t} @{name}(<{w} x ptr>, <{w} x i1>, {t})")
        asked = f"<{w} x ptr> align {align} %g, <{w} x i1> {every}, {t} poison"
        q.ask(f"gather {t}", f"call {t} @{name}({asked})", f"<{w} x ptr> %g")


def _comparisons(q: Questions, kind: str, w: int) -> None:
    t, args = _of_pairs(kind, w)
    for predicate in INTEGER_PREDICATES if kind in INTEGERS else FLOAT_PREDICATES:
        compare = "icmp" if kind in INTEGERS else "fcmp"
        q.ask(f"{compare} {predicate} {t}", f"{compare} {predicate} {t} %a, %b", args)
    condition = vector("i1", w)
    q.ask(f"select {t}", f"select {condition} %c, {t} %a, {t} %b", f"{args}, {condition} %c")
    if w > 1:
        q.ask(f"select i1 {t}", f"select i1 %c, {t} %a, {t} %b", f"{args}, i1 %c")


def _intrinsics(q: Questions, kind: str, w: int) -> None:
    t, args = _of_pairs(kind, w)
    suffix = _suffix(kind, w)
    for name, arity in INTRINSICS.items():
        whole = name.split(".")[1] in OF_INTEGERS
        if whole != (kind in INTEGERS) or (name == "llvm.bswap" and kind == "i8"):
            continue
        given = ", ".join(f"{t} %{v}" for v in "abd"[:arity])
        taken = [t] * arity
        if name == "llvm.abs":
            given, taken = f"{given}, i1 false", [*taken, "i1"]
        q.declared.add(f"declare {t} @{name}.{suffix}({', '.join(taken)})")
        q.ask(f"{name} {t}", f"call {t} @{name}.{suffix}({given})", f"{args}, {t} %d")
        if name in ROTATIONS:  # by a constant, of one value, which is what programs write
            for mark, values in (("k", ["3"]), ("c", ["3", "1", "2", "5"])):
                given = f"{t} %a, {t} %a, {t} {literal(kind, w, values)}"
                q.ask(f"{name} {t} {mark}", f"call {t} @{name}.{suffix}({given})", f"{args}, {t} %d")
    if w > 1 and kind in INTEGERS:
        for op in ("add", "mul", "and", "or", "xor", "smax", "smin", "umax", "umin"):
            q.declared.add(f"declare {kind} @llvm.vector.reduce.{op}.v{w}{kind}({t})")
            q.ask(f"reduce.{op} {t}", f"call {kind} @llvm.vector.reduce.{op}.v{w}{kind}({t} %a)", args)


def _conversions(q: Questions) -> None:
    for source in SIZE:
        for target in SIZE:
            for op in sorted(CASTS - {"bitcast"}):  # which is free
                if not _castable(op, source, target):
                    continue
                for w in widths(source):
                    if w not in widths(target):
                        continue
                    s, t = vector(source, w), vector(target, w)
                    q.ask(f"{op} {s} {t}", f"{op} {s} %a to {t}", f"{s} %a, ptr %p")
                    if source != "i1" and op in ("zext", "sext", "fpext", "sitofp", "uitofp"):
                        load = f"  %l = load {s}, ptr %p, align {SIZE[source] // 8}\n"
                        q.ask(f"{op} {s} {t} m", f"{op} {s} %l to {t}", "ptr %p", before=load)


def _movements(q: Questions, kind: str, w: int) -> None:
    t = vector(kind, w)
    for i in range(w):
        q.ask(f"insert {t} {i}", f"insertelement {t} %a, {kind} %s, i64 {i}", f"{t} %a, {kind} %s")
        q.ask(f"first {t} {i}", f"insertelement {t} poison, {kind} %s, i64 {i}", f"{kind} %s")
        q.ask(f"extract {t} {i}", f"extractelement {t} %a, i64 {i}", f"{t} %a")
    for name, mask, two in _masks(w):
        lanes = ", ".join("i32 poison" if i < 0 else f"i32 {i}" for i in mask)
        asked = f"shufflevector {t} %a, {t} {'%b' if two else 'poison'}, <{len(mask)} x i32> <{lanes}>"
        q.ask(f"{name} {t}", asked, f"{t} %a, {t} %b")


def _castable(op: str, source: str, target: str) -> bool:
    a, b, whole_a, whole_b = SIZE[source], SIZE[target], source not in FLOATS, target not in FLOATS
    match op:
        case "zext" | "sext":
            return whole_a and whole_b and a < b
        case "trunc":
            return whole_a and whole_b and a > b
        case "fpext":
            return not whole_a and not whole_b and a < b
        case "fptrunc":
            return not whole_a and not whole_b and a > b
        case "sitofp" | "uitofp":
            return whole_a and not whole_b
    return not whole_a and whole_b and target != "i1"


def _masks(w: int) -> list[tuple[str, list[int], bool]]:
    """A typical mask for every kind of shuffle that LLVM tells apart."""
    half = w // 2
    found: list[tuple[str, list[int], bool]] = [
        ("broadcast", [0] * w, False),
        ("reverse", list(range(w))[::-1], False),
        ("blend", [i if i % 2 == 0 else i + w for i in range(w)], True),
        ("concat", list(range(2 * w)), True),
    ]
    if w > 2:
        found.append(("permute", _scrambled(w), False))
        found.append(("permute2", [i if k % 2 else i + w for k, i in enumerate(_scrambled(w))], True))
        found.append(("local", [i ^ 1 for i in range(w)], False))
        found.append(("deinterleave", [2 * i for i in range(w)], True))
        found.append(("interleave", [i // 2 + (w if i % 2 else 0) for i in range(w)], True))
        found.append(("transpose", [i if i % 2 == 0 else i - 1 + w for i in range(w)], True))
        found.append(("splice", list(range(1, w + 1)), True))
        found.append(("shrink", [2 * i for i in range(half)], False))
    else:
        found.append(("permute", [1, 0], False))
        found.append(("permute2", [1, 2], True))
    if w > 2:
        for part in (2, 4, 8, 16):
            if part < w:
                found += [(f"part {part} {at}", list(range(at, at + part)), False) for at in range(0, w, part)]
    return found


def _scrambled(w: int) -> list[int]:
    return [(5 * i + 3) % w if w & (w - 1) == 0 else (i + 1) % w for i in range(w)]


def make(opt: str, family: str) -> dict[str, int]:
    """The table of one family."""
    q = questions()
    # As clang marks functions that take no vectors: 512 bits are then legal only where the CPU prefers them.
    attributes = 'attributes #0 = { "min-legal-vector-width"="0" }'
    triple = f'target triple = "{FAMILIES[family]}-unknown-linux-gnu"'
    text = "\n".join([triple, *sorted(q.declared), *q.functions, attributes])
    command = [opt, f"-mcpu={family}", "-cost-kind=throughput", "-passes=print<cost-model>", "-disable-output", "-"]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    table: dict[str, int] = {}
    function = ""
    for line in ran.stderr.splitlines():
        if m := re.search(r"for function '(q\d+)'", line):
            function, costs = m[1], []
        elif m := re.search(r"estimated cost of (\w+) for instruction", line):
            costs.append(-1 if m[1] == "Invalid" else int(m[1]))
            if len(costs) >= 2 and costs[-2] >= 0:  # the last but one: `ret` ends each
                table[q.keys[function]] = costs[-2]
    return table


def main() -> None:
    opt = sys.argv[1] if len(sys.argv) > 1 else "opt-22"
    version = subprocess.run([opt, "--version"], capture_output=True, text=True, check=True).stdout
    said = re.search(r"LLVM version ([\d.]+)", version)
    for family in FAMILIES:
        table = make(opt, family)
        body: dict[str, object] = {"llvm": said[1] if said else "", "costs": {}}
        by_cost: dict[str, list[str]] = {}
        for key, cost in sorted(table.items()):
            by_cost.setdefault(str(cost), []).append(key)
        body["costs"] = by_cost
        path = Path(__file__).parent / f"{family}.json"
        path.write_text(json.dumps(body, separators=(",", ":")) + "\n")
        sys.stdout.write(f"{path.name}: {len(table)} costs, {path.stat().st_size // 1024} KiB\n")


if __name__ == "__main__":
    main()
