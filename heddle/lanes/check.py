"""Every packed region runs beside the code it came from, on random and edge inputs: bit-equal, or it is rejected.

Both become functions of their live-in values and of memory, compiled for this machine into one module, and are called
in a child process, where a crash tells nothing worse than that this input does not fit. Buffers overlap wherever the
region may not assume that they do not. Flags that promise something about the values (nsw, nnan, disjoint, …) are taken
out of both, so that no input breaks a promise. A NaN equals a NaN: LLVM leaves its sign and payload open.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from heddle.lanes.dependence import Addresses, Region
from heddle.lanes.emit import Emitted
from heddle.lanes.ir import BITS, NAME, Module, binding, machine, parse_llvm

SLOT = 64  # bytes for each value that goes in or out
BUFFER = 1 << 14
LARGEST_BUFFER = 1 << 25
PROMISES = re.compile(
    r"\b(?:nuw|nsw|exact|disjoint|nneg|samesign|fast|nnan|ninf|nsz|arcp|contract|afn|reassoc|nusw|inbounds) "
)
EQUAL, DIFFERENT = b"e", b"d"
EDGES = [
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-40,
    -1e-42,
    5e-324,
    2.2250738585072014e-308,
    3.4028235e38,
    1.5,
]


@dataclass
class Verdict:
    """Whether the packed code did the same; `why` says what kept it from being shown."""

    equal: bool
    runs: int = 0
    why: str = ""


@dataclass
class Shape:
    """What a region reads and writes beyond itself."""

    inputs: dict[str, str] = field(default_factory=dict)  # value → type
    outputs: dict[str, str] = field(default_factory=dict)
    buffers: dict[str, int] = field(default_factory=dict)  # base → bytes on each side
    align: dict[str, int] = field(default_factory=dict)
    indices: set[str] = field(default_factory=set)  # integers that make addresses
    floats: dict[str, str] = field(default_factory=dict)  # base → the floating-point type it holds
    tame: bool = False  # no wild integers or floats: shifts by values, conversions to integers
    indexed_memory: bool = False  # integers in memory make addresses


def check(region: Region, emitted: Emitted, module: Module, trials: int = 8, seed: int = 0) -> Verdict:
    """Run a packed region beside the scalar one."""
    addresses = Addresses(region.function, module)
    shape = _shape(region, addresses)
    if shape is None:
        return Verdict(False, why="a value that goes in has a type that cannot be made up")
    scalar = [s.text for s in region.statements]
    text = _module(shape, module, region, scalar, emitted)
    llvm = binding()
    parsed = parse_llvm(text, "The packed code")
    with llvm.create_mcjit_compiler(parsed, machine()) as engine:
        engine.finalize_object()
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        first, second = (signature(engine.get_function_address(n)) for n in ("scalar", "packed"))
        done = b""
        while len(done) < trials:  # a child that crashes has answered for the trials before; another goes on behind it
            left = range(len(done), trials)
            done += in_child(partial(_trials, shape, addresses, first, second, engine, left, seed))
            if DIFFERENT in done:
                return Verdict(False, done.count(EQUAL), "the packed code gave another result")
            if len(done) < trials:
                done += b"?"
        runs = done.count(EQUAL)
        if runs < trials // 2:
            return Verdict(False, runs, "the code does not run on made-up memory")
    return Verdict(True, runs)


def in_child(work: Callable[[], Iterable[bytes]], seconds: int = 20) -> bytes:
    """What `work` says in a process of its own, as far as it gets before it crashes or takes too long."""
    if not hasattr(os, "fork"):
        return b"".join(work())
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads hold nothing that the child touches
        child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            os.close(read)
            for said in work():
                os.write(write, said)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def _shape(region: Region, addresses: Addresses) -> Shape | None:
    shape = Shape()
    types = region.function.types
    made = {s.name for s in region.statements if s.name}
    for s in region.statements:
        taken = _is_pointer_load(s.text)
        for name in s.uses:
            if name not in made and not taken:
                shape.inputs.setdefault(name, types.get(name, "?"))
        if taken and s.name:
            shape.inputs[s.name] = "ptr"
        if s.op in ("fptosi", "fptoui") or (s.op in ("shl", "lshr", "ashr") and s.lanes[1].startswith("%")):
            shape.tame = True
    for name in region.outside:
        shape.outputs[name] = types.get(name, "?")
    for kind in (*shape.inputs.values(), *shape.outputs.values()):
        if not _storable(kind):
            return None
    for i, address in region.addresses.items():
        s = region.statements[i]
        if _is_pointer_load(s.text):
            continue
        slack = sum(abs(c) for _, c in address.terms) * 16
        reach = abs(address.offset) + slack + 4096
        if reach > LARGEST_BUFFER:
            return None
        base = address.base
        shape.buffers[base] = max(shape.buffers.get(base, BUFFER), 2 * reach)
        shape.align[base] = max(shape.align.get(base, 1), s.align)
        if s.type in ("float", "double"):
            shape.floats[base] = s.type
        for term, _ in address.terms:
            shape.indices.add(term.removeprefix("s:").removeprefix("z:"))
    for name, kind in shape.inputs.items():
        if kind == "ptr":
            address = addresses.address(name)
            shape.buffers.setdefault(address.base, max(BUFFER, 2 * abs(address.offset) + BUFFER))
            shape.indices |= {term.removeprefix("s:").removeprefix("z:") for term, _ in address.terms}
    if max(shape.buffers.values(), default=0) > LARGEST_BUFFER:
        return None
    _indices(shape, addresses)
    return shape


def _indices(shape: Shape, addresses: Addresses) -> None:
    """All integers from which addresses are made, however indirectly."""
    stack = list(shape.indices)
    while stack:
        s = addresses.defs.get(stack.pop())
        if s is None:
            continue
        if s.op == "load":
            shape.indexed_memory = True
        for name in s.uses:
            if name not in shape.indices:
                shape.indices.add(name)
                stack.append(name)


def _storable(kind: str) -> bool:
    if m := re.fullmatch(r"<(\d+) x (\w+)>", kind):
        return m[2] in BITS and int(m[1]) * BITS[m[2]] <= 8 * SLOT
    return kind in BITS or kind == "ptr"


def _is_pointer_load(text: str) -> bool:
    return " = load ptr, " in text


def _module(shape: Shape, module: Module, region: Region, scalar: list[str], emitted: Emitted) -> str:
    body = [
        *_function("scalar", shape, scalar),
        *_function("packed", shape, emitted.lines),
    ]
    text = "\n".join(body)
    globals_used = sorted(set(re.findall(r'@(?:[-a-zA-Z$._0-9]+|"[^"]*")', text)))
    before = []
    for base, reach in shape.buffers.items():
        if base.startswith("@"):  # points into the middle, so that negative offsets stay inside
            before.append(f"{_buffer(base)} = global [{2 * reach} x i8] zeroinitializer, align 64")
            before.append(f"{base} = alias i8, getelementptr (i8, ptr {_buffer(base)}, i64 {reach})")
    known = {f"@{d.split('@')[1].split('(')[0]}": d for d in emitted.declarations}
    for piece in module.pieces:
        if isinstance(piece, str):
            for line in piece.splitlines():
                if m := re.match(r"declare .*?(@[-a-zA-Z$._0-9]+)\(", line):
                    known.setdefault(m[1], re.sub(r" #\d+.*$", "", line))
    before += [known[g] for g in globals_used if g in known]
    rest = [g for g in globals_used if g not in known and g not in shape.buffers and g not in ("@scalar", "@packed")]
    before += [f"{g} = internal global [64 x i8] zeroinitializer" for g in rest]
    structs = [
        line for p in module.pieces if isinstance(p, str) for line in p.splitlines() if re.match(r"^%.* = type ", line)
    ]
    del region
    return "\n".join([*structs, *before, text])


def _function(name: str, shape: Shape, lines: list[str]) -> list[str]:
    out = [f"define void @{name}(ptr noalias %in.slots, ptr noalias %out.slots) {{"]
    for k, (value, kind) in enumerate(shape.inputs.items()):
        out.append(f"  %in.{k} = getelementptr i8, ptr %in.slots, i64 {k * SLOT}")
        out.append(f"  {value} = load {kind}, ptr %in.{k}, align 1")
    for line in lines:
        if not _is_pointer_load(line):
            stripped = re.sub(r", ![a-zA-Z.]+ ![0-9]+", "", line)
            out.append("  " + re.sub(r" #\d+$", "", PROMISES.sub("", stripped)))
    for k, (value, kind) in enumerate(shape.outputs.items()):
        out.append(f"  %out.{k} = getelementptr i8, ptr %out.slots, i64 {k * SLOT}")
        out.append(f"  store {kind} {value}, ptr %out.{k}, align 1")
    return [*out, "  ret void", "}"]


def _trials(
    shape: Shape, addresses: Addresses, first: Any, second: Any, engine: Any, trials: range, seed: int
) -> Iterable[bytes]:
    return (_trial(shape, addresses, first, second, engine, trial, seed) for trial in trials)


def _trial(shape: Shape, addresses: Addresses, first: Any, second: Any, engine: Any, trial: int, seed: int) -> bytes:
    random = np.random.default_rng([seed, trial])
    edge = (0.0, 0.0, 0.3, 1.0)[trial % 4]
    memory, where, _keep = _memory(shape, addresses, engine, trial, random)
    terms: dict[str, int] = {}

    def term(name: str) -> int:
        bare = name.removeprefix("s:").removeprefix("z:")
        # A multiple of 8, which `or disjoint` may count on.
        return terms.setdefault(bare, 8 * int(random.integers(0, 2)))

    slots = np.zeros(SLOT * (len(shape.inputs) + 1), dtype=np.uint8)
    for k, (value, kind) in enumerate(shape.inputs.items()):
        slot = slots[k * SLOT : (k + 1) * SLOT]
        if kind == "ptr":
            address = addresses.address(value)
            number = where[address.base] + address.offset + sum(c * term(t) for t, c in address.terms)
            slot[:8] = np.frombuffer(np.int64(number).tobytes(), dtype=np.uint8)
        elif value in shape.indices and kind in BITS and kind[0] == "i" and kind != "i1":
            # As the addresses see it: what is one more than another value is one more here, too.
            parts, constant = addresses.integer(value, kind)
            number = constant + sum(c * term(t) for t, c in parts.items())
            slot[:8] = np.frombuffer(np.int64(number).tobytes(), dtype=np.uint8)
        else:
            _fill(slot, kind, random, edge, small=value in shape.indices or shape.tame)
    start = []
    for at, size, kind in memory:
        held = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(at))
        _fill(held, kind, random, edge, small=shape.tame or shape.indexed_memory)
        start.append((held, held.copy()))
    results = []
    for function in (first, second):
        out = np.zeros(SLOT * (len(shape.outputs) + 1), dtype=np.uint8)
        for held, was in start:
            held[:] = was
        function(slots.ctypes.data, out.ctypes.data)
        results.append([out, *(held.copy() for held, _ in start)])
    same = all(_same(a, b) for a, b in zip(*results, strict=True))
    return EQUAL if same else DIFFERENT


def _memory(
    shape: Shape, addresses: Addresses, engine: Any, trial: int, random: np.random.Generator
) -> tuple[list[tuple[int, int, str]], dict[str, int], list[np.ndarray[Any, Any]]]:
    """Buffers as (address, bytes, what they hold), and where each base points: into the middle of one."""
    found: list[tuple[int, int, str]] = []
    where: dict[str, int] = {}
    keep: list[np.ndarray[Any, Any]] = []
    for base, reach in shape.buffers.items():
        if base.startswith("@"):
            start = engine.get_global_value_address(_buffer(base)[1:].strip('"'))
            found.append((start, 2 * reach, shape.floats.get(base, "i8")))
            where[base] = start + reach
            continue
        near = [q for q in where if not addresses.apart(base, q) and shape.buffers[q] >= reach]
        if trial >= 3 and near and random.random() < 0.7:
            # Close to another one, where nothing says that they are apart.
            q = near[int(random.integers(0, len(near)))]
            step = max(shape.align.get(base, 1), shape.align.get(q, 1))
            where[base] = where[q] + step * int(random.integers(-6, 7))
            continue
        memory = np.zeros(2 * reach + 128, dtype=np.uint8)
        keep.append(memory)
        start = -(-memory.ctypes.data // 64) * 64
        found.append((start, 2 * reach, shape.floats.get(base, "i8")))
        where[base] = start + reach
    return found, where, keep


def _buffer(name: str) -> str:
    """The memory behind a global variable, which points into its middle."""
    return f'@"{name[1:].strip(chr(34))}.buffer"'


def _fill(held: np.ndarray[Any, Any], kind: str, random: np.random.Generator, edge: float, *, small: bool) -> None:
    element = re.sub(r"^<\d+ x (\w+)>$", r"\1", kind)
    if element in ("float", "double"):
        dtype = np.float32 if element == "float" else np.float64
        n = held.size // dtype().itemsize
        values = random.normal(size=n) * 4
        if not small:
            wild = random.random(n) < edge
            values[wild] = random.choice(EDGES, size=int(wild.sum()))
        with np.errstate(over="ignore"):
            held[: n * dtype().itemsize].view(dtype)[:] = values.astype(dtype)
    elif element == "i1":
        held[:] = random.integers(0, 2, size=held.size, dtype=np.uint8)
    elif small:
        held[:] = 0
        held[::8] = random.integers(0, 7, size=held[::8].size, dtype=np.uint8)
    else:
        held[:] = random.integers(0, 256, size=held.size, dtype=np.uint8)
        if edge > 0.5:
            chosen = np.array([0, 1, 0x7F, 0x80, 0xFF], dtype=np.uint8)
            held[:] = random.choice(chosen, size=held.size)


def _same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Bit for bit, but that any NaN equals any other in the same place."""
    wrong = a != b
    if not wrong.any():
        return True
    n = a.size // 8 * 8
    if wrong[n:].any():
        return False
    ok = ~wrong[:n]
    for dtype in (np.float32, np.float64):
        both = np.isnan(a[:n].view(dtype)) & np.isnan(b[:n].view(dtype))
        ok |= np.repeat(both, dtype().itemsize)
    return bool(ok.all())


__all__ = ["NAME", "Verdict", "check", "in_child"]
