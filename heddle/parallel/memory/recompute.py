"""Recomputation: forget activations in the forward pass and make them again in the backward pass.

Dropout is a function of the token, so nothing random has to be remembered between the two.
"""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from heddle.models.chunk import Chunk
from heddle.models.transformer import Layer
from heddle.parallel.memory.elementwise import ElementwiseLayer
from heddle.spec.plan import Plan


def apply_recompute(chunk: Chunk, plan: Plan, compiled: bool = False) -> None:
    """Make each layer recompute what the plan says: nothing, some of it, or all."""
    for index, layer in chunk.layers.items():
        kind = plan.recompute_of(int(index))
        if kind == "selective":
            assert isinstance(layer, Layer)  # whoever checked the plan knows that others have no such core
            # The scores and probabilities of arXiv 2205.05198 §5: most of the memory, little of the work.
            _forget(layer.attention, "attend")
        elif kind == "elementwise":
            assert isinstance(layer, Layer)
            layer.forward = ElementwiseLayer(layer, compiled).forward  # type: ignore[method-assign]
        elif kind == "full":
            _forget(layer, "forward", random=not isinstance(layer, Layer))


def _forget(module: nn.Module, method: str, random: bool = False) -> None:
    """Replace a method by one that keeps only its inputs; and what is `random` in it, where that is not ours."""
    kept = partial(checkpoint, getattr(module, method), use_reentrant=False, preserve_rng_state=random)
    setattr(module, method, kept)
