"""What of a rank's queries sees what of some keys: rectangles and triangles, each one call of a kernel.

Queries and keys are blocks of a sample (`cut.py`). A query sees keys of its own document, no later than itself and no
further back than the window. So past keys are seen whole, by all queries of a block, and the block's own keys by the
causal rule; only at the far edge of a window is there anything to mask. Pieces leave no query without a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from heddle.models.attention import BLOCK
from heddle.parallel.context.cut import TokenBlock


class AttentionPiece(NamedTuple):
    """Some queries and some keys, as they lie locally."""

    queries: slice
    keys: slice
    causal: bool = False  # the same tokens on both sides, each seeing those up to itself
    # how far the first query lies behind the first key, and the window: where that hides some of the keys
    window: tuple[int, int] | None = None
    samples: slice = slice(None)


def pieces(
    queries: Sequence[TokenBlock],
    keys: Sequence[TokenBlock],
    window: int | None,
    documents: Sequence[Sequence[int]] = (),
) -> list[AttentionPiece]:
    """All of them. `documents` has the lengths of each sample's; none: a sample is one document."""
    if not documents:
        return list(_of_document(queries, keys, window))
    found = []
    for sample, lengths in enumerate(documents):
        for start, stop in pairwise(accumulate(lengths, initial=0)):
            inside = _of_document(_cut(queries, start, stop), _cut(keys, start, stop), window)
            found += [piece._replace(samples=slice(sample, sample + 1)) for piece in inside]
    return found


def _cut(blocks: Sequence[TokenBlock], start: int, stop: int) -> list[TokenBlock]:
    """What of the blocks is in a document."""
    ranges = ((max(block.start, start), min(block.stop, stop), block) for block in blocks)
    return [TokenBlock(low, high, block.at + low - block.start) for low, high, block in ranges if low < high]


def _of_document(
    queries: Sequence[TokenBlock], keys: Sequence[TokenBlock], window: int | None
) -> Iterator[AttentionPiece]:
    if window is None and queries and queries == keys and _adjacent(queries):
        # what lies between two blocks of a rank nobody there holds, and order is all that counts
        yield AttentionPiece(_range(queries[0].at, queries[-1]), _range(keys[0].at, keys[-1]), causal=True)
        return
    found = [piece for block in _short(queries, window) for key in keys for piece in _of_blocks(block, key, window)]
    yield from _joined(found)


def _adjacent(blocks: Sequence[TokenBlock]) -> bool:
    return all(one.at + one.stop - one.start == two.at for one, two in pairwise(blocks))


def _range(first: int, last: TokenBlock) -> slice:
    return slice(first, last.at + last.stop - last.start)


def _short(queries: Sequence[TokenBlock], window: int | None) -> Iterator[TokenBlock]:
    """Blocks no longer than the window, so that little of what is computed is hidden; but long enough for a kernel."""
    for block in queries:
        step = block.stop - block.start if window is None else max(window, BLOCK)
        for start in range(block.start, block.stop, step):
            yield TokenBlock(start, min(start + step, block.stop), block.at + start - block.start)


def _of_blocks(query: TokenBlock, key: TokenBlock, window: int | None) -> Iterator[AttentionPiece]:
    """What a block of queries sees of a block of keys: those before it, and itself."""
    reach = query.stop if window is None else window  # how far a query sees, itself included
    before = max(key.start, query.start - reach + 1), min(key.stop, query.start)
    own = max(key.start, query.start), min(key.stop, query.stop)
    for (start, stop), causal in ((before, False), (own, True)):
        if start >= stop:
            continue
        last = query.stop if causal else min(query.stop, stop + reach - 1)  # whoever sees at least the newest key
        rows = slice(query.at, query.at + last - query.start)
        columns = slice(key.at + start - key.start, key.at + stop - key.start)
        if last - start <= reach:
            assert not causal or (start, stop) == (query.start, query.stop), "blocks overlap"
            yield AttentionPiece(rows, columns, causal)
        else:
            assert window is not None
            yield AttentionPiece(rows, columns, window=(query.start - start, window))


def _joined(found: list[AttentionPiece]) -> list[AttentionPiece]:
    """Fewer and larger pieces: rectangles over the same queries or the same keys, side by side, are one."""
    joined: list[AttentionPiece] = []
    for piece in found:
        for place, other in enumerate(joined):
            if other.causal or piece.causal or other.window or piece.window:
                continue
            if other.queries == piece.queries and other.keys.stop == piece.keys.start:
                joined[place] = other._replace(keys=slice(other.keys.start, piece.keys.stop))
                break
            if other.keys == piece.keys and other.queries.stop == piece.queries.start:
                joined[place] = other._replace(queries=slice(other.queries.start, piece.queries.stop))
                break
        else:
            joined.append(piece)
    return joined
