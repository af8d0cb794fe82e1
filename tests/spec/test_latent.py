"""Latent attention and the models that have it: sizes that go together, and parameters counted one by one."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from heddle.errors import HeddleError
from heddle.models.transformer import Transformer
from heddle.spec import ModelSpec
from heddle.spec.hf.config_write import write_config
from heddle.spec.huggingface import read_config
from heddle.spec.presets import model_presets, preset
from heddle.spec.tables import build
from tests.helpers.small_models import experts, latent

# what their reports state, in billions: all parameters, and those that a token is computed with
STATED = {
    "deepseek-v3": (671.0, 37.6),
    "kimi-k2": (1026.4, 32.9),
    "gpt-oss-20b": (20.91, 4.19),
    "gpt-oss-120b": (116.83, 5.71),
}


@pytest.mark.parametrize("name", STATED)
def test_presets_have_the_parameters_that_their_reports_state(name):
    model = build(ModelSpec, preset("model", name, model_presets()), "model")
    every, active = STATED[name]
    assert model.parameters / 1e9 == pytest.approx(every, rel=1e-3)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=2e-3)
    assert read_config(write_config(model)) == model


@pytest.mark.parametrize(
    "model",
    [
        latent(),
        latent(q_latent=0, dense_layers="0"),
        latent(bias="attention"),
        experts(bias="all", activation="clamped-swiglu", router_bias="score", sinks=True),
    ],
)
def test_parameters_are_counted_as_the_model_has_them(model):
    with torch.device("meta"):
        built = Transformer(model)
    assert sum(parameter.numel() for parameter in built.parameters()) == model.parameters


WRONG = {
    "kv_heads": {"kv_heads": 4},
    "window": {"window": 3},
    "rotary_size": {"rotary_size": 0},
    "value_size": {"value_size": 8},
    "without kv_latent": {"kv_latent": 0},
    "balance_rate": {"router_bias": "none"},
    "router_groups": {"router_groups": 4},
    "router_top_groups": {"router_top_groups": 0},
    "beside MLPs": {"bias": "all", "router": "softmax"},
}


@pytest.mark.parametrize("named", WRONG)
def test_what_does_not_go_together_is_refused(named):
    with pytest.raises(HeddleError) as caught:
        dataclasses.replace(latent(), **WRONG[named])
    assert named in caught.value.what
    assert caught.value.hint


def test_one_group_is_none():
    assert latent(router_groups=1, router_top_groups=1) == latent(router_groups=0, router_top_groups=0)


def test_kimi_is_read_as_the_family_that_it_is():
    config = write_config(latent(balance_rate=0.0, balance_loss=0.0, z_loss=0.0))
    assert read_config(config | {"model_type": "kimi_k2"}) == read_config(config)


@pytest.mark.parametrize("key", ["capacity_factor", "moe_expert_capacity", "drop_tokens"])
def test_a_capacity_of_experts_is_refused(key):
    config = write_config(experts(balance_loss=0.0, z_loss=0.0))
    with pytest.raises(HeddleError, match="none is dropped"):
        read_config(config | {key: 1.25})
    read_config(config | {key: None})
