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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from heddle.errors import HeddleError
from heddle.lanes.check.inputs import (
    SLOT,
    RegionShape,
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
from heddle.lanes.ir import BITS, Module, load, parse_llvm

EQUAL, DIFFERENT, END = b"e", b"d", b"\n"
TURNS = 4  # of a trial, each with other accesses that meet


@dataclass
class Verdict:
    """Whether the packed code did the same; `why` says what kept it from being shown."""

    equal: bool
    runs: int = 0
    why: str = ""


@dataclass
class PreparedRegion:
    """A region ready to be compiled: both versions as lines, and what they read and write."""

    shape: RegionShape
    addresses: Addresses
    scalar: list[str]
    packed: list[str]
    declarations: set[str]
    renamed: frozenset[str]  # phis that go in as lanes only
    own: str = ""  # how names of its own begin
    calls: tuple[Any, Any] | None = None


def check(region: Region, emitted: Emitted, module: Module, trials: int = 8, seed: int = 0) -> Verdict:
    """Run a packed region beside the scalar one."""
    return check_all([(region, emitted)], module, trials, seed)[0]


def check_all(made: Sequence[tuple[Region, Emitted]], module: Module, trials: int = 8, seed: int = 0) -> list[Verdict]:
    """Run packed regions beside the scalar ones: together, since each module and each child takes its time."""
    known: dict[int, Addresses] = {}
    for region, _ in made:
        if id(region.function) not in known:
            known[id(region.function)] = Addresses(region.function, module)
    prepared = [_prepared(region, emitted, known[id(region.function)]) for region, emitted in made]
    ready = [p for p in prepared if p is not None]
    found: Iterator[Verdict] = iter(_together(ready, module, trials, seed))
    foreign = Verdict(False, why="a value that goes in has a type that cannot be made up")
    return [foreign if p is None else next(found) for p in prepared]


def _prepared(region: Region, emitted: Emitted, addresses: Addresses) -> PreparedRegion | None:
    shape = shape_of(region, addresses)
    if shape is None:
        return None
    types = region.function.types
    scalar = [s.text for s in region.statements]
    scalar += [f"{next_of(v)} = freeze {types[v]} {c.following}" for v, c in region.carried.items()]
    packed = round_once(region, emitted)
    return PreparedRegion(shape, addresses, scalar, packed, emitted.declarations, emitted.dropped)


def _together(ready: list[PreparedRegion], module: Module, trials: int, seed: int) -> list[Verdict]:
    if not ready:
        return []
    try:
        parsed = parse_llvm(_module(ready, module), "The packed code")
    except HeddleError as error:
        if len(ready) > 1:  # one of them, which must not keep the others from being checked
            return [verdict for one in ready for verdict in _together([one], module, trials, seed)]
        return [Verdict(False, why=f"LLVM's verifier: {error.what[:200]}")]
    with load(parsed) as engine:
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        for p in ready:
            first, second = (engine.get_function_address(f"{p.own}.{n}") for n in ("scalar", "packed"))
            p.calls = signature(first), signature(second)
        done: list[bytes] = []
        rest = b""  # of the first that is not done: what its trials said before one crashed
        while len(done) < len(ready):  # a child that crashes has answered for what was before; another goes on
            said = in_child(partial(_runs, ready[len(done) :], engine, len(rest), trials, seed))
            whole = (rest + said).split(END)
            done += whole[:-1]
            rest = whole[-1] + b"?"
            if len(rest) >= trials and len(done) < len(ready):
                done.append(rest)
                rest = b""
    return [_verdict(said, trials) for said in done]


def _verdict(said: bytes, trials: int) -> Verdict:
    runs = said.count(EQUAL)
    if DIFFERENT in said:
        return Verdict(False, runs, "the packed code gave another result")
    if runs < trials // 2:
        return Verdict(False, runs, "the code does not run on made-up memory")
    return Verdict(True, runs)


def round_once(region: Region, emitted: Emitted) -> list[str]:
    """One turn of the loop: vectors that go round it are put together before, and taken apart again behind it."""
    lines: list[str] = []
    following = {v: f"freeze {region.function.types[v]} {c.following}" for v, c in region.carried.items()}
    types = region.function.types
    for phi in emitted.phis:
        given = [given_as(v) if v in emitted.dropped else v for v in phi.lanes]
        lines += _lane_by_lane(phi.name, phi.type, [f"{types[v]} {g}" for v, g in zip(phi.lanes, given, strict=True)])
        for k, lane in enumerate(phi.lanes):
            following[lane] = f"extractelement {phi.type} {phi.following}, i64 {k}"
    for again in emitted.again:  # compared with what was loaded lane by lane
        lines += _lane_by_lane(again.name, again.type, [f"{types[v]} {v}" for v in again.lanes])
    behind = [f"{next_of(v)} = {text}" for v, text in following.items()]
    return [*lines, *emitted.early, *emitted.lines, *emitted.behind.values(), *behind]


def _lane_by_lane(name: str, kind: str, lanes: list[str]) -> list[str]:
    """A vector under a given name."""
    made = ["poison", *(f"{name}.{k}" for k in range(len(lanes) - 1)), name]
    return [f"{made[k + 1]} = insertelement {kind} {made[k]}, {lane}, i64 {k}" for k, lane in enumerate(lanes)]


def given_as(phi: str) -> str:
    """The name of a phi that goes in only as a lane: its own may be that of what is taken out of the vector."""
    return f'%"heddle.given.{phi[1:].strip(chr(34))}"'


def _fresh(text: str) -> str:
    """A start of names that nothing has in this text."""
    own = "check"
    while re.search(rf'[%@]"?{own}[0-9]*\.', text):
        own += "_"
    return own


def _module(ready: list[PreparedRegion], module: Module) -> str:
    own = _fresh("\n".join(line for p in ready for line in (*p.scalar, *p.packed)))
    lines: list[str] = []
    declared: set[str] = set()
    buffers: dict[str, int] = {}
    for p in ready:
        for base, reach in p.shape.buffers.items():
            if base.startswith("@"):
                buffers[base] = max(reach, buffers.get(base, 0))
    for k, p in enumerate(ready):
        p.own = f"{own}{k}"
        p.shape.buffers |= {base: buffers[base] for base in p.shape.buffers if base in buffers}
        none: frozenset[str] = frozenset()
        for name, version, renamed in (("scalar", p.scalar, none), ("packed", p.packed, p.renamed)):
            function, more = _function(f"{p.own}.{name}", p.shape, version, p.own, renamed)
            lines += function
            declared |= more | p.declarations
    text = "\n".join(lines)
    before = []
    for base, reach in buffers.items():  # points into the middle, so that negative offsets stay inside
        before.append(f"{buffer_of(base)} = global [{2 * reach} x i8] zeroinitializer, align 64")
        before.append(f"{base} = alias i8, getelementptr (i8, ptr {buffer_of(base)}, i64 {reach})")
    known = module.declarations | {f"@{d.split('@')[1].split('(')[0]}": d for d in declared}
    used = sorted(set(re.findall(r'@(?:[-a-zA-Z$._0-9]+|"[^"]*")', text)))
    before += [known[g] for g in used if g in known]
    rest = [g for g in used if g not in known and g not in buffers and not g.startswith(f"@{own}")]
    before += [f"{g} = internal global [64 x i8] zeroinitializer" for g in rest]
    structs = [f"{name} = type {body}" for name, body in module.structures.items()]
    return "\n".join([*structs, *before, text])


def _function(
    name: str, shape: RegionShape, lines: list[str], own: str, renamed: frozenset[str]
) -> tuple[list[str], set[str]]:
    out = [f"define void @{name}(ptr noalias %{own}.slots, ptr noalias %{own}.results) {{"]
    for k, (value, kind) in enumerate(shape.inputs.items()):
        out.append(f"  %{own}.in.{k} = getelementptr i8, ptr %{own}.slots, i64 {k * SLOT}")
        out.append(f"  {given_as(value) if value in renamed else value} = load {kind}, ptr %{own}.in.{k}, align 1")
    bare = (re.sub(r" #\d+$", "", re.sub(r", ![a-zA-Z.]+ ![0-9]+", "", x)) for x in lines if not is_pointer_load(x))
    body, declared = kept_by_all(bare)
    out += [f"  {line}" for line in body]
    for k, (value, kind) in enumerate(shape.outputs.items()):
        out.append(f"  %{own}.out.{k} = getelementptr i8, ptr %{own}.results, i64 {k * SLOT}")
        out.append(f"  store {kind} {value}, ptr %{own}.out.{k}, align 1")
    return [*out, "  ret void", "}"], declared


def _runs(ready: list[PreparedRegion], engine: Any, first: int, trials: int, seed: int) -> Iterator[bytes]:
    """What each trial says, and an end behind each region; a difference is enough of one."""
    for k, p in enumerate(ready):
        for trial in range(0 if k else first, trials):
            said = _trial(p, engine, trial, seed)
            yield said
            if said == DIFFERENT:
                break
        yield END


def _trial(p: PreparedRegion, engine: Any, trial: int, seed: int) -> bytes:
    """One trial; those with memory that overlaps take several turns, so that different accesses meet."""
    shape = p.shape
    near = any(not p.addresses.apart(a, b) for a, b in combinations(shape.buffers, 2)) or any(
        len({address.line for address, _ in accessed}) > 1 for accessed in shape.accesses.values()
    )
    turns = range(TURNS * trial, TURNS * (trial + 1)) if trial >= 3 and near else [None]
    random = np.random.default_rng([seed, trial])
    edge = (0.0, 0.0, 0.3, 1.0)[trial % 4]
    return EQUAL if all(_turn(p, engine, turn, edge, random) for turn in turns) else DIFFERENT


def _turn(p: PreparedRegion, engine: Any, turn: int | None, edge: float, random: np.random.Generator) -> bool:
    shape, addresses = p.shape, p.addresses
    terms: dict[str, int] = {}

    def term(name: str) -> int:
        bare = name.removeprefix("s:").removeprefix("z:")
        if bare not in terms:
            most = 2 * shape.step if turn is None else 4  # so that places meet which differ only by their terms
            terms[bare] = int(random.integers(0, most) if shape.any_step else shape.step * random.integers(0, 2))
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
    assert p.calls is not None
    for function in p.calls:
        out = np.zeros(SLOT * (len(shape.outputs) + 1), dtype=np.uint8)
        for held, was in start:
            held[:] = was
        function(slots.ctypes.data, out.ctypes.data)
        results.append([out, *(held.copy() for held, _ in start)])
    return all(same(a, b) for a, b in zip(*results, strict=True))
