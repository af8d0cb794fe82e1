"""What a region reads and writes beyond itself, and values and memory made up for it: random, and at the edges."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from heddle.lanes.cost import is_constant
from heddle.lanes.dependence import Address, Addresses, Region
from heddle.lanes.ir import BITS, MEMORY_BYTES, Statement, split_commas

SLOT = 64  # bytes for each value that goes in or out
BUFFER = 1 << 14
ALIGNED = 64  # bytes
LARGEST_BUFFER = 1 << 25
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
FEW = 24
Place = Callable[[Address], int]  # an address as a distance from its base
Accessed = tuple[Address, Statement]
_STEPS: WeakKeyDictionary[Addresses, int] = WeakKeyDictionary()  # of functions, which may have thousands of regions


@dataclass
class RegionShape:
    """What a region reads and writes beyond itself."""

    inputs: dict[str, str] = field(default_factory=dict)  # value → type
    outputs: dict[str, str] = field(default_factory=dict)
    buffers: dict[str, int] = field(default_factory=dict)  # base → bytes on each side
    align: dict[str, int] = field(default_factory=dict)
    indices: set[str] = field(default_factory=set)  # integers that make addresses
    floats: dict[str, str] = field(default_factory=dict)  # base → the floating-point type it holds
    accesses: dict[str, list[Accessed]] = field(default_factory=dict)  # by base
    step: int = 8  # indices are multiples of it, which `or disjoint` may count on, …
    any_step: bool = True  # … unless nothing does, and no alignment either
    tame: bool = False  # no wild floats: addresses are made of what they are converted to
    indexed_memory: bool = False  # integers in memory make addresses


def shape_of(region: Region, addresses: Addresses) -> RegionShape | None:
    step = _step(addresses)
    shape = RegionShape(step=step or 8, any_step=step == 0)
    types = region.function.types
    made = {s.name for s in region.statements if s.name}
    for s in region.statements:
        taken = is_pointer_load(s.text)
        for name in s.uses:
            if name not in made and not taken:
                shape.inputs.setdefault(name, types.get(name, "?"))
        if taken and s.name:
            shape.inputs[s.name] = "ptr"
    for name in region.carried:
        shape.inputs.setdefault(name, types[name])
    for name in (*region.required, *region.leaving):
        shape.outputs[name] = types.get(name, "?")
    for name, phi in region.carried.items():  # compared as well, under names of their own
        shape.outputs[next_of(name)] = types[name]
        if phi.following not in made and not is_constant(phi.following):
            shape.inputs.setdefault(phi.following, types[name])
    for kind in (*shape.inputs.values(), *shape.outputs.values()):
        if not _storable(kind):
            return None
    for i, address in region.addresses.items():
        s = region.statements[i]
        if is_pointer_load(s.text):
            continue
        slack = sum(abs(c) for _, c in address.terms) * 2 * shape.step
        reach = abs(address.offset) + slack + 4096
        if reach > LARGEST_BUFFER:
            return None
        base = address.base
        shape.buffers[base] = max(shape.buffers.get(base, BUFFER), 2 * reach)
        shape.align[base] = max(shape.align.get(base, 1), s.align)
        shape.accesses.setdefault(base, []).append((address, s))
        shape.any_step &= all(c % s.align == 0 for _, c in address.terms)
        if s.type in ("float", "double"):
            shape.floats[base] = s.type
        for term, _ in address.terms:
            shape.indices.add(term.removeprefix("s:").removeprefix("z:"))
    for name, kind in shape.inputs.items():
        if kind == "ptr":
            address = addresses.address(name)
            shape.buffers.setdefault(address.base, max(BUFFER, 2 * abs(address.offset) + BUFFER))
            shape.indices |= {term.removeprefix("s:").removeprefix("z:") for term, _ in address.terms}
    # Bases point into the middle, which has to be as aligned as anything may ask for.
    shape.buffers = {base: -(-reach // ALIGNED) * ALIGNED for base, reach in shape.buffers.items()}
    if max(shape.buffers.values(), default=0) > LARGEST_BUFFER:
        return None
    for name, kind in shape.inputs.items():  # what is made of an index, such as its extension, is one as well
        if kind in BITS and kind[0] == "i" and kind != "i1":
            terms, _ = addresses.integer(name, kind)
            if not shape.indices.isdisjoint(t.removeprefix("s:").removeprefix("z:") for t in terms):
                shape.indices.add(name)
    _indices(shape, addresses)
    return shape


def next_of(phi: str) -> str:
    """What a phi is in the next turn of its loop, under a name that nothing else has."""
    return f'%"heddle.next.{phi[1:].strip(chr(34))}"'


def _step(addresses: Addresses) -> int:
    """A power of two beyond all that is put in by `or disjoint`, as unrolled loops do with their counter; 0 if none."""
    if addresses not in _STEPS:
        step = 0
        for s in addresses.defs.values():
            if s.op == "or" and "disjoint" in s.flags:
                constant = int(s.lanes[1]) if re.fullmatch(r"\d+", s.lanes[1]) else 0
                step = max(step, 8, 1 << min(constant.bit_length(), 12))
        _STEPS[addresses] = step
    return _STEPS[addresses]


def _indices(shape: RegionShape, addresses: Addresses) -> None:
    """All integers from which addresses are made, however indirectly."""
    stack = list(shape.indices)
    while stack:
        s = addresses.defs.get(stack.pop())
        if s is None:
            continue
        if s.op == "load":
            shape.indexed_memory = True
        if s.op in ("fptosi", "fptoui"):
            shape.tame = True
        for name in s.uses:
            if name not in shape.indices:
                shape.indices.add(name)
                stack.append(name)


def _storable(kind: str) -> bool:
    if m := re.fullmatch(r"<(\d+) x (\w+)>", kind):
        return m[2] in BITS and int(m[1]) * BITS[m[2]] <= 8 * SLOT
    if kind.startswith("{ "):  # what a function gives back in registers
        parts = split_commas(kind[2:-2])
        return len(parts) <= 4 and all(_storable(p) and p != "ptr" and _bits(p) <= 2 * SLOT for p in parts)
    return kind in BITS or kind == "ptr"


def _bits(kind: str) -> int:
    m = re.fullmatch(r"<(\d+) x (\w+)>", kind)
    return int(m[1]) * BITS[m[2]] if m else BITS.get(kind, 8 * SLOT)


def is_pointer_load(text: str) -> bool:
    return " = load ptr, " in text


def memory_for(
    shape: RegionShape,
    addresses: Addresses,
    engine: Any,
    place: Place,
    turn: int | None,
    random: np.random.Generator,
) -> tuple[list[tuple[int, int, str]], dict[str, int], list[np.ndarray[Any, Any]]]:
    """Buffers as (address, bytes, what they hold), and where each base points: into the middle of one.

    From turn to turn other accesses meet, wherever nothing says that they do not; without a turn none do.
    """
    found: list[tuple[int, int, str]] = []
    where: dict[str, int] = {}
    keep: list[np.ndarray[Any, Any]] = []
    for base, reach in shape.buffers.items():
        if base.startswith("@"):
            start = engine.get_global_value_address(buffer_of(base)[1:])
            found.append((start, 2 * reach, shape.floats.get(base, "i8")))
            where[base] = start + reach
            continue
        near = [q for q in where if not addresses.apart(base, q) and shape.buffers[q] >= reach]
        if turn is not None and near and random.random() < 0.8:
            q = near[int(random.integers(0, len(near)))]
            distances = _distances(shape, base, q, place, random)
            distance = distances[turn % len(distances)] if distances else None
            if distance is not None and not _promised(shape, addresses, base, q, place, distance):
                where[base] = where[q] + distance
                continue
        memory = np.zeros(2 * reach + 128, dtype=np.uint8)
        keep.append(memory)
        start = -(-memory.ctypes.data // 64) * 64
        found.append((start, 2 * reach, shape.floats.get(base, "i8")))
        where[base] = start + reach
    return found, where, keep


def _distances(shape: RegionShape, base: str, other: str, place: Place, random: np.random.Generator) -> list[int]:
    """Distances of two bases at which a store meets another access, in an order of their own; then just beside it."""
    align = max(shape.align.get(base, 1), shape.align.get(other, 1))
    room = shape.buffers[other] - shape.buffers[base] // 2
    exact, beside = set[int](), set[int]()
    here, there = (
        [(place(address), s) for address, s in _some(shape.accesses.get(b, []), random)] for b in (base, other)
    )
    for x, s in here:
        for y, t in there:
            if "store" in (s.op, t.op):
                exact.add(y - x)
                beside |= {y - x - MEMORY_BYTES.get(s.type, 8), y - x + MEMORY_BYTES.get(s.type, 8)}
    found: list[int] = []
    for distances in (exact, beside - exact):
        fitting = sorted(d for d in distances if d % align == 0 and abs(d) <= room)
        np.random.default_rng(0).shuffle(fitting)  # the same in every turn, for turns to go through them
        found += fitting
    return found


def _some(accesses: list[Accessed], random: np.random.Generator) -> list[Accessed]:
    """Of many accesses those that meet are taken from a few."""
    if len(accesses) <= FEW:
        return accesses
    return [accesses[k] for k in sorted(random.choice(len(accesses), FEW, replace=False))]


def _promised(shape: RegionShape, addresses: Addresses, base: str, other: str, place: Place, distance: int) -> bool:
    """Whether accesses would meet that differ in type, and which the code may take as apart for that."""
    here, there = (
        {(s.op, s.type, s.metadata): s for _, s in shape.accesses.get(b, [])}.values() for b in (base, other)
    )
    for s in here:
        for t in there:
            # What has the same type in LLVM meets whatever its metadata says, which may have been misread.
            if "store" not in (s.op, t.op) or s.type == t.type or addresses.may_alias(s, t):
                continue
            touched = [
                {
                    place(address) + shift + k
                    for address, u in shape.accesses[b]
                    if u.type == like.type and u.metadata == like.metadata
                    for k in range(MEMORY_BYTES.get(u.type, 8))
                }
                for b, like, shift in ((base, s, distance), (other, t, 0))
            ]
            if not touched[0].isdisjoint(touched[1]):
                return True
    return False


def buffer_of(name: str) -> str:
    """The memory behind a global variable, which points into its middle."""
    return f"@heddle.buffer.{name[1:].encode().hex()}"


def fill(held: np.ndarray[Any, Any], kind: str, random: np.random.Generator, edge: float, *, small: bool) -> None:
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


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
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
