import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.planner.fallback.reading.amounts import Amount, Amounts
from service.planner.fallback.reading.en.data import PHRASES
from service.planner.fallback.reading.tokens import Words

AMOUNTS = Amounts(PHRASES)


def find_amounts(text: str) -> list[Amount]:
    return AMOUNTS.find(Words(text), frozenset(), None)


def amounts(text: str) -> list[float]:
    return [amount.value for amount in find_amounts(text)]


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
        ("three hundred and fifty", [350]),
        ("between a hundred and two hundred", [100, 200]),
        ("a hundred and a lamp", [100]),
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
    assert all(0 <= value <= 1_000_000_000 for value in amounts(text))


@pytest.mark.parametrize(
    ("said", "value", "currency"),
    [
        ("375 pesos", 375, None),
        ("500 kr", 500, None),
        ("₹2000", 2000, "INR"),
        ("300 hryvnias", 300, "UAH"),
        ("4000 rupiah", 4000, "IDR"),
        ("300 mxn", 300, "MXN"),
    ],
)
def test_money_of_every_country_is_money(said: str, value: float, currency: str | None) -> None:
    (amount,) = find_amounts(said)
    assert (amount.value, amount.currency, amount.is_money) == (value, currency, True)


@pytest.mark.parametrize("said", ["12 awg wire", "20 kgs", "3 top mugs", "2 dram glasses"])
def test_words_that_only_look_like_codes_are_no_money(said: str) -> None:
    assert not any(amount.is_money for amount in find_amounts(said))
