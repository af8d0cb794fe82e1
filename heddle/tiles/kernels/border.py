"""Rows of an image of a few channels, with these next to each other and zeros at both ends of a row."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.tiles.kernels.emit import Code, Value, i64
from heddle.tiles.kernels.target import Target
from heddle.tiles.kernels.turn import Turn


@dataclass(frozen=True)
class Border:
    """A record: output, image, first and last row of all images."""

    channels: int
    height: int
    width: int
    left: int  # pixels of zeros
    right: int
    strides: tuple[int, int, int]  # of the image over images, channels and rows; pixels are next to each other

    def write(self, name: str, target: Target) -> str:
        code = Code(name, target)
        output, image, first, last = code.pointer(), code.pointer(), code.number(), code.number()
        by_image, by_channel, by_row = self.strides
        turn = Turn(self.channels, self.width, by_channel, self.channels)
        whole = self.width // code.lanes * code.lanes

        def row(index: Value, _: list[Value]) -> list[Value]:
            place = code.add(
                code.mul(code.block.udiv(index, i64(self.height)), by_image),
                code.mul(code.block.urem(index, i64(self.height)), by_row),
            )
            source = code.at(image, place)
            begin = code.at(output, code.mul(index, (self.left + self.width + self.right) * self.channels))
            inside = code.at(begin, self.left * self.channels)
            _clear(code, begin, self.left * self.channels)
            _clear(code, code.at(inside, self.width * self.channels), self.right * self.channels)

            def several(column: Value, _: list[Value]) -> list[Value]:
                turn.columns_at(code, inside, source, column, code.lanes)
                return []

            code.loop(whole, several, step=code.lanes)
            if whole < self.width:
                turn.columns_at(code, inside, source, i64(whole), self.width - whole)
            return []

        code.loop(last, row, start=first)
        return code.finish()


def _clear(code: Code, begin: Value, count: int) -> None:
    for place in range(0, count, code.lanes):
        code.store_vector(code.zero(), code.at(begin, place), code.first(count - place))
