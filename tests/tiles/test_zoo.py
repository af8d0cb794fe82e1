"""Architectures that no kernel was written for, with random weights, against themselves in PyTorch."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import heddle
from tests.tiles.networks import largest_error, leaves, shaken

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 90, "vocab_size": 99}
GROUPED = SMALL | {"num_key_value_heads": 2}
OFF = {"use_cache": False}  # a cache of keys and values is not captured


def _ids(batch: int, length: int):
    return torch.randint(1, 99, (batch, length))


def _from(name: str, config: str, settings: dict, inputs, keywords=None):
    return getattr(transformers, name)(getattr(transformers, config)(**settings)), inputs, keywords or {}


TRANSFORMERS = {
    "roberta": lambda: _from("RobertaModel", "RobertaConfig", SMALL, (_ids(2, 14),)),
    "albert": lambda: _from("AlbertModel", "AlbertConfig", SMALL | {"embedding_size": 24}, (_ids(2, 12),)),
    "distilbert": lambda: _from(
        "DistilBertForSequenceClassification", "DistilBertConfig",
        {"dim": 48, "n_layers": 2, "n_heads": 4, "hidden_dim": 100, "vocab_size": 99},
        (_ids(2, 14), torch.arange(14).expand(2, -1) < torch.tensor([[9], [14]])),
    ),
    "t5": lambda: _from(
        "T5Model", "T5Config",
        {"d_model": 48, "d_kv": 12, "d_ff": 96, "num_layers": 2, "num_heads": 4, "vocab_size": 99},
        (), {"input_ids": _ids(2, 9), "decoder_input_ids": _ids(2, 5), **OFF},
    ),
    "mistral": lambda: _from(
        "MistralForCausalLM", "MistralConfig", GROUPED | {"sliding_window": 6}, (_ids(2, 21),), OFF
    ),
    "gemma2": lambda: _from(
        "Gemma2ForCausalLM", "Gemma2Config", GROUPED | {"head_dim": 16, "sliding_window": 5}, (_ids(1, 12),), OFF
    ),
    "mixtral": lambda: _from(
        "MixtralForCausalLM", "MixtralConfig", GROUPED | {"num_local_experts": 3, "intermediate_size": 96},
        (_ids(1, 9),), OFF,
    ),
    "convnext": lambda: _from(
        "ConvNextModel", "ConvNextConfig", {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 2, 1]},
        (torch.randn(1, 3, 64, 64),),
    ),
    "swin": lambda: _from(
        "SwinModel", "SwinConfig",
        {"image_size": 56, "patch_size": 2, "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4]},
        (torch.randn(1, 3, 56, 56),),
    ),
    "segformer": lambda: _from(
        "SegformerForSemanticSegmentation", "SegformerConfig",
        {"depths": [1] * 4, "hidden_sizes": [16, 24, 32, 40], "num_attention_heads": [1, 2, 4, 5]},
        (torch.randn(1, 3, 64, 64),),
    ),
}  # fmt: skip


class Written(nn.Module):
    """A function with some modules."""

    def __init__(self, function, **parts) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleDict(parts)

    def forward(self, *inputs):
        return self.function(self.parts, *inputs)


def _steps(parts, x):
    h, kept = x.new_zeros(x.shape[0], 12), []
    for step in range(x.shape[1]):
        h = parts["cell"](x[:, step], h)
        kept.append(h)
    return {"all": torch.stack(kept, 1), "last": h}


def _in_place(parts, x):
    y = parts["first"](x)
    y.add_(1).mul_(2)
    y[:, 1:3] = 0
    z = y.clone()
    z[:, 0].fill_(5.0)
    return y, z.relu_(), torch.zeros(3, 9).index_copy(1, torch.arange(0, 9, 2), z[:, :5])


def _views(parts, x):
    y = parts["first"](x).view(2, 5, 3, 4)
    a, b, c = y.unbind(2)
    return a.transpose(0, 1), (b @ c.transpose(-1, -2)).softmax(-1), y.permute(3, 0, 2, 1).reshape(8, 15), y[..., ::2]


def _indices(parts, index, flags, x):
    table = parts["table"](index) * flags.unsqueeze(-1)
    return {"a": (table.sum(1), index > 10), "b": [x.masked_fill(index > 10, -1.0), index + 1, flags.float().mean()]}


def _odd(_, x):
    return (
        F.softplus(x),
        F.log_softmax(x, -1),
        x.softmax(1),
        x.cumsum(1),
        x.topk(2, -1),
        x.std(-1),
        F.glu(x, -1),
        x % 0.7,
    )


WRITTEN = {
    "transposed": lambda: (
        nn.Sequential(nn.ConvTranspose2d(6, 10, 3, 2, 1, 1), nn.BatchNorm2d(10), nn.ReLU(), nn.Conv2d(10, 4, 3)),
        (torch.randn(2, 6, 7, 9),),
    ),
    "group norm": lambda: (
        nn.Sequential(nn.Conv2d(3, 24, 3), nn.GroupNorm(4, 24), nn.SiLU(), nn.Conv2d(24, 9, 1), nn.InstanceNorm2d(9)),
        (torch.randn(2, 3, 11, 13),),
    ),
    "three-dimensional": lambda: (
        nn.Sequential(nn.Conv3d(2, 6, 3), nn.ReLU(), nn.MaxPool3d(2)), (torch.randn(1, 2, 6, 8, 10),)
    ),
    "recurrent": lambda: (Written(_steps, cell=nn.GRUCell(7, 12)), (torch.randn(3, 5, 7),)),
    "in place": lambda: (Written(_in_place, first=nn.Linear(7, 12)), (torch.randn(3, 7),)),
    "views": lambda: (Written(_views, first=nn.Linear(7, 12)), (torch.randn(2, 5, 7),)),
    "indices": lambda: (
        Written(_indices, table=nn.Embedding(50, 8)),
        (torch.randint(0, 50, (2, 6)), torch.rand(2, 6) > 0.4, torch.randn(2, 6)),
    ),
    "odd functions": lambda: (Written(_odd), (torch.randn(2, 5, 6),)),
    "decoder": lambda: (
        nn.TransformerDecoderLayer(24, 4, 50, batch_first=True), (torch.randn(2, 9, 24), torch.randn(2, 5, 24))
    ),
    "bfloat16": lambda: (nn.Sequential(nn.Linear(8, 16), nn.GELU()).bfloat16(), (torch.randn(3, 8).bfloat16(),)),
    "nothing": lambda: (nn.Sequential(nn.Linear(4, 5), nn.ReLU()), (torch.randn(0, 4),)),
}  # fmt: skip


@pytest.mark.parametrize("name", [*TRANSFORMERS, *WRITTEN])
def test_the_zoo_gives_what_pytorch_gives(name):
    torch.manual_seed(0)
    module, inputs, *rest = (TRANSFORMERS | WRITTEN)[name]()
    keywords = rest[0] if rest else {}
    module = shaken(module)
    fast = heddle.tiles.compile(module, inputs, threads=2, keywords=keywords)
    with torch.no_grad():
        wanted = module(*inputs, **keywords)
    found = fast(*inputs, **keywords)
    assert [each.dtype for each in leaves(found)] == [each.dtype for each in leaves(wanted)]
    numbers = [[each.double().contiguous() for each in leaves(value) if each.numel()] for value in (wanted, found)]
    assert not numbers[0] or largest_error(*numbers) < 1e-5
    assert fast.whole is None  # what tiles do not cover runs operator by operator
