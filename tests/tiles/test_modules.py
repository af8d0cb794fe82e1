"""Small networks written by hand, of kinds that transformers' do not have, against themselves in PyTorch."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import heddle
from tests.helpers.cases import thinned
from tests.tiles.networks import largest_error, shaken


def _block(before: int, after: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())


class UNet(nn.Module):
    """Down, up again, and what was there before beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep, self.up = _block(3, 10), _block(10, 20), _block(30, 9)

    def forward(self, x):
        first = self.down(x)
        deep = self.deep(F.max_pool2d(first, 2))
        return self.up(torch.cat([F.interpolate(deep, scale_factor=2), first], 1))


class Dense(nn.Module):
    """Batch norms in front of convolutions, and every layer's output kept beside the others."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(6 + 5 * number) for number in range(3))
        self.layers = nn.ModuleList(nn.Conv2d(6 + 5 * number, 5, 3, padding=1, bias=False) for number in range(3))

    def forward(self, x):
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = torch.cat([x, layer(F.relu(norm(x)))], 1)
        return x


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layers = nn.Embedding(30, 12), nn.LSTM(12, 8, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(8, 5)

    def forward(self, index):
        return self.head(self.layers(self.embedding(index))[0])


class Masked(nn.Module):
    """Scores that are capped, and hidden by the lowest number instead of infinity; the largest of each row."""

    def forward(self, x):
        hidden = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
        lowest = torch.zeros(()).masked_fill(torch.ones((), dtype=torch.bool), torch.finfo(torch.float32).min)
        mask = torch.where(hidden, lowest, 0.0)
        return torch.softmax(50 * torch.tanh(x / 50) + mask, -1), x.amax(-1), torch.softmax(x * 1e37, -1)


class Parts(nn.Module):
    """Gives pieces of what it computed, which lie scattered in its memory."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(12, 36)

    def forward(self, x):
        wide = self.wide(x)
        return (
            *(part.unflatten(-1, (3, 4)).transpose(1, 2) for part in wide.split(12, -1)),
            wide[:, ::2, 1:],
            x[1:, :, 3],
        )


class Blended(nn.Module):
    """Upsampled to sizes that are no multiples, with and without fixed corners, beside convolutions padded by name."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 10, 4, padding="same", dilation=2), nn.Conv2d(10, 5, 3, padding="valid")

    def forward(self, x):
        small = self.second(self.first(x))
        large = F.interpolate(small, size=(17, 9), mode="bilinear", align_corners=True)
        return large, F.interpolate(small, scale_factor=1.7, mode="bilinear"), F.interpolate(x, (5, 4), mode="bilinear")


def _grouped():
    return nn.Sequential(
        nn.Conv2d(24, 36, 3, 2, 1, groups=3), nn.BatchNorm2d(36), nn.ReLU(), nn.Conv2d(36, 36, 1, groups=2)
    )


def _signal():
    return nn.Sequential(nn.Conv1d(5, 18, 5, 2, 2), nn.BatchNorm1d(18), nn.GELU(), nn.Conv1d(18, 18, 3, groups=18))


CASES = {
    "unet": (UNet, (1, 3, 10, 14)),
    "dense": (Dense, (2, 6, 9, 7)),
    "blended": (Blended, (2, 3, 8, 11)),
    "grouped": (_grouped, (2, 24, 9, 11)),
    "signal": (_signal, (3, 5, 41)),
    "parts": (Parts, (2, 5, 12)),
    "masked": (Masked, (1, 2, 45, 45)),
    "recurrent": (Recurrent, None),
}


@pytest.mark.parametrize("name", thinned(CASES, slow=["dense", "parts", "masked"]))
def test_modules_give_what_pytorch_gives(name):
    torch.manual_seed(0)
    make, shape = CASES[name]
    module = shaken(make())
    x = torch.randint(0, 30, (2, 9)) if shape is None else torch.randn(shape)
    fast = heddle.tiles.compile(module, (x,), threads=2)
    with torch.no_grad():
        wanted = module(x)
    assert largest_error(wanted, fast(x)) < 1e-5
    assert fast.fallback_operators == []
