"""Networks that `benchmarks.speed.tiles` runs: known architectures with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Made = tuple[Any, tuple[Any, ...], dict[str, Any]]


def _tokens(batch: int, length: int) -> tuple[torch.Tensor]:
    return (torch.randint(0, 1000, (batch, length)),)


def _images(batch: int) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 3, 224, 224),)


def bert(batch: int = 1, length: int = 128) -> Made:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig()).eval(), _tokens(batch, length), {}


def bert_s128() -> Made:
    return bert(1, 128)


def bert_s32() -> Made:
    return bert(1, 32)


def bert_b4_s64() -> Made:
    return bert(4, 64)


def gpt2_s512() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config()).eval(), _tokens(1, 512), {"use_cache": False}


def gpt2_s128() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config()).eval(), _tokens(1, 128), {"use_cache": False}


def llama_s128() -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=4,
        vocab_size=32000,
    )
    return LlamaForCausalLM(config).eval(), _tokens(1, 128), {"use_cache": False}


def vit_b16() -> Made:
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig()).eval(), _images(1), {}


def resnet50() -> Made:
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig()).eval(), _images(1), {}


def resnet50_b4() -> Made:
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig()).eval(), _images(4), {}


def mobilenet_v2() -> Made:
    from transformers import MobileNetV2Config, MobileNetV2Model

    return MobileNetV2Model(MobileNetV2Config()).eval(), _images(1), {}


def small() -> Made:
    """Too small to tell anything; for tests of the benchmark itself."""
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=128)
    return BertModel(config).eval(), _tokens(1, 16), {}


NETWORKS: dict[str, Callable[[], Made]] = {
    each.__name__: each
    for each in (
        bert_s128, bert_s32, bert_b4_s64, gpt2_s128, gpt2_s512, llama_s128, vit_b16, resnet50, resnet50_b4,
        mobilenet_v2,
    )
}  # fmt: skip
