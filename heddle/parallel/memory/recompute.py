"""Recomputation: forget activations in the forward pass and make them again in the backward pass.

Dropout is a function of the token, so nothing random has to be remembered between the two.
"""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from heddle.models.chunk import Chunk
from heddle.models.transformer import Layer
from heddle.spec.plan import Plan


def apply_recompute(chunk: Chunk, plan: Plan) -> None:
    """Make each layer recompute what the plan says: nothing, the attention core ("selective"), or all of it."""
    for index, layer in chunk.layers.items():
        kind = plan.recompute_of(int(index))
        if kind == "selective":
            assert isinstance(layer, Layer)  # whoever checked the plan knows that others have no such core
            # The scores and probabilities of arXiv 2205.05198 §5: most of the memory, little of the work.
            _forget(layer.attention, "attend")
        elif kind == "full":
            _forget(layer, "forward", random=not isinstance(layer, Layer))


def _forget(module: nn.Module, method: str, random: bool = False) -> None:
    """Replace a method by one that keeps only its inputs; and what is `random` in it, where that is not ours."""
    kept = partial(checkpoint, getattr(module, method), use_reentrant=False, preserve_rng_state=random)
    setattr(module, method, kept)
