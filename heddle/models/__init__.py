"""The transformer for one device, its initial weights, and generation."""

from heddle.models.init import initialize, materialize
from heddle.models.transformer import Microbatch, Transformer

__all__ = ["Microbatch", "Transformer", "initialize", "materialize"]
