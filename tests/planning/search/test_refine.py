"""How many layers must recompute: found from any guess, with few looks."""

from itertools import product

import pytest

from heddle.planning.search import refine


@pytest.mark.parametrize("first", [0, 1])
def test_the_fewest_that_fit_are_found_from_any_guess(monkeypatch, first):
    for end, guess in product(range(first, 20), range(21)):
        for answer in range(first, end + 1):
            asked = []
            monkeypatch.setattr(
                refine, "fits", lambda count, asked=asked, least=answer: asked.append(count) or count >= least
            )
            found = refine.fewest_that_fit(lambda count: count, range(first, end), guess)  # type: ignore[return-value]
            assert found == (answer if answer < end else None)
            assert all(count in range(first, end) for count in asked)
            assert len(asked) <= 10


def test_a_number_in_between_is_found_where_the_last_one_does_not_fit(monkeypatch):
    monkeypatch.setattr(refine, "fits", lambda count: 3 <= count <= 8)
    assert refine.fewest_that_fit(lambda count: count, range(12), 0) == 3  # type: ignore[return-value]
