"""How large tiles are: what one core runs in tens of microseconds, enough of them for all cores, at home in a cache."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.tiles.kernels.target import Target

RATE = 100e9  # fp32 operations per second of a core, about: only the order of magnitude matters here
SHORTEST = 15e-6  # seconds of a tile: thousands of times what it takes to find it
MOST = 4096  # tiles of an operator
SMALL = 12 << 10  # bytes of element-wise work that are not worth cutting
NARROW = 48 << 10  # bytes of weights that a tile should at least read: what it takes a core a microsecond or two
PER_WORKER = 8  # tiles of an operator for each worker, where they do not become shorter than that


@dataclass(frozen=True)
class Tiling:
    """What may be tuned. Sizes are multiplied by these; 1 is the model's own choice."""

    threads: int
    rows: float = 1.0  # of a product's tile
    columns: float = 1.0
    queries: float = 1.0  # of attention's


def product_tile(
    tiling: Tiling, target: Target, rows: int, columns: int, depth: int, part: int, block: int, panel: int
) -> tuple[int, int]:
    """Blocks of rows and panels of columns of a product's tile.

    Weights come from far away, rows of activations from the second cache: so a tile keeps as many rows as most of that
    cache holds (of the `part` of the depth that is multiplied at a time), and reads each panel of weights once for all
    of them. Columns then give the tiles their number; where a matrix has too few for all workers, rows are cut as well.
    """
    blocks, panels = -(-rows // block), -(-columns // panel)
    held = max(1, int(tiling.rows * 0.75 * target.l2 // (4 * part * block)))
    parts = -(-blocks // max(1, min(held, int(tiling.rows * 256) // block or 1)))
    wanted = PER_WORKER * tiling.threads if tiling.threads > 1 else 1
    shortest = max(1, round(SHORTEST * RATE / (2 * block * panel * depth)))  # registers' tiles that take so long
    parts = max(parts, min(-(-wanted // panels), blocks * panels // shortest, blocks))
    tall = -(-blocks // parts)
    wide = max(-(-shortest // tall), -(-panels * parts // wanted), -(-panels * parts // MOST))
    wide = max(1, min(panels, round(wide * tiling.columns)))
    return tall, -(-panels // -(-panels // wide))


def narrow_tile(tiling: Tiling, panels: int, bytes_of_panel: int) -> int:
    """Panels of a tile of a few rows times weights that are read once: as many for each worker, where it pays."""
    if tiling.threads == 1:
        return panels
    most = max(1, min(PER_WORKER, panels * bytes_of_panel // NARROW // tiling.threads))

    def longest(step: int) -> int:
        """Panels of the worker that has most of them."""
        tiles = -(-panels // step)
        return step * -(-tiles // tiling.threads)

    steps = [max(1, -(-panels // (rounds * tiling.threads))) for rounds in range(most, 0, -1)]
    return min(steps, key=longest)


def row_tile(tiling: Tiling, rows: int, bytes_of_row: int) -> int:
    """Rows of element-wise work and norms: a part of the second cache, and enough tiles for all workers."""
    fits, least = (max(1, size // max(1, bytes_of_row)) for size in (192 << 10, SMALL))
    even = max(least, -(-rows // (2 * tiling.threads)))
    return max(1, -(-rows // MOST), min(rows, fits, even))


def window_tile(tiling: Tiling, pixels: int, operations: int, bytes_of_pixel: int) -> int:
    """Pixels of depthwise convolution or pooling, which do half the operations of a product in the same time."""
    shortest = round(SHORTEST * RATE / 2 / operations)
    fits = (192 << 10) // bytes_of_pixel
    wanted = PER_WORKER * tiling.threads if tiling.threads > 1 else 1
    return max(1, min(pixels, max(shortest, min(fits, -(-pixels // wanted)))))


def line_tile(tiling: Tiling, rows: int, operations: int, size: int) -> int:
    """Rows of pixels of a depthwise convolution: what stays in the second cache beside what comes from there."""
    shortest = round(SHORTEST * RATE / 4 / operations)
    wanted = PER_WORKER * tiling.threads if tiling.threads > 1 else 1
    return max(1, min(rows, max(shortest, min((192 << 10) // size, -(-rows // wanted)))))


def query_tile(tiling: Tiling, heads: int, queries: int, keys: int, head: int, block: int) -> int:
    """Blocks of queries of attention's tile."""
    blocks = -(-queries // block)
    wanted = max(1, PER_WORKER * tiling.threads // max(1, heads))
    shortest = max(1, round(SHORTEST * RATE / (4 * block * keys * head)))
    return max(1, min(blocks, round(max(shortest, -(-blocks // max(wanted, -(-blocks // 8)))) * tiling.queries)))
