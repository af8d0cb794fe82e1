"""What a region reads and writes beyond itself, and values and memory made up for it: random, and at the edges."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heddle.lanes.cost import is_constant
from heddle.lanes.dependence import Addresses, Region
from heddle.lanes.ir import BITS, Statement, split_commas

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


@dataclass
class Shape:
    """What a region reads and writes beyond itself."""

    inputs: dict[str, str] = field(default_factory=dict)  # value → type
    outputs: dict[str, str] = field(default_factory=dict)
    buffers: dict[str, int] = field(default_factory=dict)  # base → bytes on each side
    align: dict[str, int] = field(default_factory=dict)
    indices: set[str] = field(default_factory=set)  # integers that make addresses
    floats: dict[str, str] = field(default_factory=dict)  # base → the floating-point type it holds
    step: int = 8  # indices are multiples of it, which `or disjoint` may count on
    tame: bool = False  # no wild floats: addresses are made of what they are converted to
    indexed_memory: bool = False  # integers in memory make addresses


def shape_of(region: Region, addresses: Addresses) -> Shape | None:
    shape = Shape(step=_step(addresses.defs.values()))
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


def _step(statements: Iterable[Statement]) -> int:
    """A power of two beyond all that is put in by `or disjoint`, as unrolled loops do with their counter."""
    step = 8
    for s in statements:
        if s.op == "or" and "disjoint" in s.flags and re.fullmatch(r"\d+", s.lanes[1]):
            step = max(step, 1 << min(int(s.lanes[1]).bit_length(), 12))
    return step


def _indices(shape: Shape, addresses: Addresses) -> None:
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
    shape: Shape, addresses: Addresses, engine: Any, trial: int, random: np.random.Generator
) -> tuple[list[tuple[int, int, str]], dict[str, int], list[np.ndarray[Any, Any]]]:
    """Buffers as (address, bytes, what they hold), and where each base points: into the middle of one."""
    found: list[tuple[int, int, str]] = []
    where: dict[str, int] = {}
    keep: list[np.ndarray[Any, Any]] = []
    for base, reach in shape.buffers.items():
        if base.startswith("@"):
            start = engine.get_global_value_address(buffer_of(base)[1:].strip('"'))
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


def buffer_of(name: str) -> str:
    """The memory behind a global variable, which points into its middle."""
    return f'@"{name[1:].strip(chr(34))}.buffer"'


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
