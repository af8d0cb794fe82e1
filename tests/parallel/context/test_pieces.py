"""What queries see of keys, piece by piece, against the rule for single tokens."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from heddle.parallel.context import attention
from heddle.parallel.context.cut import TokenBlock, as_held, blocks, in_order
from heddle.parallel.context.pieces import AttentionPiece, pieces
from heddle.parallel.mesh import Axis


def seen(found: list[AttentionPiece], queries: list[int], keys: list[int], sample: int) -> np.ndarray:
    """How often each key, by its place in the sample, is seen by each query."""
    counts = np.zeros((max(queries) + 1, max(keys) + 1), dtype=int)
    for piece in found:
        if sample not in range(64)[piece.samples]:
            continue
        rows, columns = queries[piece.queries], keys[piece.keys]
        for i, row in enumerate(rows):
            looks = 0
            for j, column in enumerate(columns):
                visible = True
                if piece.causal:
                    assert len(rows) == len(columns)
                    visible = j <= i
                if piece.window is not None:
                    behind, window = piece.window
                    visible = 0 <= behind + i - j < window
                counts[row, column] += visible
                looks += visible
            assert looks, "a query without a key has no log-sum-exp"
    return counts


def held(sequence: int, rank: int, size: int) -> list[int]:
    return [place for block in blocks(sequence, rank, size) for place in range(block.start, block.stop)]


@st.composite
def samples(draw: st.DrawFn) -> tuple[int, int, int | None, list[list[int]]]:
    size = draw(st.integers(1, 5))
    sequence = 2 * size * draw(st.integers(1, 8))
    window = draw(st.none() | st.integers(1, sequence + 3))
    cuts = draw(st.lists(st.sets(st.integers(1, sequence - 1), max_size=4), max_size=3)) if sequence > 1 else []
    bounds = [[0, *sorted(some), sequence] for some in cuts]
    return size, sequence, window, [np.diff(each).tolist() for each in bounds]


@given(samples())
def test_every_key_is_seen_once_by_whom_it_concerns(case):
    """By turns of the ring, and of all keys in their order."""
    size, sequence, window, documents = case
    whole = (TokenBlock(0, sequence, 0),)
    for sample in range(max(1, len(documents))):
        lengths = documents[sample] if documents else [sequence]
        document = np.repeat(np.arange(len(lengths)), lengths)
        place = np.arange(sequence)
        back = place[:, None] - place
        rule = (back >= 0) & (back < (window or sequence)) & (document[:, None] == document)
        ring, gathered = np.zeros((2, sequence, sequence), dtype=int)
        for rank in range(size):
            mine = held(sequence, rank, size)
            for other in range(size):
                found = pieces(blocks(sequence, rank, size), blocks(sequence, other, size), window, documents)
                counts = seen(found, mine, held(sequence, other, size), sample)
                ring[: counts.shape[0], : counts.shape[1]] += counts
            found = pieces(blocks(sequence, rank, size), whole, window, documents)
            counts = seen(found, mine, place.tolist(), sample)
            gathered[: counts.shape[0], : counts.shape[1]] += counts
        assert np.array_equal(ring, rule)
        assert np.array_equal(gathered, rule)


@given(st.integers(2, 6), st.integers(1, 5))
def test_all_ranks_have_the_same_number_of_tokens_and_of_pairs(size, length):
    sequence = 2 * size * length
    every = [held(sequence, rank, size) for rank in range(size)]
    assert sorted(place for some in every for place in some) == list(range(sequence))
    assert len({len(some) for some in every}) == 1
    assert len({sum(place + 1 for place in some) for some in every}) == 1


def test_without_windows_each_turn_is_one_call():
    """The own tokens causally, those of ranks before to the front half, those after to the queries behind."""
    for rank in range(4):
        for other in range(4):
            (piece,) = pieces(blocks(64, rank, 4), blocks(64, other, 4), None)
            assert piece.causal == (rank == other)


def test_ranks_beyond_the_window_are_not_visited():
    size, sequence = 8, 128
    for window, reach in ((8, 1), (9, 1), (16, 2)):  # blocks of 8 tokens
        for rank in range(size):
            wanted = {
                other
                for other in range(size)
                if pieces(blocks(sequence, rank, size), blocks(sequence, other, size), window)
            }
            near = {min(max(rank + step, 0), size - 1) for step in range(-reach, reach + 1)}
            assert wanted <= near


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_in_order_and_back(size, length, heads):
    sequence = 2 * size * length
    whole = torch.randn(2, heads, sequence, 3)
    slices = as_held(whole, 2, size)
    for rank in range(size):
        assert torch.equal(slices[rank], whole[:, :, held(sequence, rank, size)] if size > 1 else whole)
    assert torch.equal(in_order(slices, 2), whole)


def test_who_sees_whom_is_found_once_for_all_layers(monkeypatch):
    """The host would otherwise look at every pair of ranks in every layer, while its device waits."""
    looks = []
    monkeypatch.setattr(attention, "pieces", lambda *given: looks.append(given) or pieces(*given))
    attention.sight.cache_clear()
    for _ in range(3):  # layers
        shared = attention.Shared(Axis(1, tuple(range(8))), 64, None)
        assert shared.turns() == list(range(1, 8))
        assert shared.pieces(3, 2)
    assert len(looks) <= 8 * 8
