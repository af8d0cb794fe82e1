"""A depthwise convolution and the product over its channels, in one: what is between them never leaves a core's cache.

The record is the depthwise one, of rows that go into scratch, and behind it the product's, whose left side they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.tiles.kernels.depthwise import Depthwise, DepthwiseWriter
from heddle.tiles.kernels.emit import Code
from heddle.tiles.kernels.product import ProductKernel, ProductWriter
from heddle.tiles.kernels.target import Target


@dataclass(frozen=True)
class Separable:
    """Some rows of pixels, all channels of the product."""

    depthwise: Depthwise
    product: ProductKernel

    def write(self, name: str, target: Target) -> str:
        code = Code(name, target)
        first = DepthwiseWriter(self.depthwise, code)
        before = code.mul(first.first, -self.depthwise.line.made * self.depthwise.output_stride)
        first.output = code.at(code.scratch, before)  # the first row of a tile is the first of scratch
        first.write()
        second = ProductWriter(self.product, code)
        second.left = code.scratch
        second.write()
        return code.finish()
