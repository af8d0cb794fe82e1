"""Attention: keys and values are packed once for each head, then every block of queries is a tile."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from heddle.tiles.graph import Tile
from heddle.tiles.kernels.attention import AttentionKernel
from heddle.tiles.kernels.target import Target
from heddle.tiles.operators.product import PackOperator, packed
from heddle.tiles.tiling import Tiling, query_tile
from heddle.tiles.values import Rect, View


@dataclass
class AttentionOperator:
    """Queries, output: (batch, heads, queries, numbers); packed keys and values: a row for each head of theirs."""

    name: str
    target: Target
    tiling: Tiling
    queries: View
    keys: PackOperator
    values: PackOperator
    output: View
    scale: float
    causal: bool = False
    mask: View | None = None  # (batch, heads, queries, keys), expanded
    kind: str = "attention"

    def kernel(self, block: int) -> AttentionKernel:
        _, _, count, head = self.queries.shape
        mask = None
        if self.mask is not None:
            by_query, by_key = self.mask.strides[-2:]
            mask = ("bool" if self.mask.dtype == torch.bool else "f32", by_query, by_key)
        return AttentionKernel(
            head=head,
            value_head=self.output.shape[-1],
            keys=self.keys.source.shape[-1],
            rows=block,
            odd_rows=count % block,
            query_stride=self.queries.strides[2],
            output_stride=self.output.strides[2],
            key_vectors=self.keys.vectors,
            value_vectors=self.values.vectors,
            scale=self.scale,
            causal=self.causal,
            mask=mask,
        )

    @property
    def block(self) -> int:
        widest = max(self.keys.vectors, self.values.vectors)
        return self.target.block_rows(widest, self.queries.shape[2])

    @property
    def scratch(self) -> int:
        """Bytes that a worker needs."""
        return self.kernel(self.block).scratch(self.target.lanes)

    def tiles(self) -> list[Tile]:
        batch, heads, count, head = self.queries.shape
        keys = self.keys.source.shape[-1]
        block = self.block
        kernel = self.kernel(block)
        step = block * query_tile(self.tiling, batch * heads, count, keys, head, block)
        # The last queries see most keys where attention is causal: begin with them.
        firsts = range(0, count, step)
        ordered = list(reversed(firsts) if self.causal else firsts)
        return [
            self._tile(kernel, b, h, first, min(count, first + step))
            for b in range(batch)
            for h in range(heads)
            for first in ordered
        ]

    def _tile(self, kernel: AttentionKernel, b: int, h: int, first: int, last: int) -> Tile:
        heads = self.queries.shape[1]
        theirs = self.keys.source.shape[1]
        number = b * theirs + h * theirs // heads
        box = (b, h, first, 0), (b + 1, h + 1, last, kernel.head)
        out = (b, h, first, 0), (b + 1, h + 1, last, kernel.value_head)

        def at(view: View) -> tuple[View, int]:
            return view, sum(i * s for i, s in zip((b, h, first, 0), view.strides, strict=True))

        placed: list[tuple[View, int] | int] = [
            at(self.output), at(self.queries),
            (self.keys.output, number * self.keys.output.shape[-1]),
            (self.values.output, number * self.values.output.shape[-1]),
            at(self.mask) if self.mask is not None else 0,
            first, (last - first) // kernel.rows, int((last - first) % kernel.rows > 0),
        ]  # fmt: skip
        reads = [(self.queries.buffer, self.queries.rect(*box))]
        packs = (self.keys.output, self.values.output)
        reads += [(each.buffer, Rect(number, number + 1, 0, each.shape[-1])) for each in packs]
        if self.mask is not None:
            reads.append((self.mask.buffer, self.mask.rect((b, h, first, 0), (b + 1, h + 1, last, kernel.keys))))
        seen = min(last, kernel.keys) if kernel.causal else kernel.keys
        work = 2.0 * (last - first) * seen * (kernel.head + kernel.value_head)
        moved = 4.0 * seen * (kernel.head + kernel.value_head)
        return Tile(kernel, placed, reads, [(self.output.buffer, self.output.rect(*out))], work, moved)


def attention(
    name: str,
    target: Target,
    tiling: Tiling,
    queries: View,
    keys: View,
    values: View,
    output: View,
    scale: float,
    causal: bool,
    mask: View | None,
) -> tuple[PackOperator, PackOperator, AttentionOperator]:
    """The operators of one attention. Keys and values: (batch, heads of theirs, keys, numbers)."""
    turned = keys.then(lambda each: each.transpose(-1, -2))
    count = keys.shape[2]
    wide = -(-count // target.lanes)
    key_vectors = min((3, 2) if target.registers >= 32 else (2, 1), key=lambda each: (-wide % each, -each))
    value_vectors = min(2, -(-values.shape[-1] // target.lanes))
    pack_keys = packed(f"{name}.keys", target, turned, min(key_vectors, wide))
    pack_values = packed(f"{name}.values", target, values, value_vectors)
    return (
        pack_keys,
        pack_values,
        AttentionOperator(name, target, tiling, queries, pack_keys, pack_values, output, scale, causal, mask),
    )
