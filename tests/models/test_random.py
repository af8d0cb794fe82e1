from __future__ import annotations

import hashlib
import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heddle.models import Transformer, initialize
from heddle.models.init import initial_std
from heddle.models.random import dropout, fill_normal, site, token_keys
from heddle.spec import ModelSpec

SHAPE = torch.Size((96, 80))


def whole(name: str = "w", seed: int = 0) -> torch.Tensor:
    full = torch.empty(SHAPE)
    fill_normal(full, name, seed, 1.0, SHAPE, (0, 0))
    return full


@given(st.integers(0, 95), st.integers(0, 79), st.data())
def test_any_box_of_a_weight_is_that_box_of_the_whole(row, column, data):
    height, width = data.draw(st.integers(1, 96 - row)), data.draw(st.integers(1, 80 - column))
    box = torch.empty(height, width)
    fill_normal(box, "w", 0, 1.0, SHAPE, (row, column))
    assert torch.equal(box, whole()[row : row + height, column : column + width])


def test_weights_are_normal_and_differ_by_name_and_seed():
    full = torch.empty(1000, 500)
    fill_normal(full, "w", 0, 1.0, full.shape, (0, 0))
    assert abs(float(full.mean())) < 0.005
    assert abs(float(full.std()) - 1) < 0.005
    inside = [float((full.abs() < z).float().mean()) for z in (0.5, 1, 2, 3)]
    assert inside == pytest.approx([math.erf(z / math.sqrt(2)) for z in (0.5, 1, 2, 3)], abs=0.003)
    for other in (whole("v"), whole(seed=1)):
        assert abs(float(torch.corrcoef(torch.stack([whole().flatten(), other.flatten()]))[0, 1])) < 0.05
    neighbors = torch.corrcoef(torch.stack([full[:-1].flatten(), full[1:].flatten()]))[0, 1]
    assert abs(float(neighbors)) < 0.01


def test_a_weight_is_what_the_recipe_says():
    """The recipe in plain Python, without torch: a change here changes every model trained from scratch."""

    def weight(name: str, seed: int, index: int) -> float:
        start = int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest(), "little") >> 1
        z = (start + index) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        z ^= z >> 31
        return statistics.NormalDist().inv_cdf((z % 2**16 + 0.5) / 2**16)

    expected = [[weight("layers.0.mlp.up.weight", 7, 80 * row + column) for column in range(80)] for row in range(96)]
    torch.testing.assert_close(whole("layers.0.mlp.up.weight", 7), torch.tensor(expected), rtol=1e-4, atol=1e-4)


def test_initialize_follows_gpt2():
    spec = ModelSpec(layers=8, hidden=64, heads=4, vocab=99, sequence=16)
    model = Transformer(spec)
    initialize(model, seed=0)
    for name, parameter in model.state_dict().items():
        if "norm" in name and name.endswith("weight"):
            assert torch.all(parameter == 1)
        elif parameter.dim() == 1:
            assert torch.all(parameter == 0)
        else:
            expected = 0.02 / 4 if name.endswith(("out.weight", "down.weight")) else 0.02
            assert initial_std(spec, name) == pytest.approx(expected)
            assert float(parameter.std()) == pytest.approx(expected, rel=0.06)


def test_dropout_depends_on_the_token_not_on_the_batch():
    x = torch.ones(6 * 10, 64)
    keys = token_keys(0, torch.arange(6), 10)
    together = dropout(x, 0.3, site("site"), keys)
    assert torch.equal(dropout(x[20:35], 0.3, site("site"), keys[20:35]), together[20:35])
    assert torch.equal(token_keys(0, torch.tensor([4]), 10), keys[40:50])


def test_dropout_keeps_the_mean_and_is_independent_by_site_and_token():
    x = torch.ones(4 * 256, 256)
    keys = token_keys(0, torch.arange(4), 256)
    one, two = (dropout(x, 0.25, site(name), keys) for name in ("a", "b"))
    assert float((one == 0).float().mean()) == pytest.approx(0.25, abs=0.005)
    assert float(one.mean()) == pytest.approx(1, abs=0.01)
    assert one.unique().tolist() == pytest.approx([0, 4 / 3])
    agree = float(((one == 0) == (two == 0)).float().mean())
    assert agree == pytest.approx(0.25**2 + 0.75**2, abs=0.01)
    by_feature, by_token = (one == 0).float().mean(0), (one == 0).float().mean(1)
    assert float(by_feature.std()) == pytest.approx(math.sqrt(0.25 * 0.75 / 1024), rel=0.2)
    assert float(by_token.std()) == pytest.approx(math.sqrt(0.25 * 0.75 / 256), rel=0.2)


def test_dropout_gradient_goes_where_the_values_went():
    x = torch.randn(64, 32, requires_grad=True)
    y = dropout(x, 0.5, site("site"), token_keys(3, torch.arange(1), 64))
    y.sum().backward()
    assert torch.equal(x.grad != 0, y != 0)
