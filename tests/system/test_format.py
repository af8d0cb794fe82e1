"""Numbers with the unit and the digits that suit them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.format import (
    duration,
    figures,
    length_in_words,
    seconds_in_words,
    short,
    short_figures,
    signed_seconds,
    tokens_in_words,
)


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


UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


@given(st.floats(-1e9, 1e9))
def test_seconds_have_three_digits_and_no_exponent(seconds):
    text = signed_seconds(seconds)
    count, unit = text.split()
    value = float(count.replace(",", "")) * UNITS[unit]
    assert abs(value - seconds) <= max(0.00501 * abs(seconds), 5.01e-10)
    assert "e" not in count
    assert text[0] == ("0" if count == "0" else "-" if seconds < 0 else "+")
    assert abs(float(count.replace(",", ""))) < 1000 or unit == "s"


def test_what_rounding_leaves_is_nothing_and_what_rounds_up_changes_its_unit():
    assert [seconds_in_words(each) for each in (2.84e-14, -1e-17, 0.9999, 999.9e-6)] == ["0 s", "0 s", "1 s", "1 ms"]
    assert [seconds_in_words(each) for each in (1234.5, 9.996e3, 123456)] == ["1,234 s", "9,996 s", "123,456 s"]
    assert [short(999_999), short(999_960), short(1e9 - 1)] == ["1M", "1M", "1G"]


@pytest.mark.parametrize(
    ("took", "text"),
    [(1.35, "35% longer"), (3.37, "3.37 times as long"), (0.8, "20% shorter"), (0.1, "10.0 times as fast")],
)
def test_a_ratio_and_a_difference_are_not_told_in_the_same_words(took, text):
    assert length_in_words(took, 1.0) == text


def test_flops_of_any_step_have_no_exponent():
    assert [short(count) for count in (1.864e18, 3.2e21, 2e15)] == ["1.864E", "3.2Z", "2P"]
