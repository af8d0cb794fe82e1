"""Several documents in a sample: each is computed as if it were alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from heddle.errors import HeddleError
from heddle.models import Microbatch, Transformer, initialize
from heddle.models.documents import positions_of, whole_samples
from heddle.parallel.context.held import Held
from heddle.parallel.mesh import Axis
from tests.helpers.small_models import gpt, llama

CPU = torch.device("cpu")
LENGTHS = [[5, 1, 10], [16], [3, 9], []]  # the third is padded, and so is all of the last
MODELS = {
    "learned": gpt(sequence=16, tied=False),
    "rotary": llama(sequence=16, kv_heads=2),
    "window": llama(sequence=16, window=(3, 0)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_document_is_computed_as_if_it_were_alone(name):
    spec = MODELS[name]
    model = Transformer(spec).double()
    initialize(model, 0)
    ids = torch.randint(spec.vocab, (4, 16), generator=torch.Generator().manual_seed(1))
    together = model(ids.flatten(), Held(16, Axis(), CPU).microbatch(LENGTHS)).view(4, 16, -1)
    for row, lengths in enumerate(whole_samples(LENGTHS, 16)):
        at = 0
        for length in lengths:
            alone = model(ids[row, at : at + length], Microbatch(sequence=length))
            torch.testing.assert_close(together[row, at : at + length], alone, rtol=1e-10, atol=1e-10)
            at += length


def test_documents_change_what_is_computed():
    """A test of isolation that passes without it would show nothing."""
    model = Transformer(MODELS["rotary"])
    initialize(model, 0)
    ids = torch.arange(64) % 61
    apart, plain = (model(ids, Held(16, Axis(), CPU).microbatch(lengths)) for lengths in (LENGTHS, []))
    changed = ((apart - plain).view(4, 16, -1).abs().amax(2) > 1e-6).any(1)
    assert changed.tolist() == [True, False, True, False]


def test_gradients_stay_within_a_document():
    spec = MODELS["rotary"]
    model = Transformer(spec, first=False)
    initialize(model, 0)
    x = torch.randn(16, spec.hidden, requires_grad=True)
    batch = Held(16, Axis(), CPU).microbatch([[5, 11]])
    model(x, batch)[8].sum().backward()  # of a token of the second
    assert (x.grad.abs().amax(1) > 0).nonzero().flatten().tolist() == list(range(5, 9))


def test_samples_of_one_document_need_nothing():
    held = Held(16, Axis(), CPU)
    assert held.microbatch([[16], [16]]) == held.microbatch() == Microbatch(sequence=16, length=16)
    assert whole_samples([[4, 4], [16]], 16) == ((4, 4, 8), (16,))
    assert positions_of(((2, 1), (3,))).tolist() == [[0, 1, 0], [0, 1, 2]]
    assert replace(held.plain, documents=((16,),)) != held.plain


@pytest.mark.parametrize("lengths", [[[20]], [[8, 9]], [[3, 0, 4]], [[-1, 5]]])
def test_lengths_that_cannot_be_are_refused(lengths):
    with pytest.raises(HeddleError, match="at most the sample's 16 tokens"):
        Held(16, Axis(), CPU).microbatch(lengths)
