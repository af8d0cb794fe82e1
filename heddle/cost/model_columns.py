"""What follows from a model, and from what of it learns, as columns of a `heddle.cost.work.Work`."""

from __future__ import annotations

from typing import Any, NamedTuple

from heddle.spec.model import ModelSpec
from heddle.spec.tune import Tune, adapter_shapes

ROWS_SPLIT = ("attention.qkv", "mlp.gate", "mlp.up")  # by tensor ranks; of others, columns are


class LayerShape(NamedTuple):
    """What sets the layers of a model apart, named as in a Work; and how many there are."""

    layers: int
    ffn: int
    window: int
    rotary: int
    experts: int
    routed: int
    layer_parameters: int
    expert_parameters: int
    replicated_parameters: int
    captured: float = 0.0
    adapters_split: int = 0
    adapters_whole: int = 0


def model_columns(model: ModelSpec, sequence: int | None = None, tune: Tune | None = None) -> dict[str, Any]:
    """The columns that follow from a model, and from what of it learns."""
    s = sequence or model.sequence
    shapes = tuple(
        LayerShape(
            layers=model.shape_of.count(place),
            ffn=one.active_ffn,
            window=min(s, one.window or s),
            rotary=int(one.turns is not None),
            experts=one.experts,
            routed=one.top_k * one.expert_ffn if one.experts else 0,
            layer_parameters=one.layer_parameters - one.expert_parameters,
            expert_parameters=one.expert_parameters,
            replicated_parameters=one.replicated_parameters,
            captured=one.captured_bytes,
            **_adapters_of(model, tune, model.shape_of.index(place)),
        )
        for place, one in enumerate(model.shapes)
    )
    means = {
        name: sum(each.layers * getattr(each, name) for each in shapes) / model.layers for name in LayerShape._fields
    }
    of_a_layer = means if len(shapes) > 1 else shapes[0]._asdict()
    return {
        **of_a_layer,
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "head_size": model.head_size,
        "kv_latent": model.kv_latent,
        "q_latent": model.q_latent,
        "turning": model.rotary_size if model.kv_latent else 0,
        "value_size": model.value_size,
        "gated": int(model.gated),
        "qk_norm": int(model.qk_norm),
        "vocab": model.vocab,
        "top_k": max(1, model.top_k),
        "expert_share": _expert_share(model, shapes),
        "shared_gate": int(model.shared_gate),
        "z_loss": int(model.z_loss > 0),
        "router_groups": model.router_groups,
        "router_top_groups": model.router_top_groups,
        "position_parameters": model.embedding_parameters - model.hidden * model.vocab,
        "norm_parameters": model.norm_parameters,
        "tied": int(model.tied),
        "dropout": int(model.dropout > 0),
        "norms": model.norms,
        "norm_inputs": 1 if model.branches != "serial" else 4 if model.norm_place == "both" else 2,
        "branch_inputs": 1 if model.branches == "parallel" else 2,
        "branch_outputs": int(model.branches == "serial" or model.norm_place != "before")
        + int(model.norm_place != "before"),
        "scored": int(model.attention_cap > 0 or model.sinks),
        "capped": int(model.logit_cap > 0),
        "heads_apart": 0 if model.qk_norm_over == "head" else 1 + (model.norm == "layernorm"),
        "relaid": int(not model.kv_latent) * int(model.rotated < model.head_size or model.rotary_pairs == "neighbors"),
        "upcast": int(model.norm_weight == "offset"),
        "rectified": int(model.activation in ("relu", "reglu")),
        "head_bias": int(model.head_bias),
        "sequence": s,
        "shapes": shapes if len(shapes) > 1 else (),
        "shape_of": model.shape_of if len(shapes) > 1 else (),
        **({} if tune is None else _tune_columns(model, tune)),
    }


def _adapters_of(model: ModelSpec, tune: Tune | None, layer: int) -> dict[str, int]:
    """Numbers of a layer's adapters: beside a weight whose rows are split A is whole and B split, else A split."""
    if tune is None:
        return {}
    split = whole = 0
    for place, sizes in adapter_shapes(model, tune.adapters, layer).items():
        for inputs, outputs in sizes.values():
            own = (inputs, outputs) if place in ROWS_SPLIT else (outputs, inputs)
            whole, split = whole + own[0], split + own[1]
    rank = tune.adapters.rank
    return {"adapters_split": rank * split, "adapters_whole": rank * whole}


def _tune_columns(model: ModelSpec, tune: Tune) -> dict[str, Any]:
    places = [adapter_shapes(model, tune.adapters, layer) for layer in range(model.layers)]
    fullest = max(places, key=lambda each: sum(map(len, each.values())))

    def count(*names: str) -> int:
        return sum(len(fullest.get(name, ())) for name in names)

    return {
        "frozen": 1,
        "quantized": int(tune.base == "nf4"),
        "rank": tune.adapters.rank,
        "adapters_qkv": count("attention.qkv"),
        "adapters_out": count("attention.out"),
        "adapters_up": count("mlp.gate", "mlp.up"),
        "adapters_down": count("mlp.down"),
        "learns_embed": int("embed" in tune.also),
        "learns_head": int("head" in tune.also),
        "learns_norm": int("norm" in tune.also),
    }


def _expert_share(model: ModelSpec, shapes: tuple[LayerShape, ...]) -> float:
    """Of all parameters of a model, those of experts; by shape, for a search asks often."""
    experts = sum(each.layers * each.expert_parameters for each in shapes)
    if not experts:
        return 0.0
    dense = sum(each.layers * each.layer_parameters for each in shapes)
    return experts / (experts + dense + model.embedding_parameters + model.head_parameters)
