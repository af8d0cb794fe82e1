"""Depthwise convolution, row by row: pixels side by side share what they read.

A *run* is a few neighboring pixels of an output row. For one vector of channels each pixel that their windows touch is
read once and goes into the sums of all who see it. Windows that reach over the left or right edge belong to runs that
are written out for themselves, without those taps; all others are one loop. Rows above and below the image are read as
zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.tiles.kernels.emit import F32, Code, Value, i64
from heddle.tiles.kernels.recipe import Recipe, evaluate
from heddle.tiles.kernels.target import Target

RUN = 8  # pixels: as many sums, which hide how long an addition takes


@dataclass(frozen=True)
class Line:
    """What a row of the output sees of a row of the image."""

    pixels: int  # of the image
    made: int  # of the output
    taps: int
    stride: int
    padding: int
    dilation: int

    @property
    def run(self) -> int:
        """Pixels of a run: runs of one length, as far as they can be."""
        return -(-self.made // -(-self.made // RUN))

    def column(self, pixel: int, tap: int) -> int:
        """Where a tap of a pixel's window is."""
        return pixel * self.stride - self.padding + tap * self.dilation

    def odd(self, first: int, count: int) -> bool:
        """Whether a run is shorter than others, or some of its windows reach over an edge."""
        inside = self.column(first, 0) >= 0 and self.column(first + count - 1, self.taps - 1) < self.pixels
        return not inside or count < self.run

    @property
    def runs(self) -> list[tuple[int, int]]:
        """The first pixel of each run, and how many it has."""
        return [(first, min(self.run, self.made - first)) for first in range(0, self.made, self.run)]

    @property
    def edges(self) -> int:
        """Runs that are written out for themselves."""
        return sum(self.odd(*each) for each in self.runs)


@dataclass(frozen=True)
class Depthwise:
    """A record: output, image, a row of zeros, weights (taps × channels), operands, first and last row of the output,
    of all images.
    """

    line: Line
    column: Line  # the same, down a column
    channels: int
    image_strides: tuple[int, int, int]  # over images, rows and pixels, in numbers
    output_stride: int
    epilogue: Recipe
    operands: tuple[tuple[int, int], ...] = ()  # strides over pixels and channels

    def write(self, name: str, target: Target) -> str:
        code = Code(name, target)
        DepthwiseWriter(self, code).write()
        return code.finish()


class DepthwiseWriter:
    """Writes a kernel into a function, from the next operand of the record on."""

    def __init__(self, kernel: Depthwise, code: Code) -> None:
        self.kernel, self.code = kernel, code
        self.output, self.image, self.zeros, self.weights = (code.pointer() for _ in range(4))
        self.operands = [code.pointer() for _ in kernel.operands]
        self.first, self.last = code.number(), code.number()

    def write(self) -> None:
        kernel, code = self.kernel, self.code
        line = kernel.line
        middle = [first for first, count in line.runs if not line.odd(first, count)]

        def row(index: Value, _: list[Value]) -> list[Value]:
            lines, pixel = self.lines(index), code.mul(index, line.made)

            def several(first: Value, _: list[Value]) -> list[Value]:
                self.run(lines, pixel, first, range(line.run), None)
                return []

            if middle:
                code.loop(middle[-1] + 1, several, start=middle[0], step=line.run)
            for first, count in line.runs:
                if line.odd(first, count):
                    self.run(lines, pixel, i64(first), range(count), first)
            return []

        code.loop(self.last, row, start=self.first)

    def lines(self, row: Value) -> list[Value]:
        """Where the rows of the image begin that a row of the output sees."""
        code, column = self.code, self.kernel.column
        by_image, by_row, _ = self.kernel.image_strides
        image = code.at(self.image, code.mul(code.block.udiv(row, i64(column.made)), by_image))
        top = code.mul(code.block.urem(row, i64(column.made)), column.stride)
        found = []
        for tap in range(column.taps):
            place = code.add(top, column.column(0, tap))
            inside = code.block.icmp_unsigned("<", place, i64(column.pixels))
            found.append(code.block.select(inside, code.at(image, code.mul(place, by_row)), self.zeros))
        return found

    def run(self, lines: list[Value], pixel: Value, first: Value, run: range, edge: int | None) -> None:
        """Some pixels, all channels; where they are is known (`edge`) if some of their taps are missing."""
        kernel, code, line = self.kernel, self.code, self.kernel.line
        by_pixel = kernel.image_strides[2]
        start = code.add(code.mul(first, line.stride), -line.padding)
        begins = [code.at(each, code.mul(start, by_pixel)) for each in lines]
        seen: dict[int, list[tuple[int, int]]] = {}  # columns behind the start, and the pixels and taps that see them
        for place in run:
            for tap in range(line.taps):
                if edge is None or 0 <= line.column(edge + place, tap) < line.pixels:
                    seen.setdefault(place * line.stride + tap * line.dilation, []).append((place, tap))

        def vector(channel: Value, mask: Value | None) -> None:
            sums = [code.zero() for _ in run]
            for number, begin in enumerate(begins):
                weights = [self.weight(number * line.taps + tap, channel, mask) for tap in range(line.taps)]
                for behind, readers in sorted(seen.items()):
                    value = code.load_vector(code.at(code.at(begin, channel), behind * by_pixel), mask)
                    for place, tap in readers:
                        sums[place] = code.fma(value, weights[tap], sums[place])
            for place, value in enumerate(sums):
                self.store(value, code.add(code.add(pixel, first), place), channel, mask)

        def whole(channel: Value, _: list[Value]) -> list[Value]:
            vector(channel, None)
            return []

        even = kernel.channels // code.lanes * code.lanes
        code.loop(even, whole, step=code.lanes)
        if even < kernel.channels:
            vector(i64(even), code.first(kernel.channels - even))

    def weight(self, tap: int, channel: Value, mask: Value | None) -> Value:
        code = self.code
        return code.load_vector(code.at(code.at(self.weights, channel), tap * self.kernel.channels), mask)

    def store(self, value: Value, pixel: Value, channel: Value, mask: Value | None) -> None:
        """A vector of one pixel, after the epilogue."""
        kernel, code = self.kernel, self.code

        def load(number: int) -> Value:
            if number == 0:
                return value
            by_pixel, by_channel = kernel.operands[number - 1]
            place = code.add(code.mul(pixel, by_pixel), code.mul(channel, by_channel))
            pointer = code.at(self.operands[number - 1], place)
            if by_channel == 0:
                return code.splat(code.load(F32, pointer))
            return code.load_vector(pointer, mask) if by_channel == 1 else code.gather(pointer, by_channel, mask)

        place = code.add(code.mul(pixel, kernel.output_stride), channel)
        code.store_vector(evaluate(code, kernel.epilogue, load), code.at(self.output, place), mask)
