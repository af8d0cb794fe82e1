"""Candidates timed on this machine, in a child process, in turn, with one of them twice to see the noise."""

from __future__ import annotations

import ctypes
import json
import re
import statistics
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from heddle.lanes import ir
from heddle.lanes.child import in_child

ROUNDS = 15
SLICE = 2e-4  # seconds of one measurement
MEMORY = 1 << 20  # bytes behind each pointer
COUNT = 64  # for integers, which are mostly lengths
AGAIN = "llvm again"
_NAME = r'@(?:[-a-zA-Z$._0-9]+|"[^"]*")'


def time_function(
    modules: dict[str, str], function: ir.Function, seconds: int = 60, rounds: int = ROUNDS
) -> dict[str, float]:
    """Median nanoseconds of a call in each module; nothing if it cannot be called with made-up arguments.

    Modules in which the function is the same but for names are timed once: two copies of one code differ by where they
    happen to lie in memory, and the luckiest place must not look like the best packing.
    """
    kinds = [function.types[a] for a in function.arguments]
    if not all(k in ir.BITS or k == "ptr" for k in kinds):
        return {}
    first: dict[str, str] = {}  # code → the first that has it, LLVM's before all others
    for name in ("llvm", *modules):
        first.setdefault(code_of(modules[name], function.written) or name, name)
    same = {name: first[code_of(text, function.written) or name] for name, text in modules.items()}
    kept = {name: text for name, text in modules.items() if same[name] == name}
    said = in_child(lambda: _measure(kept, function, kinds, rounds), seconds)
    taken = dict(json.loads(said)) if said else {}
    return {name: taken[same.get(name, name)] for name in (*modules, AGAIN)} if taken else {}


def code_of(module: str, written: str) -> str:
    """A function's body with values numbered as they come; nothing where it calls what may differ between modules."""
    return _codes(module).get(written, "")


@lru_cache(maxsize=16)
def _codes(module: str) -> dict[str, str]:
    bodies = re.findall(rf"^(define [^\n]*?({_NAME})\([^\n]*)\n(.*?)^}}$", module, re.M | re.S)
    defined = {name for _, name, _ in bodies}
    return {
        name: _plain(head, text)
        for head, name, text in bodies
        if defined.isdisjoint(re.findall(rf"{_NAME}(?=\()", text))
    }


def _plain(head: str, text: str) -> str:
    numbers: dict[str, int] = {}
    arguments = head[head.index("@") :].rpartition(")")[0]  # attributes have other numbers in every module
    plain = re.sub(r" #\d+|, !\w+ !\d+|^\S+:.*$", "", f"{arguments}\n{text}", flags=re.M)
    return re.sub(r'%(?:[-a-zA-Z$._0-9]+|"[^"]*")', lambda m: f"%{numbers.setdefault(m[0], len(numbers))}", plain)


def _measure(modules: dict[str, str], function: ir.Function, kinds: list[str], rounds: int) -> Iterable[bytes]:
    random = np.random.default_rng(0)
    # A stretch of values near one, so that nothing is denormal and what is read as a small index stays inside.
    holds_double = " double" in function.text()
    memory = [_values(random, holds_double) for _ in kinds]
    slots = np.zeros(8 * max(1, len(kinds)), dtype=np.uint8)
    for k, kind in enumerate(kinds):
        slots[8 * k : 8 * k + 8] = np.frombuffer(_argument(kind, memory[k]), dtype=np.uint8)
    calls, engines = {}, []
    for name, text in [*modules.items(), (AGAIN, modules["llvm"])]:
        parsed = ir.parse_llvm(_aligned(ir.for_this_machine(text), function) + _driver(text, function, kinds))
        engines.append(ir.load(parsed))
        address = engines[-1].get_function_address("heddle.drive")
        calls[name] = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(address)
    where = slots.ctypes.data
    start = [m.copy() for m in memory]
    found: dict[str, list[float]] = {name: [] for name in calls}
    count = 1
    while True:  # how many calls fill a slice
        began = time.perf_counter()
        calls["llvm"](count, where)
        if time.perf_counter() - began > SLICE or count > 1 << 22:
            break
        count *= 2
    order = list(calls)
    for turn in range(rounds):
        at = turn % len(order)
        for name in order[at:] + order[:at]:
            call = calls[name]
            for held, was in zip(memory, start, strict=True):
                held[:] = was  # what a call writes may be what the next reads
            call(max(1, count // 8), where)
            began = time.perf_counter()
            call(count, where)
            found[name].append((time.perf_counter() - began) / count * 1e9)
    yield json.dumps({name: round(statistics.median(taken), 3) for name, taken in found.items()}).encode()


def _values(random: np.random.Generator, double: bool) -> np.ndarray[Any, Any]:
    kind = np.float64 if double else np.float32
    return (0.5 + random.random(MEMORY // kind().itemsize)).astype(kind)


def _argument(kind: str, memory: np.ndarray[Any, Any]) -> bytes:
    if kind == "ptr":
        return np.int64(memory.ctypes.data).tobytes()
    if kind == "float":
        return np.array([1.25, 0], dtype=np.float32).tobytes()
    return np.float64(1.25).tobytes() if kind == "double" else np.int64(1 if kind == "i1" else COUNT).tobytes()


def _aligned(text: str, function: ir.Function) -> str:
    """The function begins at a line of the cache, in every module: what lies before it must not count."""
    head = rf"^(define [^\n]*{re.escape(function.written)}\([^\n]*\)(?: [a-z_]+)*(?: #\d+)?) {{$"
    return re.sub(head, r"\1 align 64 {", text, count=1, flags=re.M)


def _driver(text: str, function: ir.Function, kinds: list[str]) -> str:
    """A loop around calls, so that Python's own call is not what is measured."""
    name = function.written
    head = next(line for line in text.splitlines() if line.startswith("define ") and f"{name}(" in line)
    result = re.search(rf"((?:<[^>]*>|\{{[^}}]*\}}|[\w]+)) {re.escape(name)}\(", head)
    assert result is not None, head
    loads = [
        f"  %s{k} = getelementptr i8, ptr %slots, i64 {8 * k}\n  %a{k} = load {kind}, ptr %s{k}"
        for k, kind in enumerate(kinds)
    ]
    arguments = ", ".join(f"{kind} %a{k}" for k, kind in enumerate(kinds))
    made = "" if result[1] == "void" else "%r = "
    return "\n".join(
        [
            "\ndefine void @heddle.drive(i64 %n, ptr %slots) noinline align 64 {", "entry:", *loads,
            "  br label %loop", "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]", f"  {made}call {result[1]} {name}({arguments})",
            "  %next = add i64 %i, 1", "  %more = icmp slt i64 %next, %n",
            "  br i1 %more, label %loop, label %done", "done:", "  ret void", "}", "",
        ]
    )  # fmt: skip
