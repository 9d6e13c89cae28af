"""The search queries of a plan, made of the words that the model marked: none is decoded.

The first is strict, the next has its words spelt right, and the last is wider and keeps only what names the thing. A
question about a product is also searched as it was asked. Each of several things has its own.
"""

from collections.abc import Iterable, Sequence

from service.planner.plan import MAX_QUERIES
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.spelling import correct
from service.planner.vocabulary import NAMING_FACETS, QUESTIONS

_MARKS = ",.?!;:()\"'"
_MOST_ASKED_WORDS = 12  # of a question that is searched as it was asked; a longer one tells a story


def distinct(queries: Iterable[str], most: int = MAX_QUERIES) -> list[str]:
    """Return the first queries that say something, each once."""
    return list(dict.fromkeys(query for query in queries if query.strip()))[:most]


def plan_queries(
    draft: PlanDraft, spans: Sequence[FacetSpan], needs: Sequence[FacetSpan], question: Question
) -> list[str]:
    """Return the queries of one thing, or of a need that names none; the newest words where nothing is named."""
    refused = _refused(spans, question)
    strict = _searched([span for span in spans if not span.refused], question, refused)
    need = _searched(needs, question, refused)
    names = [span for span in spans if not span.refused and span.facet in NAMING_FACETS]
    queries = [
        strict,
        "" if names else need,
        _spelt(strict, question),
        _spelt(_searched(names, question, refused), question),
    ]
    if draft.intent in QUESTIONS:
        queries.insert(1, _as_asked(question, refused))
    return distinct(queries) or text_queries(question)


def text_queries(question: Question) -> list[str]:
    """Return the newest words as they stand, and spelt right: what a plan that names nothing is searched by."""
    return distinct([question.text, _spelt(question.text, question)])


def part_queries(spans: Sequence[FacetSpan], question: Question) -> list[str]:
    """Return the queries of one of several things, which has these spans."""
    strict = _searched([span for span in spans if not span.refused], question, _refused(spans, question))
    return distinct([strict, _spelt(strict, question)])


def _refused(spans: Sequence[FacetSpan], question: Question) -> frozenset[str]:
    """Return the words that no query may have: of refused values, but of no wanted one."""
    texts = [
        {question.words[index].text for span in spans if span.refused is side for index in span.indices}
        for side in (True, False)
    ]
    return frozenset(texts[0] - texts[1])


def _searched(spans: Sequence[FacetSpan], question: Question, refused: frozenset[str]) -> str:
    """Return the words of spans in the conversation's order; a value that was said before is not said again."""
    texts: list[str] = []
    for span in sorted(spans, key=lambda span: span.first):
        words = [_plain(question.words[index].text) for index in span.indices]
        words = [word for word in words if word and word not in refused]
        if not set(words) <= set(texts):
            texts += words
    return " ".join(texts)


def _as_asked(question: Question, refused: frozenset[str]) -> str:
    words = [word.text for word in question.own_words]
    if len(words) > _MOST_ASKED_WORDS or not refused.isdisjoint(words):
        return ""
    return _plain(" ".join(words))


def _plain(text: str) -> str:
    return text.strip(_MARKS).lower()


def _spelt(text: str, question: Question) -> str:
    """Return a text with its words spelt right; the list of words is English, so another locale's words stay."""
    return correct(text) if question.language in (None, "en") else text
