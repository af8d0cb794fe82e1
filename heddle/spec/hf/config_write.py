"""ModelSpec to a Hugging Face `config.json`, of the family that the model fits exactly."""

from __future__ import annotations

from typing import Any

from heddle.spec.hf.families import FAMILIES
from heddle.spec.huggingface import family_of, keys_of
from heddle.spec.model import ModelSpec


def write_config(spec: ModelSpec) -> dict[str, Any]:
    """The `config.json` of the family that the model fits; reading it returns the same model.

    Most families have no dropout on the residual branches, so it is not written: a trained model computes the same
    without it.
    """
    model_type = family_of(spec)
    return {
        "_name_or_path": spec.name,
        "model_type": model_type,
        "architectures": [FAMILIES[model_type].architecture],
        # A spec knows no tokenizer, and a family's own ids may lie outside this vocabulary.
        "bos_token_id": None,
        "eos_token_id": None,
        **keys_of(spec, model_type),
    }
