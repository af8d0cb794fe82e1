"""PEFT's `adapter_config.json`: adapters as Hugging Face's library describes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heddle.errors import HeddleError, shorten
from heddle.spec.tables import build, read_foreign_json
from heddle.spec.tune import Lora

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
MODULES = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "gate_proj": "gate", "up_proj": "up",
    "down_proj": "down",
}  # fmt: skip
# What would change the sum W x + scale · B A x, and the value at which it does not.
PLAIN: dict[str, Any] = {
    "use_dora": False, "bias": "none", "fan_in_fan_out": False, "rank_pattern": {}, "alpha_pattern": {},
    "modules_to_save": None, "layers_to_transform": None, "lora_bias": False, "exclude_modules": None,
    "trainable_token_indices": None, "use_qalora": False, "target_parameters": None, "alora_invocation_tokens": None,
}  # fmt: skip
# How adapters began, where the weights beside them stayed as they were; pissa, olora, corda and loftq change them.
STARTS: list[Any] = [True, False, None, "gaussian", "eva", "orthogonal"]


def lora_of(folder: Path) -> Lora:
    """The adapters that a folder of PEFT's describes."""
    path = folder / CONFIG
    if not path.is_file():
        raise HeddleError(
            f"{folder} is not a folder of PEFT's.",
            f"It has no {CONFIG}." if folder.is_dir() else "It is not there.",
            "model.save_pretrained(FOLDER) of a PeftModel writes one, and so does `heddle export peft`.",
        )
    table = read_foreign_json(path, "PEFT's description of adapters")
    if table.get("peft_type") != "LORA":
        raise HeddleError(
            f"{path}: peft_type = {shorten(table.get('peft_type'))} is not LORA.", "Heddle reads LoRA.", "Use LoRA."
        )
    for key, plain in PLAIN.items():
        if (found := table.get(key, plain)) and found != plain:
            raise HeddleError(
                f"{path}: {key} = {shorten(found)}.",
                "Heddle's adapters are W x + scale · B A x alone.",
                f"Train adapters with {key} = {plain}.",
            )
    if (start := table.get("init_lora_weights", True)) not in STARTS:
        raise HeddleError(
            f"{path}: init_lora_weights = {shorten(start)}.",
            "Such adapters stand beside weights that PEFT changed when it made them, not beside those of their base.",
            "Convert them, as PEFT's documentation of that method describes, or add them to the weights with PEFT.",
        )
    modules = table.get("target_modules")
    names = [str(name).rpartition(".")[2] for name in modules] if isinstance(modules, list) else []
    unknown = [name for name in names if name not in MODULES]
    if not names or unknown:
        raise HeddleError(
            f"{path}: target_modules = {shorten(modules)}.",
            f"Heddle knows {', '.join(MODULES)}, as models of Llama's family call them.",
            "Name the modules one by one.",
        )
    rank = table.get("r")
    return build(
        Lora,
        {
            "rank": rank,
            "alpha": table.get("lora_alpha", rank),
            "dropout": table.get("lora_dropout", 0.0),
            "rank_stabilized": table.get("use_rslora", False),
            "targets": [target for name, target in MODULES.items() if name in names],
        },
        "adapter_config",
    )


def config_of(lora: Lora, base: str | None) -> dict[str, Any]:
    """The description that PEFT reads."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": 2 * lora.rank if lora.alpha is None else lora.alpha,
        "lora_dropout": lora.dropout,
        "use_rslora": lora.rank_stabilized,
        "target_modules": [name for name, target in MODULES.items() if target in lora.targets],
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
