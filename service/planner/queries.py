"""From a plan draft to the plan: search queries are derived from the model's spans, at no decoding cost.

The first query is strict and made of the question's words; the second has the model's correction of a word, and the
last is wider and keeps only the product's name.
"""

import re

from service.planner.numbers import NUMBER_WORDS
from service.planner.plan import MAX_QUERIES, Plan
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question, Word
from service.planner.vocabulary import Vocabulary

WIDE_FACETS = ("type", "brand", "line", "model")
_NEGATION = re.compile(r"^(not|no|non|without|except|excluding|minus)$")
_PRICE_WORD = re.compile(
    r"^([$£€¥]|under|below|over|above|less|more|than|least|most|up|to|between|from|and|max"
    r"|maximum|min|minimum|around|about|dollars?|bucks?|usd|eur|gbp|euros?|pounds?|for|at|cheaper|price|priced|budget)$"
)
FUNCTION_WORDS = frozenset(
    "a about am an and any are as at be been by can could did do does for from get got has have hello help hey "
    "hi how i i'd i'll i'm i've id if im in is it it's its itself just know let like looking made make me my "
    "need of on one or our out please pls s say should show so some somebody tell thanks that the their them "
    "then there these they thing this those to u up ur us want was we were what what's when where which who why "
    "will with would ya yes you your assistance assist goddamn".split()
)


def complete_plan(draft: PlanDraft, question: Question, vocabulary: Vocabulary) -> Plan:
    """Return the plan that a draft means for its question. Total: every draft from `parse` becomes a valid plan."""
    return Plan.model_validate(
        {
            "mode": draft.mode,
            "intent": draft.intent,
            "vertical": draft.vertical,
            "facets": _facets(draft, question),
            "queries": search_queries(draft, question, vocabulary),
            "sources": list(vocabulary.intents[draft.intent].sources or draft.sources),
        }
    )


def search_queries(draft: PlanDraft, question: Question, vocabulary: Vocabulary) -> list[str]:
    """Return one to three distinct queries, strict first; none for an intent without a search."""
    if vocabulary.intents[draft.intent].sources == ():
        return []
    if not vocabulary.intents[draft.intent].products:
        return [_content(question.own_words)]
    strict = _strict(draft, question)
    candidates = [strict, _wide(draft, question)]
    distinct = dict.fromkeys(query for query in candidates if query)
    return list(distinct)[:MAX_QUERIES]


def _strict(draft: PlanDraft, question: Question) -> str:
    spans = [span for span in draft.spans if not _is_negated(span, question)]
    if draft.mode == "keyword" and len(question.utterances) == 1:
        dropped = {
            index for span in draft.spans if _is_negated(span, question) for index in range(span.first, span.last + 1)
        }
        words = [word for index, word in enumerate(question.words) if index not in dropped]
        return _join(words) or _content(question.own_words)
    return _span_words(spans, question) or _content(question.own_words)


def _wide(draft: PlanDraft, question: Question) -> str:
    spans = [span for span in draft.spans if span.facet in WIDE_FACETS and not _is_negated(span, question)]
    return _span_words(spans, question)


def _span_words(spans: list[FacetSpan], question: Question) -> str:
    return _join([word for span in spans for word in question.words[span.first : span.last + 1]])


def _content(words: tuple[Word, ...]) -> str:
    """Return the words that carry meaning; all of them where none does."""
    return _join([word for word in words if word.text not in FUNCTION_WORDS]) or _join(list(words))


def _without_price(words: list[Word]) -> list[Word]:
    """Drop each run of price words that holds a number ("under 40 dollars", "$20-$40")."""
    kept: list[Word] = []
    run: list[Word] = []
    for word in [*words, None]:
        if word is not None and (_PRICE_WORD.match(word.text) or _names_number(word)):
            run.append(word)
            continue
        if not any(_names_number(item) for item in run):
            kept += run
        run = []
        if word is not None:
            kept.append(word)
    return kept


def _names_number(word: Word) -> bool:
    return bool(re.match(r"^[$£€¥]?\d[\d.,$£€¥k-]*$", word.text)) or word.text in NUMBER_WORDS


def _is_negated(span: FacetSpan, question: Question) -> bool:
    return span.last > span.first and bool(_NEGATION.match(question.words[span.first].text))


def _join(words: list[Word]) -> str:
    return " ".join(word.text for word in words)


def _facets(draft: PlanDraft, question: Question) -> dict[str, list[str]]:
    facets: dict[str, list[str]] = {}
    for span in draft.spans:
        value = question.surface(span.first, span.last)
        if value not in facets.setdefault(span.facet, []):
            facets[span.facet].append(value)
    return facets
