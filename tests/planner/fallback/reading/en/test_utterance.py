"""Tests of the closed phrases of plan version 2: their meaning, position and remaining search text."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.planner.fallback.reading.en.data import PHRASES
from service.planner.fallback.reading.en.reader import ENGLISH
from service.planner.fallback.reading.en.trimming import without
from service.planner.fallback.reading.phrases import OFFERS, SORTS, Phrases
from service.planner.fallback.reading.tokens import Words
from tests.planner.walks import texts

TABLE = Path(__file__).with_name("phrases.txt")


def rows() -> list[tuple[str, str, str, str]]:
    """Return (section, question, facts, search text) of every row of phrases.txt."""
    section, found = "", []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            question, facts, search = (part.strip() for part in line.split("|"))
            found.append((section, question, facts, search))
    return found


def facts(question: str, said: Phrases) -> str:
    """Return the meaning of the phrases as the table writes it."""
    bounds = [f"{bound:g}" if bound is not None else "" for bound in (said.price_min, said.price_max)]
    found = []
    if any(bounds):
        name = f"{bounds[0]}-{bounds[1]}" if all(bounds) else f"min {bounds[0]}" if bounds[0] else f"max {bounds[1]}"
        found.append(f"{name} {said.currency or ''}".strip())
    if said.rating_min is not None:
        found.append(f"stars {said.rating_min:g}")
    if said.sort != "relevance":
        found.append(f"sort {said.sort}")
    if said.offers:
        found.append("offers " + " ".join(said.offers))
    if said.refused:
        found.append("not " + ", ".join(question[start:end] for item in said.refused for start, end in item.values))
    if said.lifted:
        found.append("lift " + " ".join(sorted(said.lifted)))
    return "; ".join(found)


@pytest.mark.parametrize(("table", "question", "expected", "search"), rows())
def test_table(table: str, question: str, expected: str, search: str) -> None:
    said = ENGLISH.phrases(question)
    assert facts(question, said) == expected, table
    if search != "~":
        assert without(question, said.spans) == search, table


_THINGS = st.sampled_from(
    (
        "desk lamp", "size 9 boots", "12 pack seltzer", "iphone 15 case", "55 inch tv", "toys for 3 year olds",
        "500 piece puzzle", "24 oz bottle", "men's t-shirts", "rtx 4070", "salt and pepper shaker", "4k monitor",
    )
)  # fmt: skip
_SUMS = st.integers(20, 9_999)
_MARKS = st.sampled_from((("${}", "USD"), ("{} dollars", "USD"), ("£{}", "GBP"), ("{}€", "EUR"), ("{} euros", "EUR")))
_UPPER = st.sampled_from(
    ("under", "below", "less than", "up to", "max", "no more than", "at most", "nothing over", "cheaper than")
)
_LOWER = st.sampled_from(("over", "above", "more than", "at least", "starting at", "no less than", "minimum"))


@given(_THINGS, _UPPER, _SUMS, _MARKS, st.booleans())
def test_an_upper_bound_leaves_the_thing_whole(
    thing: str, cue: str, value: int, mark: tuple[str, str], is_first: bool
) -> None:
    said = f"{cue} {mark[0].format(value)}"
    question = f"{said} {thing}" if is_first else f"{thing} {said}"
    read = ENGLISH.phrases(question)
    assert (read.price_min, read.price_max, read.currency) == (None, value, mark[1])
    assert without(question, read.spans) == thing


@given(_THINGS, _LOWER, _UPPER, _SUMS, _SUMS)
def test_two_bounds_in_either_order(thing: str, lower: str, upper: str, one: int, other: int) -> None:
    low, high = sorted((one, other))
    for question in (f"{thing} {lower} ${low} and {upper} ${high}", f"{thing} {upper} ${high} but {lower} ${low}"):
        read = ENGLISH.phrases(question)
        assert (read.price_min, read.price_max) == (low, high)
        assert without(question, read.spans) == thing


@given(_THINGS, _SUMS, _SUMS, st.sampled_from(("${}-${}", "between {} and {}", "from ${} to ${}", "{} to {} dollars")))
def test_a_range_in_either_order(thing: str, one: int, other: int, form: str) -> None:
    question = f"{thing} {form.format(one, other)}"
    read = ENGLISH.phrases(question)
    assert (read.price_min, read.price_max) == (min(one, other), max(one, other))
    assert without(question, read.spans) == thing


@given(_THINGS)
def test_numbers_of_a_thing_alone_are_no_price(thing: str) -> None:
    assert ENGLISH.phrases(thing) == Phrases()


_CUES = st.sampled_from(("not", "no", "without", "except", "anything but", "other than", "excluding", "i don't want"))


@given(_THINGS, _CUES, st.sampled_from(("nike", "faux fur", "glitter", "memory foam", "red")), st.booleans())
def test_what_is_refused_is_in_no_search_text(thing: str, cue: str, value: str, has_price: bool) -> None:
    question = f"{thing} {cue} {value}" + (" under $80" if has_price else "")
    read = ENGLISH.phrases(question)
    assert [question[start:end] for item in read.refused for start, end in item.values] == [value]
    assert without(question, read.spans) == thing
    assert read.price_max == (80 if has_price else None)


@given(texts)
def test_any_text_is_read_within_the_vocabulary(text: str) -> None:
    said = ENGLISH.phrases(text)
    assert said.sort in SORTS
    assert set(said.offers) <= set(OFFERS)
    assert said.rating_min is None or 0 < said.rating_min <= 5
    assert said.price_min is None or said.price_max is None or said.price_min <= said.price_max
    places = [*said.spans, *(price.span for price in said.prices), *(item.span for item in said.refused)]
    assert all(0 <= start < end <= len(text) for start, end in places)
    for item in said.refused:
        assert all(item.span[0] <= start < end <= item.span[1] for start, end in item.values)


def assert_search_text_is_of_the_question(text: str) -> None:
    left = without(text, ENGLISH.phrases(text).spans)
    assert len(left) <= len(text)
    assert set(Words(left).texts) <= set(Words(text).texts)


@given(texts)
def test_search_text_is_made_of_the_question(text: str) -> None:
    assert_search_text_is_of_the_question(text)


@given(
    st.lists(
        st.sampled_from(" ".join(phrase for name in PHRASES.names("") for phrase in PHRASES.phrases(name)).split())
    )
)
def test_cues_in_any_order_are_read_without_an_error(words: list[str]) -> None:
    assert_search_text_is_of_the_question(" ".join(words).replace("#", "7"))


def test_places_hold_where_lower_case_is_longer() -> None:
    text = "İİİ kettle under $30"
    said = ENGLISH.phrases(text)
    assert [text[start:end] for start, end in said.spans] == ["under $30"]


@pytest.mark.parametrize(
    "piece", ["1", "1,", "a ", "one ", "$", "1-", "under ", "$1 ", "from 1 ", "not ", "no a, ", "4 star ", "rated ",
              "with at least ", "under a price of ", "hundred ", "not x or ", '"', "only "],
)  # fmt: skip
def test_repetition_does_not_make_it_slow(piece: str) -> None:
    """Check that no search backtracks, which would take minutes here."""
    assert_search_text_is_of_the_question((piece * 20_000)[:20_000])


def test_each_of_several_things_keeps_its_price() -> None:
    question = "a desk under 200 and a desk chair under $150"
    prices = [(price.max, price.currency, question[slice(*price.span)]) for price in ENGLISH.phrases(question).prices]
    assert prices == [(200, None, "under 200"), (150, "USD", "under $150")]


def test_the_phrase_file_names_each_phrase_once_in_a_section() -> None:
    for name in PHRASES.names(""):
        phrases = PHRASES.phrases(name)
        assert len(set(phrases)) == len(phrases), (name, sorted(p for p in phrases if phrases.count(p) > 1))


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("a tent under $20 over $50", (None, 20)),
        ("over $50 a tent under $20", (50, None)),
        ("a tent over $20 under $50", (20, 50)),
        ("a tent, not looking to spend any more than $50", (None, 50)),
        ("a tent, i don't really want to pay any more than 50 dollars", (None, 50)),
        ("a tent, not looking to be spending more than $80", (None, 80)),
        ("a tent, i really want to spend more than $80", (80, None)),
    ],
)
def test_bounds_that_exclude_each_other_and_far_negations(text: str, bounds: tuple[float | None, float | None]) -> None:
    read = ENGLISH.phrases(text)
    assert (read.price_min, read.price_max) == bounds
