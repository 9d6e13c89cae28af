"""What the newest utterance of a conversation changes, by rules, where the model's spans alone do not tell.

"Actually make it a 9" wants another number and names nothing "make it a 9"; "remove the logo" takes a wish back; "same
but in walnut" replaces the oak of before, whatever the model took it for. All other words of a topic still stand.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import Final

from service.planner.fallback.reading.conversation import Conversation, Refused
from service.planner.fallback.reading.en import lists
from service.planner.fallback.reading.en.data import PHRASES
from service.planner.fallback.reading.en.facets import KIND_OF, KINDS, facet_of
from service.planner.fallback.reading.en.turns import Turn
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Word
from service.planner.spelling import is_known
from service.planner.vocabulary import DEFAULT_INTENT, NAMING_FACETS

# Facets of which a thing has one value: a later one replaces it, unless it is added.
REPLACED: Final = frozenset(("brand", "line", "model", "color", "size", "material", "count", "audience", "condition"))
_TURNS = PHRASES.words("word.turns")  # words that turn a conversation; those before a wish are no part of it
_LEADS = _TURNS | PHRASES.words("word.turn.leads")  # words that lead on from there: "make it a"
_BESIDE = (
    _LEADS | lists.FUNCTION_WORDS | lists.FILLERS | lists.TALK | lists.NEGATIONS
)  # words that say nothing of a thing
_UNITS = lists.SIZE_UNITS | lists.COUNT_UNITS | PHRASES.words("word.units")
_LABELS = frozenset(("size", "sizes", "sz", "age", "aged", "us", "uk"))
_DIGITS = re.compile(r"\d+(?:[.,/]\d+)*")
_NUMBER = re.compile(r".*\d")
_DECLINES = frozenset(("nah", "nope", "make", "change", "switch"))  # not what follows: "nah black", "no make it black"
_MOST_WISHES = 3  # words of a wish that the model did not label; more tell a story
_LONGEST_KEYWORDS = 8  # words of an utterance that names a thing and tells no story


class FollowUp:
    """The newest utterance against those before it; nothing changes where there are none."""

    def __init__(
        self,
        conversation: Conversation,
        turn: Turn,
        draft: PlanDraft,
        refusals: Sequence[Refused],
        facets: Collection[str],
    ) -> None:
        """Take the newest `turn`, the `refusals` that hold in the draft's plan, and the vocabulary's facets."""
        question = conversation.question
        self._question = question
        self._words = question.words
        self._taken = conversation.taken
        self._turn = turn
        self._draft = draft
        self._refusals = refusals
        self._facets = facets
        self._newest = len(question.utterances) - 1
        self._before = [i for i, word in enumerate(self._words) if word.utterance < self._newest]
        self._own = [i for i, word in enumerate(self._words) if word.utterance == self._newest and self._newest]
        # May the newest utterance change what one thing is to be?
        is_search, is_one = draft.intent == DEFAULT_INTENT, not any(span.part for span in draft.spans)
        self._turns = bool(self._newest) and is_search and is_one

    @cached_property
    def gone(self) -> frozenset[int]:
        """The words that count no more: of before, and of the newest utterance where it only takes some back."""
        if not self._turns:
            return frozenset()
        own = [refusal for refusal in self._refusals if self._words[refusal.words.start].utterance == self._newest]
        refused = self._refused({self._words[i].text for refusal in own for value in refusal.values for i in value})
        if own:
            return refused
        lifted = self._turn.lifted
        back = {index for index in self._before if lifted and facet_of(self._words[index].text) in lifted}
        return refused.union(back, self._taken_back(), self._outdone)

    def settled(self, spans: list[FacetSpan], told: Collection[int]) -> list[FacetSpan]:
        """Return what the spans say after the newest utterance; `told` are the words of refusals."""
        if self._turns:
            spans = self._without_leads(spans)
            spans += self._wishes(spans, told)
        return self._unreplaced(spans)

    def _unreplaced(self, spans: list[FacetSpan]) -> list[FacetSpan]:
        """Return the spans without those of the history that the newest utterance replaces: "what about blue?"."""
        if self._draft.intent != DEFAULT_INTENT or any(span.part for span in spans):
            return spans
        newest = [s for s in spans if self._words[s.first].utterance == self._newest and not s.refused]
        replaced = {span.facet for span in newest} & (REPLACED | {"type"} if self._turn.is_other_thing else REPLACED)
        heads = {self._head(span) for span in newest} - {""}
        stay = frozenset(newest)
        return [s for s in spans if s in stay or s.refused or (s.facet not in replaced and self._head(s) not in heads)]

    def _head(self, span: FacetSpan) -> str:
        """Return the last word of a description of several: a "regular fit" replaces a "slim fit"."""
        is_name = span.facet in NAMING_FACETS or span.first == span.last
        return "" if is_name else self._words[span.last].text

    def _refused(self, texts: Collection[str]) -> frozenset[int]:
        """Return the words of before that the newest utterance refuses: "freestanding, not integrated"."""
        refused = set(texts) - lists.FUNCTION_WORDS
        return frozenset(index for index in self._before if self._words[index].text in refused)

    def _without_leads(self, spans: Sequence[FacetSpan]) -> list[FacetSpan]:
        """Return spans of which those of the newest utterance begin with what is wanted, and have its facet.

        A single word that the word list knows as another facet, which a span of before has, is of that facet: "what
        about lg" is no size.
        """
        before = {span.facet for span in spans if span.first not in self._own}
        kept = (
            span for span in spans if span.refused or span.first in self._own or span.facet not in self._turn.lifted
        )
        turned = (self._led(span, before) if span.first in self._own else span for span in kept)
        return [span for span in turned if span is not None]

    def _led(self, span: FacetSpan, before: set[str]) -> FacetSpan | None:
        texts = [self._words[index].text for index in span.indices]
        if span.refused and texts[0] not in _DECLINES:
            return span
        if _LEADS.issuperset(texts):
            return None
        lead = 0
        while texts[lead] in _LEADS:
            lead += 1
        first = span.first + lead if not _TURNS.isdisjoint(texts[:lead]) else span.first
        is_number = texts[-1][0].isdigit() and bool(self._outdone)
        facet = "size" if is_number else facet_of(texts[-1])
        is_other = facet in REPLACED and facet in self._facets and (facet in KINDS or facet in before)
        facet = facet if is_other and first == span.last else span.facet
        is_same = (first, facet, False) == (span.first, span.facet, span.refused)
        return span if is_same else replace(span, first=first, facet=facet, refused=False)

    def _wishes(self, spans: Sequence[FacetSpan], told: Collection[int]) -> list[FacetSpan]:
        """Return spans of what the newest utterance wants and the model did not label: "she's in a 5 now".

        Words that are gone, or come with or after words of a refusal, `told`, say something else.
        """
        if self._turn.lifted or self._taken_back():
            return []  # it only takes something back
        if lists.QUESTION_START.search(self._question.text.lower()):
            return []
        named = {index for span in spans for index in span.indices} | self.gone | self._taken
        refusal = min((i for i in self._own if i in told), default=len(self._words))
        free = [i for i in self._own if i not in named and i < refusal and self._words[i].text not in _BESIDE]
        outdoes = [i for i in free if _NUMBER.match(self._words[i].text) and self._outdone]
        wants = any(span.first in self._own and not span.refused for span in spans)
        is_priced = bool(self._taken) and any(self._words[i].text.isdigit() for i in free)  # it may be another price
        if wants or is_priced or len(free) > _MOST_WISHES or not self._taken.isdisjoint(self._own):
            free = [i for i in free if KIND_OF.get(self._words[i].text, "") or i in outdoes]
        runs = [[i for _, i in run] for _, run in groupby(enumerate(free), key=lambda pair: pair[1] - pair[0])]
        found = (FacetSpan(self._wished(run), run[0], run[-1]) for run in runs)
        return [span for span in found if span.facet in self._facets]

    def _wished(self, run: Sequence[int]) -> str:
        texts = [self._words[index].text for index in run]
        if any(text[0].isdigit() for text in texts):
            return "size"
        facet = facet_of(texts[-1])
        return facet if facet in REPLACED else "feature"

    def standing(self, spans: Sequence[FacetSpan], first: int, cut: frozenset[int]) -> list[int]:
        """Return the words of before, from utterance `first` on, that still stand and that no span has.

        `cut` are words that count no more. A value is out where a later utterance wants another of its facet.
        """
        if not self._turns:
            return []
        named = {index for span in spans for index in span.indices} | cut
        later = {(span.facet, self._words[span.first].utterance) for span in spans if not span.refused}
        cut_texts = {self._words[index].text for index in cut if self._words[index].utterance > first}
        numbers = [i for i in self._own if _NUMBER.match(self._words[i].text) and i not in self._taken]
        # Where nothing is surely replaced, a new number may stand for any of its unit.
        units = set() if self._outdone else {self._unit(i) for i in numbers}
        kinds = {(KIND_OF.get(word.text, ""), word.utterance) for word in self._words}
        found = []
        for index in self._before:
            word = self._words[index]
            facet = KIND_OF.get(word.text, "") or ("brand" if facet_of(word.text) == "brand" else "")
            if (
                word.utterance >= first
                and index not in named
                and word.text not in lists.UNSEARCHED | cut_texts
                and word.text[0].isalnum()
                and not (_NUMBER.match(word.text) and self._unit(index) in units)
                and not any(utterance > word.utterance and self._is_out(word, facet, w) for w, utterance in later)
                and not (facet and any(utterance > word.utterance and kind == facet for kind, utterance in kinds))
                and self._is_keywords(word.utterance)
            ):
                found.append(index)
        return [i for i in found if self._words[i].text not in _LABELS or i + 1 in found]

    def _is_out(self, word: Word, facet: str, wanted: str) -> bool:
        """Tell whether a later value of the `wanted` facet replaces a word: an unknown one may have been the brand."""
        return wanted == facet or (wanted == "brand" and not is_known(word.text))

    def _is_keywords(self, utterance: int) -> bool:
        text = self._question.utterances[utterance].lower()
        return len(text.split()) <= _LONGEST_KEYWORDS and not lists.CONVERSATIONAL.search(text)

    def _taken_back(self) -> frozenset[int]:
        """Return the words of before that are taken back, and those that say so."""
        if self._turn.back is None:
            return frozenset()
        saying = [index for index in self._own if self._words[index].end > self._turn.saying]
        back = {self._words[index].text for index in self._own if self._words[index].start >= self._turn.back[0]}
        before = {index: self._words[index].text for index in self._before}
        if not back <= set(before.values()) or back.issuperset(set(before.values()) - lists.FUNCTION_WORDS):
            return frozenset()
        return frozenset((*saying, *(index for index, text in before.items() if text in back)))

    @cached_property
    def _outdone(self) -> frozenset[int]:
        """Return the words of before that another value of their kind replaces.

        A number with a unit replaces the only one of that unit. Where nothing else is said, a bare number replaces the
        only number, and a color or a material those of before.
        """
        words = self._words
        said = [i for i in self._own if i not in self._taken and words[i].text not in _BESIDE]
        before = [i for i in self._before if i not in self._taken]
        for texts in KINDS.values():
            if said and all(words[i].text in texts for i in said):
                return frozenset(i for i in before if words[i].text in texts)
        numbers = [i for i in said if _NUMBER.match(words[i].text)]
        if len(numbers) != 1:
            return frozenset()
        others = [i for i in before if _NUMBER.match(words[i].text)]
        unit = self._unit(numbers[0], [self._after(i) for i in others])
        if unit:
            others = [i for i in others if self._unit(i, [unit]) == unit]
        elif self._taken or not set(said) <= set(self._measure(numbers[0])):
            return frozenset()  # beside a price, a bare number may be another price
        elif len(others) > 1:
            others = [i for i in others if i and self._words[i - 1].text in _LABELS]
        return frozenset(self._measure(others[0], unit)) if len(others) == 1 else frozenset()

    def _unit(self, index: int, others: Collection[str] = ()) -> str:
        """Return the unit of a number in the singular, empty for none; what follows another number is one too."""
        text = self._words[index].text
        attached = _DIGITS.sub("", text).strip("-\"'”’.")  # "5w30" and "5w40" are alike
        after = self._after(index)
        return attached.removesuffix("s") or (after.removesuffix("s") if after in _UNITS or after in others else "")

    def _after(self, index: int) -> str:
        word, following = self._words[index], self._words[index + 1 : index + 2]
        return following[0].text if following and following[0].utterance == word.utterance else ""

    def _measure(self, index: int, unit: str = "") -> Iterator[int]:
        """Yield a number with its label and unit: "size 8", "65 inch", "5 year old"."""
        if index and self._after(index - 1) and self._words[index - 1].text in _LABELS:
            yield index - 1
        yield index
        after = self._after(index)
        if after and (after in _UNITS or after.removesuffix("s") == unit):
            yield index + 1
