"""Every packed region runs beside the code it came from, on random and edge inputs: bit-equal, or it is rejected.

Both become functions of their live-in values and of memory, compiled for this machine into one module, and are called
in a child process, where a crash tells nothing worse than that this input does not fit. Buffers overlap wherever the
region may not assume that they do not. What promises something about the values is taken out of both, so that no input
breaks a promise: flags (nsw, nnan, disjoint, …), shifts by no more than the width, conversions that fit. A NaN equals a
NaN: LLVM leaves its sign and payload open.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from heddle.errors import HeddleError
from heddle.lanes.check.made_up import (
    SLOT,
    Shape,
    buffer_of,
    fill,
    is_pointer_load,
    memory_for,
    next_of,
    same,
    shape_of,
)
from heddle.lanes.check.promises import kept_by_all
from heddle.lanes.child import in_child
from heddle.lanes.dependence import Address, Addresses, Region
from heddle.lanes.emit import Emitted
from heddle.lanes.ir import BITS, Module, binding, machine, parse_llvm

EQUAL, DIFFERENT = b"e", b"d"
TURNS = 4  # of a trial, each with other accesses that meet


@dataclass
class Verdict:
    """Whether the packed code did the same; `why` says what kept it from being shown."""

    equal: bool
    runs: int = 0
    why: str = ""


def check(region: Region, emitted: Emitted, module: Module, trials: int = 8, seed: int = 0) -> Verdict:
    """Run a packed region beside the scalar one."""
    addresses = Addresses(region.function, module)
    shape = shape_of(region, addresses)
    if shape is None:
        return Verdict(False, why="a value that goes in has a type that cannot be made up")
    types = region.function.types
    scalar = [s.text for s in region.statements]
    scalar += [f"{next_of(v)} = freeze {types[v]} {c.following}" for v, c in region.carried.items()]
    packed = round_once(region, emitted)
    own = _fresh([*scalar, *packed])
    text = _module(shape, module, scalar, packed, emitted.declarations, own)
    llvm = binding()
    try:
        parsed = parse_llvm(text, "The packed code")
    except HeddleError as error:
        return Verdict(False, why=f"LLVM's verifier: {error.what[:200]}")
    with llvm.create_mcjit_compiler(parsed, machine()) as engine:
        engine.finalize_object()
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        first, second = (signature(engine.get_function_address(n)) for n in (f"{own}.scalar", f"{own}.packed"))
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


def round_once(region: Region, emitted: Emitted) -> list[str]:
    """One turn of the loop: vectors that go round it are put together before, and taken apart again behind it."""
    lines: list[str] = []
    following = {v: f"freeze {region.function.types[v]} {c.following}" for v, c in region.carried.items()}
    for phi in emitted.phis:
        value = "poison"
        for k, lane in enumerate(phi.lanes):
            name = phi.name if k == len(phi.lanes) - 1 else f"{phi.name}.{k}"
            lines.append(f"{name} = insertelement {phi.type} {value}, {region.function.types[lane]} {lane}, i64 {k}")
            value = name
            following[lane] = f"extractelement {phi.type} {phi.following}, i64 {k}"
    behind = [f"{next_of(v)} = {text}" for v, text in following.items()]
    return [*lines, *emitted.early, *emitted.lines, *emitted.behind.values(), *behind]


def _fresh(lines: list[str]) -> str:
    """A start of names that nothing has in these lines."""
    own, text = "check", "\n".join(lines)
    while re.search(rf'[%@]"?{own}\.', text):
        own += "_"
    return own


def _module(
    shape: Shape, module: Module, scalar: list[str], packed: list[str], declarations: set[str], own: str
) -> str:
    first, more = _function(f"{own}.scalar", shape, scalar, own)
    second, others = _function(f"{own}.packed", shape, packed, own)
    text = "\n".join([*first, *second])
    globals_used = sorted(set(re.findall(r'@(?:[-a-zA-Z$._0-9]+|"[^"]*")', text)))
    before = []
    for base, reach in shape.buffers.items():
        if base.startswith("@"):  # points into the middle, so that negative offsets stay inside
            before.append(f"{buffer_of(base)} = global [{2 * reach} x i8] zeroinitializer, align 64")
            before.append(f"{base} = alias i8, getelementptr (i8, ptr {buffer_of(base)}, i64 {reach})")
    known = {f"@{d.split('@')[1].split('(')[0]}": d for d in (*declarations, *more, *others)}
    known = module.declarations | known
    before += [known[g] for g in globals_used if g in known]
    rest = [g for g in globals_used if g not in known and g not in shape.buffers and not g.startswith(f"@{own}.")]
    before += [f"{g} = internal global [64 x i8] zeroinitializer" for g in rest]
    structs = [f"{name} = type {body}" for name, body in module.structures.items()]
    return "\n".join([*structs, *before, text])


def _function(name: str, shape: Shape, lines: list[str], own: str) -> tuple[list[str], set[str]]:
    out = [f"define void @{name}(ptr noalias %{own}.slots, ptr noalias %{own}.results) {{"]
    for k, (value, kind) in enumerate(shape.inputs.items()):
        out.append(f"  %{own}.in.{k} = getelementptr i8, ptr %{own}.slots, i64 {k * SLOT}")
        out.append(f"  {value} = load {kind}, ptr %{own}.in.{k}, align 1")
    bare = (re.sub(r" #\d+$", "", re.sub(r", ![a-zA-Z.]+ ![0-9]+", "", x)) for x in lines if not is_pointer_load(x))
    body, declared = kept_by_all(bare)
    out += [f"  {line}" for line in body]
    for k, (value, kind) in enumerate(shape.outputs.items()):
        out.append(f"  %{own}.out.{k} = getelementptr i8, ptr %{own}.results, i64 {k * SLOT}")
        out.append(f"  store {kind} {value}, ptr %{own}.out.{k}, align 1")
    return [*out, "  ret void", "}"], declared


def _trials(
    shape: Shape, addresses: Addresses, first: Any, second: Any, engine: Any, trials: range, seed: int
) -> Iterable[bytes]:
    return (_trial(shape, addresses, first, second, engine, trial, seed) for trial in trials)


def _trial(shape: Shape, addresses: Addresses, first: Any, second: Any, engine: Any, trial: int, seed: int) -> bytes:
    """One trial; those with memory that overlaps take several turns, so that different accesses meet."""
    turns = range(TURNS * trial, TURNS * (trial + 1)) if trial >= 3 and len(shape.buffers) > 1 else [None]
    random = np.random.default_rng([seed, trial])
    edge = (0.0, 0.0, 0.3, 1.0)[trial % 4]
    equal = all(_turn(shape, addresses, first, second, engine, turn, edge, random) for turn in turns)
    return EQUAL if equal else DIFFERENT


def _turn(
    shape: Shape,
    addresses: Addresses,
    first: Any,
    second: Any,
    engine: Any,
    turn: int | None,
    edge: float,
    random: np.random.Generator,
) -> bool:
    terms: dict[str, int] = {}

    def term(name: str) -> int:
        bare = name.removeprefix("s:").removeprefix("z:")
        if bare not in terms:
            new = random.integers(0, 2 * shape.step) if shape.any_step else shape.step * random.integers(0, 2)
            terms[bare] = int(new)
        return terms[bare]

    def place(address: Address) -> int:
        return address.offset + sum(c * term(t) for t, c in address.terms)

    memory, where, _keep = memory_for(shape, addresses, engine, place, turn, random)
    slots = np.zeros(SLOT * (len(shape.inputs) + 1), dtype=np.uint8)
    for k, (value, kind) in enumerate(shape.inputs.items()):
        slot = slots[k * SLOT : (k + 1) * SLOT]
        if kind == "ptr":
            address = addresses.address(value)
            slot[:8] = np.frombuffer(np.int64(where[address.base] + place(address)).tobytes(), dtype=np.uint8)
        elif value in shape.indices and kind in BITS and kind[0] == "i" and kind != "i1":
            # As the addresses see it: what is one more than another value is one more here, too.
            parts, constant = addresses.integer(value, kind)
            number = constant + sum(c * term(t) for t, c in parts.items())
            slot[:8] = np.frombuffer(np.int64(number).tobytes(), dtype=np.uint8)
        else:
            fill(slot, kind, random, edge, small=value in shape.indices or shape.tame)
    start = []
    for at, size, kind in memory:
        held = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(at))
        fill(held, kind, random, edge, small=shape.tame or shape.indexed_memory)
        start.append((held, held.copy()))
    results = []
    for function in (first, second):
        out = np.zeros(SLOT * (len(shape.outputs) + 1), dtype=np.uint8)
        for held, was in start:
            held[:] = was
        function(slots.ctypes.data, out.ctypes.data)
        results.append([out, *(held.copy() for held, _ in start)])
    return all(same(a, b) for a, b in zip(*results, strict=True))
