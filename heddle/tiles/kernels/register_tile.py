"""A block of a product that stays in registers: rows × vectors of accumulators, over the whole depth.

Accumulators are what the loop carries, never stack slots; every stride is a constant, so that addresses are a base and
a displacement. The left matrix is read where it is, one number at a time into all lanes; the right one comes packed in
*panels*, the columns of a register tile at a stretch, so that every line of it is read once and in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from heddle.tiles.kernels.emit import F32, Code, Value

UNROLL = 4  # steps of the depth at a time
LINE = 64  # bytes

Left = Callable[[Value, int, int], Value]  # where the number at (depth index, step behind it, row) is


@dataclass(frozen=True)
class Ahead:
    """What to fetch while a tile is at work: `lines` per unrolled step from `pointer` on."""

    pointer: Value
    lines: int


def strided(code: Code, pointer: Value, stride: int) -> Left:
    """Rows that are `stride` numbers apart."""

    def at(k: Value, step: int, row: int) -> Value:
        return code.at(code.at(pointer, k), row * stride + step)

    return at


def scattered(code: Code, rows: Sequence[Value]) -> Left:
    """Rows that begin anywhere."""

    def at(k: Value, step: int, row: int) -> Value:
        return code.at(code.at(rows[row], k), step)

    return at


def zeros(code: Code, rows: int, vectors: int) -> list[Value]:
    """Accumulators of a tile."""
    return [code.zero()] * (rows * vectors)


def multiply(
    code: Code,
    sums: Sequence[Value],
    left: Left,
    panel: Value,
    depth: int | Value,
    vectors: int,
    ahead: Ahead | None = None,
    width: int | None = None,
) -> list[Value]:
    """Add left × panel to the accumulators, row by row. `width` is the panel's, in vectors, where it is wider."""
    rows, across = len(sums) // vectors, (width or vectors) * code.lanes

    def step(k: Value, offset: int, sums: list[Value]) -> list[Value]:
        line = code.at(panel, code.mul(k, across))
        right = [code.load_vector(code.at(line, offset * across + v * code.lanes)) for v in range(vectors)]
        found = list(sums)
        for row in range(rows):
            number = code.splat(code.load(F32, left(k, offset, row)))
            for v in range(vectors):
                place = row * vectors + v
                found[place] = code.fma(number, right[v], found[place])
        return found

    def unrolled(k: Value, sums: list[Value]) -> list[Value]:
        for offset in range(UNROLL):
            sums = step(k, offset, sums)
        if ahead is not None:
            place = code.at(ahead.pointer, code.mul(k, ahead.lines * LINE // UNROLL), 1)
            for number in range(ahead.lines):
                code.prefetch(code.at(place, number * LINE, 1))
        return sums

    if isinstance(depth, int):
        whole = depth // UNROLL * UNROLL
        found = code.loop(whole, unrolled, sums, step=UNROLL)
        for k in range(whole, depth):
            found = step(code.add(0, k), 0, found)
        return found
    whole = code.block.and_(depth, code.add(0, -UNROLL))
    found = code.loop(whole, unrolled, sums, step=UNROLL)
    return code.loop(depth, lambda k, sums: step(k, 0, sums), found, start=whole)
