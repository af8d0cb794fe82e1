"""Latent attention among the fields of a model (DeepSeek-V2, arXiv 2405.04434 §2.1), and the sizes of attention."""

from __future__ import annotations

from typing import Any, NamedTuple

from heddle.errors import HeddleError

EPSILON = 1e-6  # of the norms of latents, whatever that of the others is


class AttentionParameters(NamedTuple):
    """Numbers of one layer's attention, without biases, norms of heads and sinks."""

    products: int  # of its matrices
    norms: int  # of latents
    first_rows: int  # outputs of the product that reads the token; where latents have none, queries are made apart
    replicated: int  # that every tensor rank holds

    @property
    def all(self) -> int:
        """Together."""
        return self.products + self.norms


def attention_parameters(layer: Any) -> AttentionParameters:  # a LayerSpec, which asks for this
    """Those of a layer."""
    h, queries, values = layer.hidden, layer.heads * layer.head_size, layer.heads * layer.valued
    if not layer.kv_latent:
        rows = queries + 2 * layer.kv_heads * layer.head_size
        return AttentionParameters(rows * h + queries * h, 0, rows, 0)
    down = layer.q_latent + layer.kv_latent + layer.rotary_size
    norms = layer.q_latent + layer.kv_latent
    up = (layer.q_latent or h) * queries + layer.kv_latent * (layer.heads * still(layer) + values)
    return AttentionParameters(h * down + up + values * h, norms, down, h * down + norms)


def still(layer: Any) -> int:
    """Numbers of a head that do not turn with its position."""
    return int(layer.head_size - layer.rotary_size)


def value_size(model: Any) -> int:
    """Numbers of a head's values."""
    return int(model.value_size or model.head_size)


def check_latent(model: Any) -> None:
    """Refuse what latent attention does not go with, and its sizes without it."""
    if not model.kv_latent:
        said = [name for name in ("q_latent", "value_size") if getattr(model, name)]
        if said and getattr(model, said[0]) != model.head_size:
            raise HeddleError(
                f"model.{said[0]} = {getattr(model, said[0])} without kv_latent.",
                "It is a size of latent attention, which makes keys and values of a vector of kv_latent numbers.",
                f"Add for example kv_latent = 512, or leave {said[0]} out.",
            )
        object.__setattr__(model, "value_size", 0)
        return
    if model.value_size == model.head_size:
        object.__setattr__(model, "value_size", 0)
    wrong = {
        f'norm = "{model.norm}"': model.norm != "rmsnorm" or model.norm_weight != "scale",
        f'positions = "{model.positions}"': model.positions != "rotary",
        f"kv_heads = {model.kv_heads}": model.kv_heads != model.heads,
        "a window": bool(model.window),
        "qk_norm": model.qk_norm,
        "sinks": model.sinks,
        "attention_cap": model.attention_cap > 0,
    }
    found = [word for word, given in wrong.items() if given]
    if found:
        raise HeddleError(
            f"kv_latent = {model.kv_latent} cannot be combined with {found[0]}.",
            "Latent attention has rotary positions, RMSNorm, and keys and values for every head.",
            f"Leave kv_latent out, or {found[0]}.",
        )
    if not 0 < model.rotary_size < model.head_size or model.valued > model.head_size:
        raise HeddleError(
            f"Latent attention with head_size = {model.head_size}, rotary_size = {model.rotary_size} and value_size = "
            f"{model.valued} is not known.",
            "Of a head's queries and keys some numbers turn and some do not, and values are no longer than these.",
            f"For example head_size = {model.head_size}, rotary_size = {max(2, model.head_size // 3 // 2 * 2)}.",
        )
