"""Numbers in fewer bits: what a code says, what it weighs, and that error feedback loses nothing in the long run."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heddle.parallel.codecs import CODECS, Feedback
from heddle.spec.network.compression import BLOCK, bytes_per_number, code_bytes

codes = st.sampled_from(sorted(CODECS))
counts = st.integers(1, 3 * BLOCK + 5)
seeds = st.integers(0, 10_000)
TOP = {"int8": 127, "int4": 7}


def numbers(seed: int, *shape: int) -> torch.Tensor:
    """Of sizes from 1e-6 to 1e6, some of them zero."""
    draw = torch.Generator().manual_seed(seed)
    sizes = 10 ** (12 * torch.rand(shape, generator=draw) - 6)
    return torch.randn(shape, generator=draw) * sizes * (torch.rand(shape, generator=draw) > 0.2)


def quantum(name: str, x: torch.Tensor) -> torch.Tensor:
    """What lies between two numbers that a code can say, for each of these."""
    if name == "bf16":
        return x.abs() * 2**-7
    padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % BLOCK)).unflatten(-1, (-1, BLOCK))
    return (padded.abs().amax(-1, keepdim=True) / TOP[name]).expand_as(padded).flatten(-2)[..., : x.shape[-1]]


@given(codes, counts, seeds)
def test_a_code_is_the_nearest_that_it_can_say_and_as_long_as_it_says(name, count, seed):
    codec, x = CODECS[name], numbers(seed, 3, count)
    code = codec.encode(x)
    assert code.dtype == torch.uint8
    assert code.shape == (3, codec.size(count))
    assert code_bytes(name, count) == codec.size(count)
    said = codec.decode(code, count)
    assert ((said - x).abs() <= quantum(name, x) * 0.5001).all()
    # rows are messages of their own, and the same numbers give the same code wherever they lie
    assert torch.equal(codec.encode(x[1]), code[1])


@pytest.mark.parametrize("name", CODECS)
def test_bytes_of_long_messages(name):
    assert CODECS[name].size(10_000 * BLOCK) == 10_000 * BLOCK * bytes_per_number(name, None)
    assert bytes_per_number("none", 4) == 4


@given(codes, counts, seeds, st.integers(1, 12))
def test_with_error_feedback_what_was_sent_adds_up_to_what_was_meant(name, count, seed, steps):
    codec = CODECS[name]
    feedback = Feedback(codec, torch.zeros(2, count))
    meant, sent = (torch.zeros(2, count, dtype=torch.float64) for _ in range(2))
    largest = torch.zeros(2, count)
    for step in range(steps):
        x = numbers(seed + 31 * step, 2, count)
        largest = torch.maximum(largest, quantum(name, x + feedback.residual))
        meant += x
        sent += codec.decode(feedback.encode(x), count)
    # additions in fp32 round, too: by far less than a quantum of the largest number
    assert ((sent - meant).abs() <= largest + 1e-7 * steps * meant.abs().max()).all()
    torch.testing.assert_close(
        meant - sent, feedback.residual.double(), rtol=0, atol=float(largest.max()) * 1e-2 + 1e-30
    )


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_an_overflow_is_told_and_not_kept(name, value):
    feedback = Feedback(CODECS[name], torch.zeros(300))
    x = numbers(1, 300)
    x[200] = value
    assert not CODECS[name].decode(feedback.encode(x), 300)[200].isfinite()
    assert feedback.residual.isfinite().all()
    assert CODECS[name].decode(feedback.encode(numbers(2, 300)), 300).isfinite().all()


@given(codes, counts)
def test_zeros_are_zeros(name, count):
    codec = CODECS[name]
    assert torch.equal(codec.decode(codec.encode(torch.zeros(count)), count), torch.zeros(count))
