"""Windows that slide over an image, one channel at a time: depthwise convolution, pooling, and blending of pixels.

A row is a pixel of the output, and a table says where each tap of its window begins in the input; channels are next to
each other, so that a vector holds several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heddle.tiles.kernels.emit import F32, I32, I64, Code, Value, i64
from heddle.tiles.kernels.recipe import Recipe, evaluate
from heddle.tiles.kernels.target import Target

AT_ONCE = 4  # vectors of channels
STRETCH = 8  # pixels, for which all channels follow each other: neighboring lines of memory are used together
HELD = 9  # taps whose weights stay in registers, and that are written one after the other


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
        return _Writer(self, Code(name, target)).write()


class _Writer:
    def __init__(self, kernel: Windows, code: Code) -> None:
        self.kernel, self.code = kernel, code
        self.output, self.image, self.table, self.padding, self.weights = (code.pointer() for _ in range(5))
        self.operands = [code.pointer() for _ in kernel.operands]
        self.first, self.last = code.number(), code.number()

    def write(self) -> str:
        """Weights that are the same for all pixels stay in registers where they fit: then channels go outside."""
        kernel, code = self.kernel, self.code
        held = kernel.kind == "depthwise" and kernel.taps <= HELD
        group = (AT_ONCE if not held else 2 if code.target.registers >= 32 else 1) * code.lanes
        whole = kernel.channels // group * group

        def all_channels(body: Callable[[Value, int], None]) -> None:
            def several(channel: Value, _: list[Value]) -> list[Value]:
                body(channel, group)
                return []

            code.loop(whole, several, step=group)
            if whole < kernel.channels:
                body(i64(whole), kernel.channels - whole)

        def pixels(first: Value, last: Value, body: Callable[[Value], None], step: int = 1) -> None:
            def one(index: Value, _: list[Value]) -> list[Value]:
                body(index)
                return []

            code.loop(last, one, start=first, step=step)

        def stretch(begin: Value) -> None:
            end = code.add(begin, STRETCH)
            end = code.block.select(code.block.icmp_signed("<", end, self.last), end, self.last)
            all_channels(lambda channel, count: pixels(begin, end, _Channels(self, channel, count, True).pixel))

        def one_pixel(pixel: Value) -> None:
            all_channels(lambda channel, count: _Channels(self, channel, count).pixel(pixel))

        if held:
            pixels(self.first, self.last, stretch, STRETCH)
        else:
            pixels(self.first, self.last, one_pixel)
        return code.finish()


class _Channels:
    """Some vectors of channels; with `held`, what is the same for all pixels is read once."""

    def __init__(self, writer: _Writer, channel: Value, channels: int, held: bool = False) -> None:
        self.writer, self.kernel, self.code, self.channel = writer, writer.kernel, writer.code, channel
        self.vectors = range(-(-channels // self.code.lanes))
        self.masks = [self.code.first(channels - v * self.code.lanes) for v in self.vectors]
        self.held: dict[Any, Value] = {}
        if held:
            self.held = {(tap, v): self.weight(i64(tap), v) for tap in range(self.kernel.taps) for v in self.vectors}
            fixed = [number for number, (by_pixel, _) in enumerate(self.kernel.operands, 1) if by_pixel == 0]
            self.held |= {
                ("operand", number, v): self.operand(number, i64(0), v) for number in fixed for v in self.vectors
            }

    def vector(self, pointer: Value, v: int) -> Value:
        return self.code.load_vector(self.code.at(pointer, v * self.code.lanes), self.masks[v])

    def weight(self, tap: Value, v: int) -> Value:
        place = self.code.add(self.code.mul(tap, self.kernel.channels), self.channel)
        return self.vector(self.code.at(self.writer.weights, place), v)

    def operand(self, number: int, pixel: Value, v: int) -> Value:
        """An operand of the epilogue, at a pixel."""
        code, (by_pixel, by_channel) = self.code, self.kernel.operands[number - 1]
        if ("operand", number, v) in self.held:
            return self.held["operand", number, v]
        place = code.add(code.mul(pixel, by_pixel), code.mul(code.add(self.channel, v * code.lanes), by_channel))
        pointer = code.at(self.writer.operands[number - 1], place)
        return code.load_vector(pointer, self.masks[v]) if by_channel else code.splat(code.load(F32, pointer))

    def pixel(self, pixel: Value) -> None:
        """All taps of a pixel's window, then the epilogue."""
        kernel, code, writer = self.kernel, self.code, self.writer
        values = [code.constant(float("-inf") if kernel.kind == "max" else 0.0) for _ in self.vectors]
        if kernel.taps <= HELD:
            for number in range(kernel.taps):
                values = self.tap(pixel, i64(number), values, number)
        else:
            values = code.loop(kernel.taps, lambda number, values: self.tap(pixel, number, values), values)
        if kernel.kind == "mean":
            share = code.splat(code.load(F32, code.at(writer.weights, pixel)))
            values = [code.block.fmul(value, share) for value in values]
        for v in self.vectors:

            def load(number: int, v: int = v) -> Value:
                return self.operand(number, pixel, v) if number else values[v]

            place = code.add(code.add(code.mul(pixel, kernel.output_stride), self.channel), v * code.lanes)
            code.store_vector(evaluate(code, kernel.epilogue, load), code.at(writer.output, place), self.masks[v])

    def tap(self, pixel: Value, number: Value, values: list[Value], known: int = -1) -> list[Value]:
        kernel, code, writer = self.kernel, self.code, self.writer
        entry = code.add(code.mul(pixel, kernel.taps), number)
        begin = code.at(tap_begin(code, writer.image, writer.padding, code.at(writer.table, entry)), self.channel)
        share = code.splat(code.load(F32, code.at(writer.weights, entry))) if kernel.kind == "blend" else None
        found = []
        for v, before in enumerate(values):
            value = self.vector(begin, v)
            if kernel.kind == "max":
                found.append(code.call("llvm.maximum", before, value))
            elif kernel.kind == "mean":
                found.append(code.block.fadd(before, value))
            else:
                weight = self.held.get((known, v), share)
                found.append(code.fma(value, self.weight(number, v) if weight is None else weight, before))
        return found
