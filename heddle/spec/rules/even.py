"""Layers of each chunk where nobody says otherwise."""

from __future__ import annotations


def even_stages(layers: int, chunks: int) -> tuple[int, ...]:
    """Layers of each chunk, as even as can be.

    The chunks that get one more sit before the last, which also holds the output layer, and where there is a choice
    after the first, which holds the embedding.
    """
    small, extra = divmod(layers, chunks)
    first = (chunks - extra) // 2
    return tuple(small + (first <= chunk < first + extra) for chunk in range(chunks))
