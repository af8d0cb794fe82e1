"""Operators that are written in terms of others: wholly as tiles, and what PyTorch gives."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import heddle
from tests.helpers.cases import thinned


class Of(nn.Module):
    """A function of parts and inputs."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *inputs):
        return self.function(*self.parts, *inputs)


def selective_scan(step, into, out, x):
    """A state-space layer: what is kept of the past and what is added depend on the input."""
    delta, h, rows = F.softplus(step(x)), x.new_zeros(x.shape[0], x.shape[2], into.out_features), []
    b, c = into(x), out(x)
    for t in range(x.shape[1]):
        h = torch.exp(-delta[:, t, :, None]) * h + (delta[:, t] * x[:, t])[..., None] * b[:, t, None]
        rows.append((h * c[:, t, None]).sum(-1))
    return torch.stack(rows, 1)


def shifted_windows(qkv, x):
    """Swin's: windows of 4 × 4 of an image that was rolled."""
    x = torch.roll(x, (-2, -1), (1, 2))
    x = x.view(1, 2, 4, 2, 4, 16).permute(0, 1, 3, 2, 4, 5).reshape(4, 16, 16)
    q, k, v = qkv(x).view(4, 16, 3, 2, 8).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(4, 16, 16)
    return torch.roll(y.view(1, 2, 2, 4, 4, 16).permute(0, 1, 3, 2, 4, 5).reshape(1, 8, 8, 16), (2, 1), (1, 2))


def sinks(qkv, x):
    """Attention with a score that belongs to no key."""
    q, k, v = qkv(x).view(2, 9, 3, 4, 8).permute(2, 0, 3, 1, 4)
    scores = (q @ k.transpose(-1, -2)).masked_fill(torch.ones(9, 9).triu(1).bool(), -1e9)
    return torch.cat((scores, torch.ones(2, 4, 9, 1)), -1).softmax(-1)[..., :-1] @ v


def cross(q, kv, x, memory):
    k, v = kv(memory).view(2, 11, 2, 4, 8).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q(x).view(2, 5, 4, 8).transpose(1, 2), k, v)


def einsums(x, y):
    scores = torch.einsum("bqhd,bkhd->bhqk", x, y)
    mixed = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), y)
    return (
        torch.einsum("bqhd,bqhe->bqde", mixed, x),
        torch.einsum("bqhd->hd", x),
        torch.einsum("b,c->bc", x[:, 0, 0, 0], y[:, 0, 0, 0]),
    )


def normalized(x):
    return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True), F.normalize(x, dim=-1)


def largest(x):
    """Over images and over channels, as spatial attention takes it, with heads that share."""
    return x.amax((2, 3)), x.amax(1, keepdim=True).repeat_interleave(3, 1) * x.repeat_interleave(2, -1)[:, :3, :, 1::2]


r = torch.randn
MODULES = {
    "transposed": lambda: (nn.ConvTranspose2d(6, 8, 4, 2, 1), r(1, 6, 5, 7)),
    "transposed-odd": lambda: (nn.ConvTranspose2d(6, 9, 3, 2, 1, output_padding=1, groups=3), r(2, 6, 5, 4)),
    "transposed-uneven": lambda: (nn.ConvTranspose2d(4, 6, (3, 2), (1, 3), (0, 1), bias=False), r(1, 4, 5, 5)),
    "transposed-1d": lambda: (nn.ConvTranspose1d(4, 6, 8, 4, 2), r(2, 4, 9)),
    "group-norm": lambda: (nn.Sequential(nn.GroupNorm(3, 12), nn.SiLU(), nn.Conv2d(12, 8, 3)), r(2, 12, 5, 5)),
    "instance-norm": lambda: (nn.InstanceNorm2d(6, affine=True), r(2, 6, 4, 5)),
    "layer-norm": lambda: (nn.LayerNorm((3, 8)), r(2, 3, 8)),
    "scan": lambda: (Of(selective_scan, nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)), r(2, 5, 8)),
    "windows": lambda: (Of(shifted_windows, nn.Linear(16, 48)), r(1, 8, 8, 16)),
    "sinks": lambda: (Of(sinks, nn.Linear(32, 96)), r(2, 9, 32)),
    "cross": lambda: (Of(cross, nn.Linear(32, 32), nn.Linear(24, 64)), r(2, 5, 32), r(2, 11, 24)),
    "einsum": lambda: (Of(einsums), r(2, 3, 4, 5), r(2, 3, 4, 5)),
    "lstm-cell": lambda: (Of(lambda cell, x, h, c: cell(x, (h, c)), nn.LSTMCell(6, 8)), r(3, 6), r(3, 8), r(3, 8)),
    "gru-cell": lambda: (nn.GRUCell(6, 8), r(3, 6), r(3, 8)),
    "rnn-cell": lambda: (nn.RNNCell(6, 8, nonlinearity="relu"), r(3, 6), r(3, 8)),
    "lstm": lambda: (nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True), r(2, 4, 6)),
    "gru": lambda: (nn.GRU(6, 8), r(4, 2, 6)),
    "bilinear": lambda: (nn.Bilinear(5, 6, 7), r(4, 5), r(4, 6)),
    "shuffle": lambda: (nn.Sequential(nn.Conv2d(4, 12, 3, padding=1), nn.PixelShuffle(2)), r(1, 4, 5, 5)),
    "pool-1d": lambda: (nn.Sequential(nn.MaxPool1d(3, 2, 1), nn.Softmax(1)), r(2, 4, 11)),
    "activations": lambda: (
        nn.Sequential(nn.Linear(8, 16), nn.GLU(), nn.Mish(), nn.ELU(), nn.PReLU(), nn.Softplus(2.0, 3.0)), r(3, 8)
    ),
    "statistics": lambda: (Of(normalized), r(3, 9)),
    "largest": lambda: (Of(largest), r(2, 5, 6, 7)),
}  # fmt: skip
ALWAYS = (
    "transposed-odd",
    "transposed-uneven",
    "group-norm",
    "layer-norm",
    "scan",
    "einsum",
    "lstm-cell",
    "activations",
    "largest",
)


@pytest.mark.parametrize("name", thinned(MODULES, slow=[name for name in MODULES if name not in ALWAYS]))
@torch.no_grad()
def test_modules_run_wholly_as_tiles(name):
    torch.manual_seed(0)
    module, *inputs = MODULES[name]()
    fast = heddle.tiles.compile(module.eval(), inputs, threads=2)
    assert fast.fallback_operators == []
    found, wanted = ([*_flat(each)] for each in (fast(*inputs), module(*inputs)))
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape
        assert float((ours - theirs).abs().max() / theirs.abs().max()) < 1e-5


def _flat(value):
    if isinstance(value, torch.Tensor):
        yield value
    else:
        for each in value:
            yield from _flat(each)


def test_what_has_no_kernel_is_named():
    module = Of(lambda x: torch.cumsum(x * 2, 1).flip(1))
    fast = heddle.tiles.compile(module, (r(2, 300),))
    assert fast.fallback_operators == ["aten.cumsum.default", "aten.flip.default"]
