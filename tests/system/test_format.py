"""Numbers with the unit and the digits that suit them."""

import pytest

from heddle.format import duration, figures, short_figures, tokens_in_words


@pytest.mark.parametrize(
    ("number", "text"),
    [(5.79, "5.790"), (141, "141.0"), (0.0025591, "0.002559"), (12345.6, "12346"), (1000, "1000"), (0, "0.000")],
)
def test_columns_have_as_many_digits_in_every_row(number, text):
    assert figures(number) == text


def test_large_numbers_keep_their_zeros_before_the_unit():
    assert [short_figures(number) for number in (58_000, 1_234_567, 12)] == ["58.00k", "1.235M", "12.00"]


def test_tokens_are_counted_in_billions():
    assert [tokens_in_words(count) for count in (3e11, 15e12, 5120)] == ["300B", "15T", "5.12k"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.192, "192 ms"),
        (90, "90 s"),
        (600, "10 minutes"),
        (7457, "2.07 hours"),
        (34.12 * 86_400, "34.1 days"),
        (1234.6 * 86_400, "1,235 days"),
    ],
)
def test_what_takes_long_is_told_in_long_units(seconds, text):
    assert duration(seconds) == text
