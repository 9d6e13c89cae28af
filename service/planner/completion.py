"""From what the model marked to the plan: values, numbers inside the marked words, and search queries.

Only what code must do is done here. Nothing looks for a price, a refusal or a follow-up in the shopper's words: the
draft says which words stand for what. A filter whose words say no number is left out rather than guessed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, cast

from peakplan_client.operators import without_operators

from service.engines.protocol import QuestionMeaning
from service.planner.amounts import Amount, read_amounts, signed_currency
from service.planner.plan import MAX_KINDS, MAX_PARTS, MAX_QUERIES, Kind, Mode, Part, Plan, Price, Rating, Sort
from service.planner.plan_text import FacetSpan, PlanDraft, parse
from service.planner.question import Question
from service.planner.shop import current
from service.planner.shop.kinds import Kinds, Thing
from service.planner.spelling import begin_conversation, correct
from service.planner.vocabulary import DEFAULT_INTENT, NAMING_FACETS, QUESTIONS, Vocabulary

_AROUND = 0.2  # "around 50" is 40 to 60
_MOST_STARS = 5


def plan_from_text(
    text: str, question: Question, vocabulary: Vocabulary, meaning: QuestionMeaning | None = None
) -> Plan:
    """Return the plan that a model's text means; see `plan_from_draft`. Raises PlanTextError when it is invalid."""
    return plan_from_draft(parse(text, question, vocabulary), question, vocabulary, meaning)


def plan_from_draft(
    draft: PlanDraft, question: Question, vocabulary: Vocabulary, meaning: QuestionMeaning | None = None
) -> Plan:
    """Return the plan of a draft: every draft becomes a valid plan.

    Args:
        draft: what the model marked.
        question: the conversation that the draft's words are of.
        vocabulary: of the model.
        meaning: what the model's kind head made of the question, where it has one.
    """
    begin_conversation()
    if current.SHOPS:
        draft = _in_shop(draft, question, vocabulary)
    intent = vocabulary.intents[draft.intent]
    plan = Plan(mode=cast(Mode, draft.mode), intent=draft.intent)
    if intent.sources == ():
        return plan
    sources = list(dict.fromkeys(intent.sources or draft.sources or list(vocabulary.sources)[:1]))
    plan = plan.model_copy(update={"sources": sources})
    if draft.foreign or not intent.products:
        return plan.model_copy(update={"queries": [question.text] if draft.foreign else text_queries(question)})
    plan = without_operators(plan.model_copy(update=_product_fields(draft, question)), question.text)
    if not current.SHOPS:
        return plan
    told = [question.surface(mark.first, mark.last) for mark in draft.marks if mark.facet == "need"]
    is_need = bool(told) and not any(span.facet == "type" for span in draft.spans)
    return with_kinds(plan, question, vocabulary, Need(" ".join(told).lower(), is_told=is_need), meaning)


def _in_shop(draft: PlanDraft, question: Question, vocabulary: Vocabulary) -> PlanDraft:
    """Return a draft whose spans have the facets that their words surely are in the shop.

    A question that is a name of the shop and nothing else looks for it: "google" is no small talk where it is a brand.
    """
    own = question.own_words
    name = current.name_of([word.text for word in own])
    if name and name.facet in vocabulary.facets and not vocabulary.intents[draft.intent].products:
        first = len(question.words) - len(own)
        return PlanDraft("keyword", DEFAULT_INTENT, spans=[FacetSpan(name.facet, first, len(question.words) - 1)])
    return replace(draft, spans=[_under_its_facet(span, question, vocabulary) for span in draft.spans])


def _under_its_facet(span: FacetSpan, question: Question, vocabulary: Vocabulary) -> FacetSpan:
    name = current.name_of([question.words[index].text for index in span.indices])
    if name is None or name.facet == span.facet or name.facet not in vocabulary.facets:
        return span
    return replace(span, facet=name.facet)


def _product_fields(draft: PlanDraft, question: Question) -> dict[str, object]:
    spans = _settled(draft.spans, question)
    shared = [span for span in spans if not span.part]
    price = _price([mark for mark in draft.marks if not mark.part], question)
    fields: dict[str, object] = {
        "vertical": draft.vertical,
        "rating": _rating([mark for mark in draft.marks if mark.facet == "rating"], question),
        "sort": cast(Sort, draft.sort),
        "offers": list(draft.offers),
        **_values(shared, question),
    }
    needs = [mark for mark in draft.marks if mark.facet == "need"]
    numbers = sorted({span.part for span in spans if span.part})[:MAX_PARTS]
    if len(numbers) < 2:  # one of several things is the thing
        return fields | {
            **_values(spans, question),
            "price": price if not numbers else _price(draft.marks, question),
            "queries": plan_queries(draft, spans, needs, question),
        }
    parts = [_part(number, spans, draft, question, price) for number in numbers]
    if len({part.price for part in parts}) == 1:
        price = parts[0].price
    firsts = distinct((query for part in parts for query in part.queries[:1]), MAX_PARTS)
    return fields | {"parts": parts, "queries": firsts or text_queries(question), "price": price}


