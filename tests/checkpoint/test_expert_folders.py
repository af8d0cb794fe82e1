"""Folders of mixtures of experts: experts one by one or in one tensor, and none that is missing or too many."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from heddle.checkpoint.exchange.convert import export_huggingface, import_huggingface
from heddle.checkpoint.load_model import load_model
from heddle.checkpoint.source import checkpoint_source, huggingface_source
from heddle.errors import HeddleError
from heddle.models.huggingface_layout import layout, their_shapes
from heddle.spec import ModelSpec
from heddle.spec.hf.config_write import write_config
from tests.helpers.small_models import experts

LAYERS, EXPERTS = 2, 6
MODELS = {
    "mixtral": experts(qk_norm=False),
    "qwen3_moe": experts(),
    "qwen2_moe": experts(qk_norm=False, bias="qkv", shared_experts=1, shared_ffn=16, shared_gate=True),
}


OSS = experts(qk_norm=False, bias="all", activation="clamped-swiglu", router_bias="score", sinks=True, window=(4, 0))


def folder_of(spec: ModelSpec, folder: Path) -> dict[str, Tensor]:
    torch.manual_seed(0)
    weights = {name: torch.randn(shape) for name, shape in their_shapes(layout(spec)).items()}
    write(folder, weights, spec)
    return weights


def write(folder: Path, weights: dict[str, Tensor], spec: ModelSpec) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(write_config(spec)))
    save_file({name: value.contiguous() for name, value in weights.items()}, folder / "model.safetensors")


def loaded(folder: Path) -> dict[str, Tensor]:
    model = load_model(huggingface_source(folder), torch.float32, torch.device("cpu"))
    return dict(model.named_parameters())


def fused(weights: dict[str, Tensor], mixtral: bool) -> dict[str, Tensor]:
    """The same in one tensor for each product: gates above ups, as version 5 of transformers holds them."""
    place, names = (
        ("block_sparse_moe", ("w1", "w3", "w2")) if mixtral else ("mlp", ("gate_proj", "up_proj", "down_proj"))
    )
    made = {
        name.replace(f"{place}.gate.", "mlp.gate."): value
        for name, value in weights.items()
        if f"{place}.experts." not in name
    }
    for layer in range(LAYERS):
        before = f"model.layers.{layer}.{place}.experts"
        gate, up, down = (
            torch.stack([weights[f"{before}.{expert}.{name}.weight"] for expert in range(EXPERTS)]) for name in names
        )
        made[f"model.layers.{layer}.mlp.experts.gate_up_proj"] = torch.cat([gate, up], dim=1)
        made[f"model.layers.{layer}.mlp.experts.down_proj"] = down
    return made


@pytest.mark.parametrize("name", MODELS)
def test_experts_lie_in_the_stack_by_their_numbers(name, tmp_path):
    weights = folder_of(MODELS[name], tmp_path / "theirs")
    ours = loaded(tmp_path / "theirs")
    names = ("w1", "w3", "w2") if name == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    place = "block_sparse_moe" if name == "mixtral" else "mlp"
    for product, theirs in zip(("gate", "up", "down"), names, strict=True):
        for expert in range(EXPERTS):
            one = weights[f"model.layers.1.{place}.experts.{expert}.{theirs}.weight"]
            assert torch.equal(ours[f"layers.1.mlp.experts.{product}"][expert], one)


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_with_all_experts_in_one_tensor_is_the_same_model(name, tmp_path):
    spec = MODELS[name]
    weights = folder_of(spec, tmp_path / "one-by-one")
    write(tmp_path / "fused", fused(weights, name == "mixtral"), spec)
    one, other = loaded(tmp_path / "one-by-one"), loaded(tmp_path / "fused")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)
    import_huggingface(huggingface_source(tmp_path / "fused"), tmp_path / "ours")
    export_huggingface(checkpoint_source(tmp_path / "ours"), tmp_path / "again", None, 1 << 40)
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[key], weights[key]) for key in weights)


def without(weights: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    return {name: value for name, value in weights.items() if part not in name}


WRONG: dict[str, tuple[Callable[[dict[str, Tensor]], dict[str, Tensor]], str]] = {
    "a missing expert": (lambda weights: without(weights, "layers.1.mlp.experts.5."), "experts.5.gate_proj"),
    "one too many": (
        lambda weights: weights | {"model.layers.0.mlp.experts.6.up_proj.weight": torch.ones(8, 16)},
        "experts.6.up_proj",
    ),
    "a missing router": (lambda weights: without(weights, "layers.0.mlp.gate."), "mlp.gate.weight"),
    "one of another width": (
        lambda weights: weights | {"model.layers.0.mlp.experts.2.up_proj.weight": torch.ones(7, 16)},
        "experts.2.up_proj",
    ),
    "one of a fused stack missing": (
        lambda weights: {
            name: value[:-1] if "gate_up" in name else value for name, value in fused(weights, mixtral=False).items()
        },
        "gate_up_proj is 5 × 16 × 16, wanted 6 × 16 × 16",
    ),
    "both layouts at once": (lambda weights: weights | fused(weights, mixtral=False), "does not describe"),
}


@pytest.mark.parametrize("what", WRONG)
def test_no_expert_is_dropped_or_made_up(what, tmp_path):
    change, named = WRONG[what]
    weights = folder_of(MODELS["qwen3_moe"], tmp_path / "theirs")
    write(tmp_path / "theirs", change(weights), MODELS["qwen3_moe"])
    with pytest.raises(HeddleError) as caught:
        huggingface_source(tmp_path / "theirs")
    assert named in f"{caught.value.what} {caught.value.why}"


def test_experts_in_four_bits_are_refused_with_what_works(tmp_path):
    weights = folder_of(OSS, tmp_path / "theirs")
    packed = {name: value for name, value in weights.items() if not name.endswith("down_proj")}
    packed["model.layers.0.mlp.experts.down_proj_blocks"] = torch.zeros(EXPERTS, 16, 1, 16, dtype=torch.uint8)
    write(tmp_path / "theirs", packed, OSS)
    with pytest.raises(HeddleError, match="MXFP4") as caught:
        huggingface_source(tmp_path / "theirs")
    assert "dequantize" in str(caught.value.hint)


def test_columns_of_gates_are_every_second_one(tmp_path):
    """As GPT-OSS has them; slices of ranks are read where they lie."""
    weights = folder_of(OSS, tmp_path / "theirs")
    ours = loaded(tmp_path / "theirs")
    both = weights["model.layers.1.mlp.experts.gate_up_proj"]
    assert torch.equal(ours["layers.1.mlp.experts.gate"], both[..., ::2].mT)
    assert torch.equal(ours["layers.1.mlp.experts.up"], both[..., 1::2].mT)
    biases = weights["model.layers.1.mlp.experts.gate_up_proj_bias"]
    assert torch.equal(ours["layers.1.mlp.experts.up_bias"], biases[:, 1::2])
    block = layout(OSS)["layers.1.mlp.experts.up"].blocks[0]
    part = (slice(2, 5), slice(3, 7), slice(4, 16))
    assert torch.equal(block.ours(both[block.place(part)]), ours["layers.1.mlp.experts.up"][part])


def test_a_mixture_that_fits_no_family_says_what_would_fit():
    with pytest.raises(HeddleError, match="fits no Hugging Face family"):
        write_config(experts(router="sigmoid"))
