import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.planner.reading.en.amounts import find_amounts
from service.planner.reading.tokens import Words


def amounts(text: str) -> list[float]:
    return [amount.value for amount in find_amounts(Words(text), frozenset())]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("under $1,200.50", [1200.5]),
        ("1.5k laptop", [1500]),
        ("$20-$40", [20, 40]),
        ("20 - 40", [20, 40]),
        ("fifty bucks", [50]),
        ("two hundred dollars", [200]),
        ("twenty five or thirty-six", [25, 36]),
        ("a hundred", [100]),
        ("three thousand two hundred", [3200]),
        ("this one is a good one", []),
        ("iphone12 and ps4", []),
        ("£30, €40 and ¥50", [30, 40, 50]),
        ("19.99", [19.99]),
        ("99999999999", []),
        ("", []),
    ],
)
def test_amounts_in_digits_and_in_words(text: str, values: list[float]) -> None:
    assert amounts(text) == values


@given(st.text(max_size=200))
def test_any_text_names_finite_amounts_in_range(text: str) -> None:
    assert all(0 <= value <= 10_000_000 for value in amounts(text))