def _part(number: int, spans: Sequence[FacetSpan], draft: PlanDraft, question: Question, price: Price) -> Part:
    own = [span for span in spans if span.part in (0, number)]
    bound = _price([mark for mark in draft.marks if mark.part == number], question)
    return Part(
        **_values(own, question), price=price if bound == Price() else bound, queries=part_queries(own, question)
    )


def _settled(spans: Sequence[FacetSpan], question: Question) -> list[FacetSpan]:
    """Return the spans without those whose words are refused later, or wanted later, for the same things."""
    said: dict[tuple[str, int], bool] = {}
    for span in spans:
        said[_words(span, question), span.part] = span.refused
    return [span for span in spans if said[_words(span, question), span.part] == span.refused]


def _words(span: FacetSpan, question: Question) -> str:
    return question.spelled(span.indices)


def _values(spans: Sequence[FacetSpan], question: Question) -> dict[str, dict[str, list[str]]]:
    """Return wanted and refused values by facet, as the shopper wrote them, each once."""
    found: dict[str, dict[str, list[str]]] = {"facets": {}, "exclude": {}}
    for span in spans:
        values = found["exclude" if span.refused else "facets"].setdefault(span.facet, [])
        value = question.surface(span.first, span.last)
        if value.lower() not in map(str.lower, values):
            values.append(value)
    return found


def _amounts(mark: FacetSpan, question: Question) -> list[Amount]:
    return read_amounts(question.surface(mark.first, mark.last), question.locale)


def _price(marks: Sequence[FacetSpan], question: Question) -> Price:
    """Return the bounds that marked words say; what says no number bounds nothing."""
    low: float | None = None
    high: float | None = None
    currency: str | None = None
    for mark in marks:
        amounts = _amounts(mark, question)
        if not amounts or mark.facet not in ("min", "max", "range", "about"):
            continue
        values = [amount.value for amount in amounts]
        currency = amounts[0].currency or currency
        if mark.facet == "max":
            high = values[-1]
        elif mark.facet == "min":
            low = values[-1]
        elif mark.facet == "range" and len(values) > 1:
            low, high = min(values), max(values)
        elif mark.facet == "about":
            low, high = round(values[0] * (1 - _AROUND), 2), round(values[0] * (1 + _AROUND), 2)
    if low is None and high is None:
        return Price()
    if low is not None and high is not None and low > high:
        low, high = high, low
    return Price(min=low, max=high, currency=currency or _currency_before(marks, question))


def _currency_before(marks: Sequence[FacetSpan], question: Question) -> str | None:
    """Return the currency whose sign stands at the last amount of money before a bare bound: it goes on."""
    until = max(question.words[mark.first].utterance for mark in marks)
    signed = (signed_currency(text, question.locale) for text in reversed(question.utterances[: until + 1]))
    return next(filter(None, signed), None)


def _rating(marks: Sequence[FacetSpan], question: Question) -> Rating:
    stars = [amount.value for mark in marks for amount in _amounts(mark, question) if 0 < amount.value <= _MOST_STARS]
    return Rating(min=stars[-1]) if stars else Rating()


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


class Need(NamedTuple):
    """The words that tell what something is for; "" where a thing is named. `is_told`: they name no thing."""

    text: str = ""
    is_told: bool = False


NO_NEED: Final = Need()


def with_kinds(
    plan: Plan,
    question: Question,
    vocabulary: Vocabulary,
    need: Need = NO_NEED,
    meaning: QuestionMeaning | None = None,
) -> Plan:
    """Return the plan with the categories of the shop that it is about, if it is about products and any is sure.

    `meaning` is what the model made of the question, where it has read it: it counts where it was trained with the
    shop's vectors, on one utterance as all that it was trained on.
    """
    shop = current.lexicon()
    if shop is None or shop.kinds is None or not plan.queries or not vocabulary.intents[plan.intent].products:
        return plan
    is_read = need.is_told and meaning is not None and _is_usable(meaning, question, shop.kinds)
    pointed = meaning.direction if meaning is not None and is_read else ()
    of = (plan,) if need.is_told else plan.parts or (plan,)
    things = [Thing(" ".join(each.queries[:1]), each.facets.get("type", ()), *need, pointed) for each in of]
    kinds = [Kind(id=each.id, name=each.name) for each in shop.kinds.of(things, MAX_KINDS)]
    return plan.model_copy(update={"kinds": kinds}) if kinds else plan


def _is_usable(meaning: QuestionMeaning, question: Question, kinds: Kinds) -> bool:
    return meaning.space == kinds.space and len(question.utterances) == 1
