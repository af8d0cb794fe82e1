"""Modules that are no stacks of equal layers, and small enough for a test."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Bottleneck(nn.Module):
    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.main = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.skip = nn.Identity()
        if stride > 1 or inside != out:
            self.skip = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = self.main(x)
        y += self.skip(x)
        return torch.relu_(y)


class ResNet50(nn.Module):
    """He and others 2015, as torchvision lays it out; narrower if asked."""

    def __init__(self, width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)
        )
        inside, layers = width, []
        for stage, count in enumerate((3, 4, 6, 3)):
            for block in range(count):
                layers.append(Bottleneck(inside, width << stage, 2 if block == 0 and stage else 1))
                inside = 4 * (width << stage)
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(inside, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.stem(x)).mean((2, 3)))


class Inception(nn.Module):
    """Four branches over one tensor, twice."""

    def __init__(self, inside: int = 8) -> None:
        super().__init__()

        def conv(i: int, o: int, size: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(i, o, size, padding=size // 2), nn.BatchNorm2d(o), nn.ReLU())

        def block(i: int) -> nn.ModuleList:
            return nn.ModuleList(
                [
                    conv(i, 4, 1),
                    nn.Sequential(conv(i, 4, 1), conv(4, 8, 5)),
                    nn.Sequential(conv(i, 4, 1), conv(4, 8, 3), conv(8, 8, 3)),
                    nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(i, 4, 1)),
                ]
            )

        self.blocks = nn.ModuleList([block(inside), block(24)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = torch.cat([branch(x) for branch in block], 1)  # type: ignore[attr-defined]
        return x


class Seq2Seq(nn.Module):
    """An encoder and a decoder with one table of words, which is also the last layer."""

    def __init__(self, words: int = 50, width: int = 16, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.encoder = nn.ModuleList(
            [nn.TransformerEncoderLayer(width, 2, 32, 0.0, batch_first=True) for _ in range(layers)]
        )
        self.decoder = nn.ModuleList(
            [nn.TransformerDecoderLayer(width, 2, 32, 0.0, batch_first=True) for _ in range(layers)]
        )

    def forward(self, source: Tensor, target: Tensor) -> dict[str, Tensor]:
        memory = self.words(source)
        for layer in self.encoder:
            memory = layer(memory)
        positions = torch.arange(target.shape[1])
        mask = positions[None, :] > positions[:, None]
        y = self.words(target)
        for layer in self.decoder:
            y = layer(y, memory, tgt_mask=mask)
        return {"logits": y @ self.words.weight.T, "memory": memory}


class Routed(nn.Module):
    """The best of several outputs, as experts are chosen: places are integers; and constants that come as a list."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])
        self.register_buffer("table", torch.linspace(-1, 1, 4 * width).view(2, 2 * width))

    def forward(self, x: Tensor) -> Tensor:
        scale, shift = torch.split(self.table, x.shape[1], 1)
        for layer in self.layers:
            x = layer(x) * scale[0] + shift[1]
            best, places = torch.topk(x, 2)
            x = x.scatter(1, places, best.sigmoid())
        return x


Case = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def resnet50() -> Case:
    return ResNet50(4, 10), (torch.randn(2, 3, 64, 64),), {}


def inception() -> Case:
    return Inception(), (torch.randn(2, 8, 12, 12),), {}


def seq2seq() -> Case:
    return Seq2Seq(), (torch.randint(0, 50, (2, 9)),), {"target": torch.randint(0, 50, (2, 7))}


def routed() -> Case:
    return Routed(), (torch.randn(4, 8),), {}


OWN = {"resnet50": resnet50, "inception": inception, "seq2seq": seq2seq, "routed": routed}


def bert(transformers: Any) -> Case:
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    ids, mask = torch.randint(0, 50, (2, 9)), torch.ones(2, 9, dtype=torch.int64)
    return transformers.BertModel(config), (ids,), {"attention_mask": mask}


def gpt2(transformers: Any) -> Case:
    config = transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=32, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config), (torch.randint(0, 50, (2, 9)),), {}


def t5(transformers: Any) -> Case:
    config = transformers.T5Config(
        vocab_size=50, d_model=16, num_layers=2, num_heads=2, d_ff=32, d_kv=8, use_cache=False
    )
    ids = {"input_ids": torch.randint(0, 50, (2, 9)), "decoder_input_ids": torch.randint(0, 50, (2, 7))}
    return transformers.T5ForConditionalGeneration(config), (), ids


def vit(transformers: Any) -> Case:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8
    )
    return transformers.ViTModel(config), (torch.randn(2, 3, 32, 32),), {}


HUGGING_FACE = {"bert": bert, "gpt2": gpt2, "t5": t5, "vit": vit}
