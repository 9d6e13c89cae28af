"""Several things in one question: which spans are whose, and which price is for which."""

from dataclasses import replace

from service.planner.fallback.reading.conversation import DialogueState
from service.planner.fallback.reading.phrases import SpokenPrice
from service.planner.plan import MAX_PARTS, Price
from service.planner.plan_text import FacetSpan
from service.planner.question import Word
from service.planner.vocabulary import NAMING_FACETS

_ASKING = frozenset(("which", "what", "who", "whats", "what's"))
_THINGS = (*NAMING_FACETS, "theme")


def of_things(spans: list[FacetSpan], words: tuple[Word, ...]) -> list[FacetSpan]:
    """Return the spans without those of a question behind several things: "a or b, which leaks less".

    What is said of both, or of no thing of its own, is shared: "both in red", ", for a 2012 focus".
    """
    asking = [span.part for span in spans if span.part > 1 and words[span.first].text in _ASKING]
    spans = [span for span in spans if span.part not in asking]
    things = {span.part for span in spans if span.facet in _THINGS}
    return [replace(span, part=0) if _is_shared(span, things, words) else span for span in spans]


def _is_shared(span: FacetSpan, things: set[int], words: tuple[Word, ...]) -> bool:
    before = [word.text for word in words[max(0, span.first - 3) : span.first]]
    if not span.part or span.facet in NAMING_FACETS:
        return False
    return "both" in before or (span.part not in things and "for" in before)


def few_parts(spans: list[FacetSpan]) -> list[FacetSpan]:
    """Number the parts that want something from 1, at most four; a single one is no part."""
    parts = list(dict.fromkeys(span.part for span in spans if span.part and not span.refused))[:MAX_PARTS]
    if len(parts) < 2:
        return [replace(span, part=0) if span.part else span for span in spans]
    return [replace(s, part=parts.index(s.part) + 1 if s.part else 0) for s in spans if s.part in (0, *parts)]


def part_price(stands: DialogueState, starts: list[tuple[int, int]], at: int) -> Price:
    """Return the price said between this part and the next; one before or after all parts is for each of them.

    `starts` are the positions at which the parts begin, (utterance, character).
    """
    said = stands.prices
    if len(said) == 1 and (said[0][0] > starts[-1] or said[0][0] < starts[0]):
        return price_of(said[0][1])
    ends = [*starts[1:], (1 << 30, 0)]
    inside = [price for position, price in said if starts[at] <= position < ends[at]]
    return price_of(inside[-1]) if inside else Price()


def price_of(phrase: SpokenPrice) -> Price:
    """Return the bounds that a phrase says."""
    return Price(min=phrase.min, max=phrase.max, currency=phrase.currency)
