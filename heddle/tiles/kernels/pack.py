"""The right side of a product that is computed, not a weight: into panels, as the register tile reads them."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.tiles.kernels.emit import Code, Value
from heddle.tiles.kernels.target import Target


@dataclass(frozen=True)
class Pack:
    """A matrix of depth × columns with any strides. A record: output, matrix."""

    depth: int
    columns: int
    vectors: int  # of a panel; the last one is as wide as it needs to be
    by_depth: int  # strides, in numbers
    by_column: int

    def write(self, name: str, target: Target) -> str:
        code = Code(name, target)
        output, matrix = code.pointer(), code.pointer()
        across = self.vectors * code.lanes
        whole = self.columns // across

        def panel(index: Value, _: list[Value]) -> list[Value]:
            begin = code.at(output, code.mul(index, self.depth * across))
            self._panel(code, begin, code.at(matrix, code.mul(index, across * self.by_column)), across)
            return []

        code.loop(whole, panel)
        if odd := self.columns % across:
            begin = code.at(output, whole * self.depth * across)
            self._panel(code, begin, code.at(matrix, whole * across * self.by_column), odd)
        return code.finish()

    def _panel(self, code: Code, output: Value, matrix: Value, columns: int) -> None:
        vectors = -(-columns // code.lanes)

        def line(k: Value, _: list[Value]) -> list[Value]:
            source = code.at(matrix, code.mul(k, self.by_depth))
            target = code.at(output, code.mul(k, vectors * code.lanes))
            for v in range(vectors):
                mask = code.first(columns - v * code.lanes)
                place = code.at(source, v * code.lanes * self.by_column)
                value = (
                    code.load_vector(place, mask) if self.by_column == 1 else code.gather(place, self.by_column, mask)
                )
                code.store_vector(value, code.at(target, v * code.lanes))
            return []

        code.loop(self.depth, line)


def packed_size(depth: int, columns: int, lanes: int) -> int:
    """Numbers of a packed matrix: columns are filled up to whole vectors."""
    return depth * -(-columns // lanes) * lanes
