"""The closed phrases of plan version 2: what they say, where they stand, and what search text they leave."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.planner.phrases import OFFERS, SORTS, Phrases, read_phrases
from service.planner.phrases_text import without
from service.planner.phrases_words import Words, sections
from tests.planner.phrases_table import rows
from tests.planner.walks import texts


def facts(question: str, said: Phrases) -> str:
    """What the phrases say, as the table writes it."""
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
    said = read_phrases(question)
    assert facts(question, said) == expected, table
    if search != "~":
        assert without(question, said.spans) == search, table
