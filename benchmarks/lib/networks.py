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


def convnext_tiny() -> Made:
    from transformers import ConvNextConfig, ConvNextModel

    return ConvNextModel(ConvNextConfig()).eval(), _images(1), {}


def whisper_tiny() -> Made:
    """The encoder, of 10 seconds of sound."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536, max_source_positions=500
    )
    return WhisperEncoder(config).eval(), (torch.randn(1, 80, 1000),), {}


def unet() -> Made:
    """Of diffusion: group norms, a transposed convolution, and what was on the way down beside what comes up."""
    from torch import nn

    def block(before: int, after: int) -> nn.Sequential:
        return nn.Sequential(nn.GroupNorm(8, before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1))

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 32, 3, padding=1)
            self.down, self.less = block(32, 64), nn.Conv2d(64, 64, 3, stride=2, padding=1)
            self.middle, self.up = block(64, 128), nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1)
            self.last, self.out = block(128, 64), nn.Conv2d(64, 3, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = self.down(self.first(x))
            narrow = self.up(self.middle(self.less(wide)))
            return self.out(self.last(torch.cat((narrow, wide), 1)))

    return UNet().eval(), (torch.randn(1, 3, 96, 96),), {}


def small() -> Made:
    """Too small to tell anything; for tests of the benchmark itself."""
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=128)
    return BertModel(config).eval(), _tokens(1, 16), {}


NETWORKS: dict[str, Callable[[], Made]] = {
    each.__name__: each
    for each in (
        bert_s128, bert_s32, bert_b4_s64, gpt2_s128, gpt2_s512, llama_s128, vit_b16, resnet50, resnet50_b4,
        mobilenet_v2, convnext_tiny, whisper_tiny, unet,
    )
}  # fmt: skip
