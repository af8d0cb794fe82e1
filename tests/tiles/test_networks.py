"""Networks of transformers, with random weights, against themselves in PyTorch."""

import time

import pytest
import torch

import heddle
from heddle.capturing.export import export
from heddle.tiles.graph import TileGraph
from heddle.tiles.kernels.library import library
from heddle.tiles.lower.walk import lower_program
from heddle.tiles.memory import place_buffers
from heddle.tiles.tiling import Tiling
from tests.helpers.cases import thinned
from tests.tiles.networks import largest_error, shaken

transformers = pytest.importorskip("transformers")


def _bert():
    config = transformers.BertConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=100, vocab_size=99
    )
    mask = torch.ones(3, 21, dtype=torch.int64)
    mask[1, 9:] = 0
    return transformers.BertModel(config), (torch.randint(0, 99, (3, 21)), mask), {}


def _gpt2():
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=101, n_positions=64)
    return transformers.GPT2LMHeadModel(config), (torch.randint(0, 101, (2, 37)),), {"use_cache": False}


def _llama():
    config = transformers.LlamaConfig(
        hidden_size=48,
        intermediate_size=70,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        vocab_size=77,
    )
    return transformers.LlamaForCausalLM(config), (torch.randint(0, 77, (1, 29)),), {"use_cache": False}


def _vit():
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=50, image_size=48
    )
    return transformers.ViTModel(config), (torch.randn(2, 3, 48, 48),), {}


def _resnet():
    config = transformers.ResNetConfig(embedding_size=16, hidden_sizes=[24, 40], depths=[2, 2])
    return transformers.ResNetModel(config), (torch.randn(2, 3, 50, 50),), {}


def _mobilenet():
    config = transformers.MobileNetV2Config(depth_multiplier=0.35, image_size=64)
    return transformers.MobileNetV2Model(config), (torch.randn(1, 3, 64, 64),), {}


@pytest.mark.parametrize("make", thinned((_bert, _gpt2, _llama, _vit, _resnet, _mobilenet), slow=(_gpt2, _vit, _bert)))
def test_networks_give_what_pytorch_gives(make):
    torch.manual_seed(0)
    module, inputs, keywords = make()
    module = shaken(module)
    fast = heddle.tiles.compile(module, inputs, threads=2, keywords=keywords)
    with torch.no_grad():
        wanted = module(*inputs, **keywords)
    found = fast(*inputs, **keywords)
    assert largest_error(wanted, found) < 1e-5
    assert type(found) is type(wanted)
    masks = {"aten.__and__.Tensor", "aten._to_copy.default", "aten.index.Tensor"}
    assert set(fast.fallback_operators) <= (masks if make is _bert else set())


@pytest.mark.slow
def test_the_graph_of_a_large_network_is_built_in_two_seconds():
    """ResNet-50: what is cut, who waits for whom, and where it lies; capturing and compiling kernels are not in it."""
    module = transformers.ResNetModel(transformers.ResNetConfig()).eval()
    program = export(module, (torch.randn(1, 3, 224, 224),), {}, training=False, loss=None)
    weights = {}
    lower_program(program, library().target, Tiling(2), weights)  # packs
    start = time.process_time()
    lower, _ = lower_program(program, library().target, Tiling(2), weights)
    graph = TileGraph.build(lower.operators)
    place_buffers(graph)
    assert time.process_time() - start < 2
    assert len(graph.tiles) > 100
