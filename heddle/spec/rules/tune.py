"""Which adapters a model may have, and which jobs may keep their frozen weights in four bits."""

from __future__ import annotations

from heddle.errors import HeddleError, listing
from heddle.spec.model import ModelSpec
from heddle.spec.tune import Tune


def check_rank(tune: Tune | None, model: ModelSpec) -> None:
    """Refuse adapters that are larger than what they stand beside."""
    if tune is not None and tune.lora is not None and tune.lora.rank > model.hidden:
        raise HeddleError(
            f"tune.lora.rank = {tune.lora.rank} with hidden = {model.hidden}.",
            "No matrix of a layer has a rank above the width of the model: more adds memory, and nothing else.",
            f"Use at most {model.hidden}; 8 to 64 is usual.",
        )


def check_base(tune: Tune | None, model: ModelSpec, compiled: bool) -> None:
    """Refuse adapters that have no place, and what base = "nf4" does not go with."""
    if tune is None:
        return
    beside = {"q", "k", "v"} & {*tune.adapters.targets} if tune.lora is not None else set()
    if model.kv_latent and beside:
        raise HeddleError(
            f"tune.lora.targets has {listing(sorted(beside))}, but the model has latent attention.",
            "Its queries, keys and values are made of latents, beside which Heddle has no adapters.",
            "Use for example targets = ['o', 'gate', 'up', 'down'].",
        )
    if tune.base is None:
        return
    if any(model.expert_counts):
        raise HeddleError(
            f"tune.base = '{tune.base}' cannot be combined with experts.",
            "Experts' matrices are multiplied in groups, for which there is no product in four bits.",
            "Leave base out: frozen experts then stay in the precision of the job.",
        )
    if compiled:
        raise HeddleError(
            f"tune.base = '{tune.base}' cannot be combined with train.compile.",
            "Compiled layers would keep the numbers that a product makes of four bits.",
            "Use compile = false.",
        )
