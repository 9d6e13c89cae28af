import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.planner.numbers import find_numbers, format_number


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("under $1,200.50", [1200.5]),
        ("1.5k laptop", [1500]),
        ("2k tv", [2000]),
        ("$20-$40", [20, 40]),
        ("20 - 40", [20, 40]),
        ("between 15 and 37", [15, 37]),
        ("fifty bucks", [50]),
        ("two hundred dollars", [200]),
        ("twenty five or thirty-six", [25, 36]),
        ("a hundred", [100]),
        ("three thousand two hundred", [3200]),
        ("this one is a good one", []),
        ("40mm lens, 5kg", [40, 5]),
        ("iphone12 and ps4", []),
        ("£30, €40 and ¥50", [30, 40, 50]),
        ("19.99", [19.99]),
        ("1.999", [1.99]),
        ("99999999999", []),
        ("0", [0]),
        ("", []),
    ],
)
def test_numbers_in_digits_and_in_words(text: str, numbers: list[float]) -> None:
    assert find_numbers(text) == numbers


@pytest.mark.parametrize(
    ("number", "text"), [(40.0, "40"), (19.5, "19.5"), (19.99, "19.99"), (100.0, "100"), (0.0, "0")]
)
def test_format(number: float, text: str) -> None:
    assert format_number(number) == text


@given(st.integers(0, 10_000_000), st.integers(0, 99))
def test_a_formatted_number_is_found_again(whole: int, cents: int) -> None:
    number = min(whole + cents / 100, 9_999_999.99)
    assert find_numbers(f"under {format_number(number)} please") == [float(format_number(number))]


@given(st.text(max_size=200))
def test_any_text_names_finite_numbers_in_range(text: str) -> None:
    assert all(0 <= number <= 10_000_000 for number in find_numbers(text))
