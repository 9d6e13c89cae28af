"""From a plan draft to the plan: what the model named, what the closed phrases say, and the search queries of both."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import cast

from service.planner.fallback.making.follow_ups import FollowUp
from service.planner.fallback.making.queries import Queries, content_query, distinct
from service.planner.fallback.making.several import few_parts, of_things, part_price, price_of
from service.planner.fallback.reading.conversation import Conversation, DialogueState, Refused
from service.planner.fallback.reading.en.facets import facet_of
from service.planner.fallback.reading.en.lists import FUNCTION_WORDS
from service.planner.plan import MAX_PARTS, Mode, Part, Plan, Price, Rating
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.vocabulary import NAMING_FACETS, Vocabulary


def complete_plan(draft: PlanDraft, conversation: Conversation, vocabulary: Vocabulary) -> Plan:
    """Return the plan that a draft means for its question. Total: every draft becomes a valid plan."""
    intent = vocabulary.intents[draft.intent]
    mode = cast(Mode, draft.mode)
    if intent.sources == ():
        return Plan(mode=mode, intent=draft.intent)
    sources = list(dict.fromkeys(intent.sources or draft.sources or list(vocabulary.sources)[:1]))
    plan = Plan(mode=mode, intent=draft.intent, sources=sources)
    if draft.foreign:
        return plan.model_copy(update={"queries": [conversation.question.text]})
    if not intent.products:
        return plan.model_copy(update={"queries": content_query(conversation.question)})
    return plan.model_copy(update=_Products(draft, conversation, vocabulary).fields())


class _Products:
    """The fields of a plan about products."""

    def __init__(self, draft: PlanDraft, conversation: Conversation, vocabulary: Vocabulary) -> None:
        question = conversation.question
        self._draft = draft
        self._question = question
        self._texts = [word.text for word in question.words]
        self._facets = tuple(vocabulary.facets)
        self._conversation = conversation
        self._newest = len(question.utterances) - 1
        taken, self._names, turn = conversation.taken, conversation.names, conversation.turn
        self._refusals = [refusal for refusal in conversation.refusals if not self._is_void(refusal)]
        self._follow_up = FollowUp(conversation, turn, draft, self._refusals, self._facets)
        self._gone = taken | self._follow_up.gone
        told = {index for refusal in self._refusals for index in refusal.words}
        self._spans = few_parts(of_things(self._follow_up.settled(self._settled(), told), question.words))
        self._first = self._topic_start()
        self._spans += self._uncovered()
        self._left_out = self._cut()
        self._standing = self._follow_up.standing(self._spans, self._first, self._named_and(self._left_out))

    def fields(self) -> dict[str, object]:
        """Return the fields of the plan by name."""
        stands = self._conversation.standing(self._first)
        shared = [span for span in self._spans if span.part == 0]
        fields: dict[str, object] = {
            "vertical": self._draft.vertical,
            "rating": Rating(min=stands.rating),
            "sort": stands.sort,
            "offers": list(stands.offers),
            **self._values(shared),
        }
        queries = Queries(self._question, self._draft, self._spans, self._first, self._left_out, self._standing)
        numbers = sorted({span.part for span in self._spans if span.part})
        if numbers:
            parts = self._parts(numbers, stands, queries)
            is_shared = len({part.price for part in parts}) == 1
            firsts = distinct((part.queries[0] for part in parts), MAX_PARTS)
            return fields | {"parts": parts, "queries": firsts, "price": parts[0].price if is_shared else Price()}
        return fields | {"queries": queries.of_question(), "price": price_of(stands.price)}

    def _settled(self) -> list[FacetSpan]:
        """Return the spans without words of closed phrases; those that a rule reads as refused are marked so."""
        spans: list[FacetSpan] = []
        by_rule = [refusal for refusal in self._refusals if not self._is_named(refusal)]
        refused = {index for refusal in by_rule for value in refusal.values for index in value}
        dropped = {index for refusal in by_rule for index in refusal.words} - refused
        for span in self._draft.spans:
            gone = self._gone if span.refused else self._gone | dropped
            is_wanted = span.refused and self._is_wanted(span)
            for is_refused, run in groupby(
                (index for index in span.indices if index not in gone), key=lambda index: index in refused
            ):
                left = list(run)  # of "with light" the "with" alone says nothing
                says = is_refused or (span.refused and not is_wanted)
                if len(left) == len(span.indices):
                    spans.append(span if span.refused == says else replace(span, refused=says))
                elif not FUNCTION_WORDS.issuperset(self._texts[index] for index in left):
                    spans += _runs(replace(span, refused=says), left)
        return spans

    def _is_wanted(self, span: FacetSpan) -> bool:
        """Tell whether a model errs about a refusal: it is of a name, or no word refuses it."""
        return self._names.issuperset(span.indices) or not self._conversation.is_denied(span.first, span.last)

    def _is_void(self, refusal: Refused) -> bool:
        """Tell whether a refusal is none: asked about, told as a trouble, or in a name ("no show")."""
        if self._draft.intent == "ask_product":
            return True  # "does it work without wifi"
        if not self._newest and not any(span.facet in NAMING_FACETS for span in self._draft.spans):
            return not any(span.refused for span in self._draft.spans)  # "sleep outdoors without bugs" tells a trouble
        values = {index for value in refusal.values for index in value}
        cue = set(refusal.words) - values
        names = [span for span in self._draft.spans if not span.refused and span.facet in (*NAMING_FACETS, "theme")]
        return any(values.intersection(span.indices) and cue.intersection(span.indices) for span in names)

    def _is_named(self, refusal: Refused) -> bool:
        """Tell whether the model says what is refused in a phrase; the rest of it may be wanted."""
        return any(span.refused and span.first in refusal.words for span in self._draft.spans)

    def _topic_start(self) -> int:
        """Return the first utterance whose closed phrases are in force."""
        used = {self._question.words[span.first].utterance for span in self._spans}
        names = any(not span.refused and span.facet in NAMING_FACETS for span in self._spans)
        names |= any(s.facet == "theme" and self._position(s.first)[0] != self._newest for s in self._spans)
        return min(used) if names else 0

    def _uncovered(self) -> list[FacetSpan]:
        """Return what rules read as refused and the model did not name."""
        words = self._question.words
        wanted = [self._said(span) for span in self._spans if not span.refused]
        turns = any(self._position(span.first)[0] == self._newest for span in self._spans if not span.refused)
        before = {word.text for word in words if word.utterance < self._newest}
        found: list[FacetSpan] = []
        for refusal in self._refusals:
            utterance = words[refusal.words.start].utterance
            if utterance < self._first:
                continue
            for value in refusal.values:
                texts = [words[index].text for index in value]
                if " ".join(texts) in wanted:
                    continue
                if utterance == self._newest and turns and before.issuperset(texts):
                    continue  # "green rather than blue" replaces the blue of before
                if not any(index in span.indices for span in self._spans for index in value):
                    found.append(FacetSpan(self._facet_of(texts), value[0], value[-1], refused=True))
        return found

    def _facet_of(self, texts: Sequence[str]) -> str:
        guesses = (facet_of(texts[-1]), "feature", "type", *self._facets)
        return next(facet for facet in guesses if facet in self._facets)

    def _said(self, span: FacetSpan) -> str:
        return " ".join(self._texts[span.first : span.last + 1])

    def _values(self, spans: Iterable[FacetSpan]) -> dict[str, dict[str, list[str]]]:
        """Return wanted and refused values by facet; of a value that is both, what was said last holds."""
        found: dict[str, dict[str, list[str]]] = {"facets": {}, "exclude": {}}
        last: dict[str, bool] = {}
        spans = sorted(spans, key=lambda span: span.first)
        for span in spans:
            last[self._said(span)] = span.refused
        for span in [span for span in spans if last[self._said(span)] == span.refused]:
            values = found["exclude" if span.refused else "facets"].setdefault(span.facet, [])
            surface = self._question.surface(span.first, span.last)
            if surface not in values:
                values.append(surface)
        return found

    def _parts(self, numbers: Sequence[int], stands: DialogueState, queries: Queries) -> list[Part]:
        starts = [self._position(min(span.first for span in self._spans if span.part == part)) for part in numbers]
        parts = []
        for at, number in enumerate(numbers):
            spans = [span for span in self._spans if span.part in (0, number)]
            price = part_price(stands, starts, at)
            parts.append(Part(**self._values(spans), price=price, queries=queries.of_part(spans)))
        return parts

    def _position(self, index: int) -> tuple[int, int]:
        word = self._question.words[index]
        return word.utterance, word.start

    def _named_and(self, cut: frozenset[int]) -> frozenset[int]:
        """Return words that count no more: those to leave out, and those of values that later ones replaced."""
        return cut.union(index for span in self._draft.spans for index in span.indices)

    def _cut(self) -> frozenset[int]:
        """Return the words that are no part of what to search for."""
        wanted = {index for span in self._spans if not span.refused for index in span.indices}
        refused = {index for span in self._spans if span.refused for index in span.indices}
        phrases = {index for refusal in self._refusals for index in refusal.words}
        return frozenset(self._gone | refused | (phrases - wanted))


def _runs(span: FacetSpan, indices: list[int]) -> list[FacetSpan]:
    """Return one span for each run of consecutive indices."""
    spans: list[FacetSpan] = []
    for index in indices:
        if spans and spans[-1].last == index - 1:
            spans[-1] = replace(spans[-1], last=index)
        else:
            spans.append(replace(span, first=index, last=index))
    return spans
