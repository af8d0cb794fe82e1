"""Weight gradients put off: a backward that is taken in two leaves their products here, and another action makes them.

What the chunk before waits for is the gradient of a chunk's input; nobody waits for those of weights before the step's
end (arXiv 2401.10241). A linear layer whose products may be put off computes the first and hands in its two factors of
the second. They are multiplied later, in the same order and added to the same gradients, so that the bits are the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heddle.parallel.collectives import Handle, start_gather
from heddle.parallel.mesh import Axis
from heddle.parallel.tensor.products import EXACT, Products


class DeferredProduct(NamedTuple):
    """A weight's gradient that is still to be made: gradientᵀ · x, and with a bias the gradient's sum."""

    weight: nn.Parameter
    bias: nn.Parameter | None
    x: Tensor
    gradient: Tensor
    axis: Axis | None  # over which x is a slice of the tokens; None: it is whole
    products: Products = EXACT

    def input(self) -> Handle:
        """Begin to have all of x."""
        return Handle([], self.x) if self.axis is None else start_gather(self.x, self.axis)


class DeferredGradients:
    """Where the linear layers of a rank's chunks hand in products, while a backward that leaves them runs.

    `wanted` is said before a forward, and again before its backward, where layers may recompute it. The graph then ends
    at the inputs of linear layers: autograd, which would call a parameter's hooks for a gradient that is not there, has
    nothing to do with their weights.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.open: deque[DeferredProduct] | None = None

    @contextmanager
    def collecting(self) -> Iterator[deque[DeferredProduct]]:
        """What backwards inside leave."""
        products: deque[DeferredProduct] = deque()
        self.open = products
        try:
            yield products
        finally:
            self.open = None

    def add(self, product: DeferredProduct) -> None:
        """Put a product off."""
        assert self.open is not None, "a backward whose forward was to be taken back in two runs as a whole"
        self.open.append(product)


@torch.no_grad()
def make_gradients(products: deque[DeferredProduct]) -> None:
    """Multiply what was put off, and add it to the gradients as autograd would have: hooks of parameters are called.

    What the next product needs of other ranks is on its way meanwhile.
    """
    coming = products[0].input() if products else None
    while products:
        weight, bias, _, gradient, _, made_by = products.popleft()
        assert coming is not None
        x = coming.wait()
        coming = products[0].input() if products else None
        torch.autograd.backward(weight, made_by.to_weight(gradient, x))
        if bias is not None:
            torch.autograd.backward(bias, gradient.sum(0))
