"""A model's spans beside those that rules read: a corrected draft where rules are the surer of the two.

Writers who saw the contract alone found that a model often errs where a question wants one thing and refuses another:
by rule 54 of the fourteenth writer's 60 such questions pass, and with the model's spans as they stand 37.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from service.planner.plan_text import FacetSpan
from service.planner.question import Question

QUALITIES = ("color", "material")  # whose words are closed lists
_OVERLOOKED = (*QUALITIES, "brand")  # what a model leaves out beside a refusal


def without_qualities(spans: Sequence[FacetSpan], by_rule: Sequence[FacetSpan]) -> list[FacetSpan]:
    """Return spans, a color or material that one begins with apart, where both readings agree on what is left of it.

    "red nike" is no brand and "black ink" no type of thing, but "black and decker" is a brand.
    """
    wanted = [span for span in by_rule if not span.refused]
    agreed = {(span.facet, span.first, span.last) for span in wanted}
    qualities = {span.first: span for span in wanted if span.facet in QUALITIES}
    return [part for span in spans for part in _parted(span, qualities, agreed)]


def _parted(span: FacetSpan, qualities: dict[int, FacetSpan], agreed: set[tuple[str, int, int]]) -> Iterator[FacetSpan]:
    quality = qualities.get(span.first)
    if quality and not span.refused and (span.facet, quality.last + 1, span.last) in agreed:
        yield replace(quality, part=span.part)
        span = replace(span, first=quality.last + 1)
    yield span


def beside_refusals(spans: Sequence[FacetSpan], by_rule: Sequence[FacetSpan], question: Question) -> list[FacetSpan]:
    """Return the spans of a model for a question that refuses something, of one thing and not of several.

    A model may take for refused what is wanted ("navy" of "not red, make it navy"), make one value of both ("leather
    but canvas"), or overlook a color, a material or a brand, or what is refused.
    """
    refused = {index for span in spans if span.refused for index in span.indices}
    wanted = [span for span in by_rule if not (span.refused or span.part)]
    sure = [span for span in wanted if span.facet in _OVERLOOKED or refused.issuperset(span.indices)]
    certain = {index for span in sure for index in span.indices}
    kept = [span for span in spans if not span.refused or certain.isdisjoint(span.indices)]
    said = {index for span in kept for index in span.indices}
    sure += [span for span in by_rule if span.refused and not _is_taken_back(span, wanted, question)]
    return sorted([*kept, *(span for span in sure if said.isdisjoint(span.indices))], key=lambda span: span.first)


def _is_taken_back(refused: FacetSpan, wanted: Sequence[FacetSpan], question: Question) -> bool:
    """Tell whether a word that is refused is wanted later: "not black", and then "in black after all"."""
    texts = _texts(refused, question)
    return any(span.first > refused.last and not texts.isdisjoint(_texts(span, question)) for span in wanted)


def _texts(span: FacetSpan, question: Question) -> set[str]:
    return {question.words[index].text for index in span.indices}
