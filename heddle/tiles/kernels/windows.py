"""Windows that slide over an image, one channel at a time: depthwise convolution, pooling, and blending of pixels.

A row is a pixel of the output, and a table says where each tap of its window begins in the input; channels are next to
each other, so that a vector holds several.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.tiles.kernels.emit import F32, I32, I64, Code, Value, i64
from heddle.tiles.kernels.recipe import Recipe, evaluate
from heddle.tiles.kernels.target import Target

AT_ONCE = 4  # vectors of channels


def tap_begin(code: Code, image: Value, padding: Value, entry: Value) -> Value:
    """Where a tap of a window is: bytes into the image, or below 0 where it lies outside."""
    offset = code.block.sext(code.load(I32, entry), I64)
    inside = code.block.icmp_signed(">=", offset, i64(0))
    return code.block.select(inside, code.at(image, offset, 1), padding)


@dataclass(frozen=True)
class Windows:
    """A record: output, input, table of taps, padding, weights, operands, first, last. Weights: of taps × channels,
    a share of each pixel, or of pixels × taps.
    """

    kind: str  # "depthwise", "max", "mean" or "blend"
    taps: int
    channels: int
    output_stride: int
    epilogue: Recipe
    operands: tuple[tuple[int, int], ...] = ()  # strides over pixels and channels

    def write(self, name: str, target: Target) -> str:
        code = Code(name, target)
        pointers = [code.pointer() for _ in range(5)]
        operands = [code.pointer() for _ in self.operands]
        first, last = code.number(), code.number()
        group = AT_ONCE * code.lanes
        whole = self.channels // group * group

        def pixel(index: Value, _: list[Value]) -> list[Value]:
            def several(channel: Value, _: list[Value]) -> list[Value]:
                self._vectors(code, pointers, operands, index, channel, group)
                return []

            code.loop(whole, several, step=group)
            if whole < self.channels:
                self._vectors(code, pointers, operands, index, i64(whole), self.channels - whole)
            return []

        code.loop(last, pixel, start=first)
        return code.finish()

    def _vectors(
        self, code: Code, pointers: list[Value], operands: list[Value], pixel: Value, channel: Value, channels: int
    ) -> None:
        output, image, table, padding, weights = pointers
        vectors = -(-channels // code.lanes)
        masks = [code.first(channels - v * code.lanes) for v in range(vectors)]
        values = [code.constant(float("-inf") if self.kind == "max" else 0.0)] * vectors

        def tap(number: Value, values: list[Value]) -> list[Value]:
            entry = code.at(table, code.add(code.mul(pixel, self.taps), number))
            begin = code.at(tap_begin(code, image, padding, entry), channel)
            weight = code.at(weights, code.add(code.mul(number, self.channels), channel))
            if self.kind == "blend":
                share = code.splat(code.load(F32, code.at(weights, code.add(code.mul(pixel, self.taps), number))))
            found = []
            for v, before in enumerate(values):
                value = code.load_vector(code.at(begin, v * code.lanes), masks[v])
                if self.kind == "depthwise":
                    found.append(code.fma(value, code.load_vector(code.at(weight, v * code.lanes), masks[v]), before))
                elif self.kind == "blend":
                    found.append(code.fma(value, share, before))
                elif self.kind == "max":
                    found.append(code.call("llvm.maximum", before, value))
                else:
                    found.append(code.block.fadd(before, value))
            return found

        if self.taps <= 9:
            for number in range(self.taps):
                values = tap(i64(number), values)
        else:
            values = code.loop(self.taps, tap, values)
        if self.kind == "mean":
            share = code.splat(code.load(F32, code.at(weights, pixel)))
            values = [code.block.fmul(value, share) for value in values]
        for v in range(vectors):

            def load(number: int, v: int = v) -> Value:
                if number == 0:
                    return values[v]
                by_pixel, by_channel = self.operands[number - 1]
                place = code.add(code.mul(pixel, by_pixel), code.mul(code.add(channel, v * code.lanes), by_channel))
                pointer = code.at(operands[number - 1], place)
                return code.load_vector(pointer, masks[v]) if by_channel else code.splat(code.load(F32, pointer))

            place = code.add(code.add(code.mul(pixel, self.output_stride), channel), v * code.lanes)
            code.store_vector(evaluate(code, self.epilogue, load), code.at(output, place), masks[v])
