"""Plans by rule, in well under a millisecond: the service's answer when no model can answer in time.

It knows what words name by the list of product words (`spelling.words`) and the product by its place in the sentence.
Like the model it only ever names words of the question, and `queries.complete_plan` completes the plan of both.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from service.planner import fallback_words as lists
from service.planner.closed import Closed
from service.planner.plan import MAX_PARTS, Plan
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.queries import FUNCTION_WORDS, NAMING_FACETS, complete_plan
from service.planner.question import Question
from service.planner.spelling import correct, correct_word, is_known, words
from service.planner.vocabulary import DEFAULT_INTENT, Vocabulary

MAX_TYPE_WORDS = 3
_NUMBER = re.compile(r"^\d[\d./x-]*$")
_MEASURE = re.compile(
    r"^\d[\d./x-]*-?(?:" + "|".join(sorted(lists.SIZE_UNITS, key=len, reverse=True)) + r")\.?$|^\d+[\"']$"
)
_BREAK = re.compile(r"[.,;:?!()\[\]|]")
_MAX_LEAD_CHARACTERS = 200
_SKIPPED = lists.FILLERS | lists.LINKS | lists.NEGATIONS | FUNCTION_WORDS
_UNTELLING = _SKIPPED | lists.TALK | lists.QUESTION_VERBS
_SIZES_OF_TWO_WORDS = ("plus", "king", "queen", "full", "twin")
_BRANDS = frozenset(("brand", "line"))
_NAMES = frozenset((*NAMING_FACETS, "theme", "material"))
_LONG = 6  # words that a search query of a few words has not
_GOVERNED = {"with": "feature", "for": "audience"}
_ATTRIBUTES = frozenset(("brand", "color", "material", "feature", "occasion", "condition", "origin", "shape", "time"))


def fallback_plan(question: Question, vocabulary: Vocabulary) -> Plan:
    """Return the best plan that rules can make. Total: every question gets a valid one."""
    return complete_plan(fallback_draft(question, vocabulary), question, vocabulary)


def fallback_draft(question: Question, vocabulary: Vocabulary) -> PlanDraft:
    """Return the same plan as a draft, before search queries are derived from it."""
    text = question.text.lower().replace("’", "'")
    if _is_foreign(question):
        return PlanDraft("keyword", DEFAULT_INTENT, foreign=True)
    mode = "conversational" if lists.CONVERSATIONAL.search(text) else "keyword"
    closed = Closed(question)
    intent = _intent(question, text, mode, closed)
    draft = PlanDraft(mode, intent if intent in vocabulary.intents else DEFAULT_INTENT)
    if vocabulary.intents[draft.intent].products:
        if draft.intent == "ask_product":
            draft.sources = ["reviews", "qa"] if lists.REVIEW_QUESTION.search(text) else ["qa", "catalog"]
            draft.sources = [source for source in draft.sources if source in vocabulary.sources]
        spans = _Spans(question, draft.intent, closed)
        draft.spans = [span for span in spans.find() if span.facet in vocabulary.facets]
        draft.vertical = spans.vertical if spans.vertical in vocabulary.verticals else None
    return draft


def second_look(draft: PlanDraft, question: Question, vocabulary: Vocabulary) -> PlanDraft:
    """Return the draft of a model, or another one where rules are certain that it errs about what is asked.

    A shopper who names a brand or an order of theirs is never turned away; words of another language are no facets;
    a comparison has two things, and two things "side by side" are compared.
    """
    text = question.text.lower()
    if not draft.foreign and _is_foreign(question):
        return PlanDraft(draft.mode, DEFAULT_INTENT, foreign=True)
    if draft.intent == "out_of_scope":
        facets = [words().facets.get(word.text) for word in question.own_words if word.text not in _UNTELLING]
        brands = sum(facet in _BRANDS for facet in facets)  # one alone is often a name: "where was john denver born"
        asks = text.startswith(("how do i", "how to", "does ", "do ", "is ", "are ", "can ", "will "))
        if lists.STRONG_SUPPORT.search(text) or brands > 1 or (brands and (asks or "type" in facets)):
            rules = fallback_draft(question, vocabulary)
            return draft if rules.intent == "small_talk" else rules
    parts = len({span.part for span in draft.spans if span.part})
    if draft.intent == DEFAULT_INTENT and parts > 1 and lists.COMPARED.search(text) and not lists.TITLES.search(text):
        return replace(draft, intent="compare_products") if "compare_products" in vocabulary.intents else draft
    if draft.intent == "compare_products" and parts < 2 and draft.mode == "keyword" and len(question.utterances) == 1:
        return replace(draft, intent=DEFAULT_INTENT)
    return draft


def _is_foreign(question: Question) -> bool:
    """Tell whether the newest utterance is in another language: by its script, or by words that English lacks."""
    own = [word.text for word in question.own_words if any(character.isalpha() for character in word.text)]
    if not own:
        return False
    letters = "".join(own)
    if sum(character > "ʯ" and character.isalpha() for character in letters) * 2 > len(letters):
        return True
    foreign = sum(text in lists.FOREIGN for text in own)
    strange = sum(not text.isascii() or not is_known(text) for text in own if text not in lists.FOREIGN)
    accents = any(not text.isascii() and text not in words().counts for text in own)
    return foreign >= 1 and (foreign + strange) * 2 > len(own) and (foreign > 1 or strange > 0 or accents)


def _intent(question: Question, text: str, mode: str, closed: Closed) -> str:
    own = [word.text for word in question.own_words]
    is_follow_up = len(question.utterances) > 1
    if all(correct_word(word.strip("!?.,")) in lists.TALK for word in own) and not lists.SUPPORT_WORDS.search(text):
        return "small_talk"
    text = lists.SLOGAN.split(correct(lists.GREETING.sub("", text)))[0]
    facets = {word: words().facets.get(word) for word in own if word not in _UNTELLING}
    names_thing = mode == "keyword" and 1 < len(own) < _LONG and any(facets.get(word) == "type" for word in own[-2:])
    for intent, pattern in lists.SUPPORT_INTENTS:
        if pattern.search(text) and not (names_thing and not lists.STRONG_SUPPORT.search(text)):
            return intent
    if lists.OUT_OF_SCOPE.search(text) and not names_thing:
        return "out_of_scope"
    if lists.COMPARISON.search(text) and not lists.TITLES.search(text):
        return "compare_products"
    brands = not _BRANDS.isdisjoint(facets.values())
    said = closed.phrases[-1]
    if said.prices or said.offers or said.sort != "relevance":
        return DEFAULT_INTENT  # "which lamp is the cheapest" looks for it
    asks = bool(lists.ASKING.search(text))
    if not asks and not (lists.WISH.search(text) or (is_follow_up and lists.FOLLOW_UP.search(text))):
        asks = bool(lists.QUESTION_START.search(text)) or (text.endswith("?") and brands and len(own) > 1)
    advises = lists.ADVICE.search(text) and not is_follow_up and not (brands and asks)
    is_about_product = is_follow_up or not _NAMES.isdisjoint(facets.values()) or not all(map(_is_word, facets))
    if (asks or advises) and not is_about_product:
        return "out_of_scope"
    return "advise" if advises else "ask_product" if asks else DEFAULT_INTENT


def _is_word(text: str) -> bool:
    return text.replace("'", "").isalpha() and is_known(text)


class _Spans:
    """Finds facet spans. Every word belongs to at most one span; `taken` marks words that are already in one."""

    def __init__(self, question: Question, intent: str, closed: Closed) -> None:
        self._question = question
        self._intent = intent
        self._words = question.words
        self._newest = len(question.utterances) - 1
        self._is_said = bool(lists.CONVERSATIONAL.search(question.text.lower()))
        self._compares = intent == "compare_products"
        self._closed = closed
        asks = intent in ("ask_product", "advise")
        self._skipped = _SKIPPED | (lists.QUESTION_VERBS if intent != DEFAULT_INTENT else frozenset())
        refusing = () if asks else self._closed.refusals
        self._values = [value for refusal in refusing for value in refusal.values]
        refused = {index for value in self._values for index in value}
        cues = {index for refusal in refusing for index in refusal.words} - refused
        self._barred = self._closed.taken | cues
        self._refused = refused
        self._taken: dict[int, FacetSpan] = {}
        self._breaks = [self._breaks_after(index) for index in range(len(self._words))]
        self._facets = [self._facet(word.text) for word in self._words]
        self.vertical: str | None = None
        self._lead_ends: dict[int, int] = {}

    def find(self) -> list[FacetSpan]:
        """Return spans in question order, without overlaps."""
        for value in self._values:
            self._take(self._facets[value[-1]] or "feature", value[0], value[-1])
        for index in range(len(self._words)):
            if index not in self._taken and index not in self._barred:
                self._match(index)
        spans: list[FacetSpan] = []
        for utterance in range(self._newest + 1):
            now = self._of(utterance, is_first=not spans)
            spans = self._after(spans, now, self._question.utterances[utterance].lower()) if spans else now
        heads = [span for span in spans if span.facet == "type" and not span.refused]
        self.vertical = words().verticals.get(self._name(heads[-1].last)) if heads else None
        return sorted(spans, key=lambda span: span.first)

    def _of(self, utterance: int, *, is_first: bool) -> list[FacetSpan]:
        """Return the spans of one utterance, in parts where it names several things."""
        indices = [index for index, word in enumerate(self._words) if word.utterance == utterance]
        runs = list(self._runs(indices, utterance))
        things = self._things(indices) if utterance == self._newest else []
        free = [run for run in runs if not self._is_governed(run[0])]
        runs = free + [run for run in runs if run not in free and is_first and not self._is_said]
        for thing in things:
            for run in runs:
                if set(run) <= set(thing) and (self._compares or self._facets[run[-1]] == "type"):
                    self._take("type", run[0], run[-1])
        head = next(
            (run for run in runs if self._facets[run[-1]] == "type"),
            runs[0] if runs and is_first and not self._is_said else None,
        )
        if head and not things:
            self._take("type", max(head[0], head[-1] - MAX_TYPE_WORDS + 1), head[-1])
        elif runs and not things and self._intent == DEFAULT_INTENT and not is_first:
            is_name = not any(is_known(self._text(index)) for index in runs[0])
            self._take("brand" if is_name else "feature", runs[0][0], runs[0][-1])
        for index in indices:
            self._match_phrase(index)
            if (
                not is_first
                and index not in self._taken
                and index not in self._barred
                and _NUMBER.match(self._name(index))
            ):
                self._take("size", index, index)  # "what about 75?"
        self._merge(indices)
        spans = sorted({span for index, span in self._taken.items() if index in indices}, key=lambda span: span.first)
        return [replace(span, part=self._part(span, things)) for span in spans]

    def _join(self, left: FacetSpan, right: FacetSpan) -> None:
        if left.facet in ("brand", "color", "material", "audience") and left.refused == right.refused:
            span = replace(left, last=right.last)
            self._taken.update(dict.fromkeys(range(span.first, span.last + 1), span))

    def _part(self, span: FacetSpan, things: list[list[int]]) -> int:
        """Return the part that a span belongs to; what a comparison says after its last thing is for all of them."""
        if not things or (self._compares and span.first > things[-1][-1]):
            return 0
        return max(1, sum(span.first >= thing[0] for thing in things))

    def _merge(self, indices: list[int]) -> None:
        """Make one value of adjacent words of one facet: "brushed nickel", "agatha christie"."""
        for index in indices[1:]:
            left, right = self._taken.get(index - 1), self._taken.get(index)
            if left and right and left != right and left.facet == right.facet and self._joined(index - 1):
                self._join(left, right)

    def _runs(self, indices: list[int], utterance: int) -> Iterator[list[int]]:
        """Yield runs of words that may be a thing's name: content words between function words, marks and facets."""
        start = self._after_lead_in(utterance)
        self._lead_ends[utterance] = next(
            (i for i in indices if self._words[i].start >= start), indices[-1] + 1 if indices else 0
        )
        run: list[int] = []
        for index in indices:
            if self._words[index].start >= start and self._is_content(index):
                run.append(index)
            elif run:
                yield run
                run = []
            if run and self._breaks[index]:
                yield run
                run = []
        if run:
            yield run

    def _is_governed(self, index: int) -> bool:
        """Tell whether a preposition governs a word: "with a timer" describes a thing and names none."""
        first = self._lead_ends[self._words[index].utterance]
        if self._compares and self._text(index) in lists.COMPARING:
            return False
        while index > first and self._joined(index - 1):
            index -= 1
            if self._text(index) in lists.GOVERNORS:
                return True
            if self._text(index) in lists.JOINS or (self._compares and self._text(index) in lists.COMPARING):
                return False
        return False

    def _things(self, indices: list[int]) -> list[list[int]]:
        """Return the words of each of several things, or of what is compared; none where it is one thing."""
        if self._intent not in (DEFAULT_INTENT, "compare_products"):
            return []
        things: list[list[int]] = []
        for side in self._sides(indices):
            thing = [index for index in side if not self._is_governed(index)]
            names = [index for index in thing if index not in self._taken]
            is_named = self._compares or (bool(names) and self._facets[names[-1]] == "type")
            is_named |= bool(things and names) and self._text(side[0] - 1) in ("a", "an", "some")
            if things and not self._compares and self._continues(things[-1], side, thing, is_named):
                continue
            if not is_named:
                return []
            things += [thing] if thing else []
        return things[:MAX_PARTS] if len(things) > 1 else []

    def _sides(self, indices: list[int]) -> list[list[int]]:
        """Return the words that carry meaning between words that join."""
        joins = lists.JOINS | lists.COMPARING if self._compares else lists.JOINS
        sides: list[list[int]] = [[]]
        for index in indices:
            if self._name(index) in joins and index >= self._lead_ends[self._words[index].utterance]:
                sides.append([])
            elif self._is_free(index):
                sides[-1].append(index)
            if self._breaks[index]:
                sides.append([])
        return [side for side in sides if side]

    def _continues(self, before: list[int], side: list[int], thing: list[int], is_named: bool) -> bool:
        """Tell whether a side only says more of the thing before it, or makes one thing of two names.

        "For school and weekend travel", "salt and pepper grinder", "mop and bucket set".
        """
        if not thing or all(index in self._taken for index in thing):
            return True
        if self._text(side[0] - 1) in lists.ARTICLES:
            return False
        pair = (self._name(before[-1]), self._name(thing[0]))
        governs = any(self._name(index) in lists.GOVERNORS for index in range(before[-1], side[0]))
        return (governs and not is_named) or pair in words().joined or self._name(thing[-1]) in lists.SETS

    def _after(self, before: list[FacetSpan], now: list[FacetSpan], text: str) -> list[FacetSpan]:
        """Return the spans that stand after an utterance: it starts afresh, or changes what it names."""
        lifted = {facet for facet, pattern in lists.LIFTS.items() if pattern.search(text)}
        before = [span for span in before if span.facet not in lifted]
        wanted = [span for span in now if not span.refused]
        names = [span for span in wanted if span.facet in ("type", "line", "model")]
        if self._compares and names and not any(span.part for span in now):
            return [replace(span, part=1) for span in before] + [replace(span, part=2) for span in now]
        if self._intent == "ask_product":
            return now if any(span.facet == "brand" for span in now) else before
        if names:
            return now
        if lists.ADDED.search(text):
            return before + now
        now = [self._like_before(span, before) for span in now]
        replaced = {span.facet for span in now if not span.refused and span.facet != "feature"}
        refused = {self._text_of(span) for span in now if span.refused}
        kept = [span for span in before if span.facet not in replaced and self._text_of(span) not in refused]
        return kept + now

    def _like_before(self, span: FacetSpan, before: list[FacetSpan]) -> FacetSpan:
        """Give a lone word the facet of what it replaces: "what about 75?" after "65 inch"."""
        is_number = bool(_NUMBER.match(self._name(span.first)))
        if is_number and span.facet != "size" and any(old.facet == "size" for old in before):
            return replace(span, facet="size")
        return span

    def _text_of(self, span: FacetSpan) -> str:
        return " ".join(word.text for word in self._words[span.first : span.last + 1])

    def _name(self, index: int) -> str:
        return self._words[index].text

    def _facet(self, word: str) -> str | None:
        """Return the facet that a word mostly names, its spelling corrected."""
        if word in _SKIPPED:
            return None
        for facet, vocabulary in _WORDS_OF_FACETS:
            if word in vocabulary:
                return facet
        facets = words().facets
        found = facets.get(word) or facets.get(correct_word(word))
        return found or facets.get(word.removesuffix("s")) if word.isalpha() else None

    def _match(self, index: int) -> None:
        word, facet = self._text(index), self._facets[index]
        if facet is None and not word[:1].isdigit() and word not in _STARTS:
            return
        if self._is_count(index):
            self._take("count", index, index + (2 if self._text(index + 1) == "of" else 1))
        elif (last := self._size_end(index)) >= index:
            self._take("size", index, last)
        elif word in lists.COLOR_MODIFIERS and self._facets_at(index + 1) == "color" and self._joined(index):
            self._take("color", index, index + 1)
        elif word in lists.MATERIAL_MODIFIERS and self._facets_at(index + 1) == "material" and self._joined(index):
            self._take("material", index, index + 1)
        elif (
            facet in _ATTRIBUTES and (facet not in ("feature", "origin") or not self._is_last(index))
        ) or facet == "audience":
            self._take(facet, index, index)

    def _is_last(self, index: int) -> bool:
        """Tell whether nothing follows that this word could describe: then it may be the thing's own name."""
        return self._facet_is_free(index + 1) is False and index > 0 and self._words[index].text not in lists.FEATURES

    def _facet_is_free(self, index: int) -> bool:
        return bool(self._text(index)) and self._joined(index - 1) and self._text(index) not in self._skipped

    def _match_phrase(self, index: int) -> None:
        """Match "with pockets", "for dogs": a preposition and the one or two free words it governs."""
        facet = _GOVERNED.get(self._text(index))
        if not facet or not self._joined(index) or index < self._lead_ends[self._words[index].utterance]:
            return
        first = index + 1
        while self._text(first) in lists.ARTICLES and self._joined(first):
            first += 1
        last = first - 1
        while last < first + 1 and self._is_content(last + 1) and (last < first or self._joined(last)):
            last += 1
        if last >= first:
            self._take(facet, first, last)

    def _is_free(self, index: int) -> bool:
        return bool(self._text(index)) and self._text(index) not in self._skipped and index not in self._barred

    def _is_content(self, index: int) -> bool:
        word = self._text(index)
        if not self._is_free(index) or index in self._taken:
            return False
        is_number = bool(_NUMBER.match(word))
        return not is_number or (index > 0 and self._is_content(index - 1) and self._joined(index - 1))

    def _is_count(self, index: int) -> bool:
        word, after = self._text(index), self._text(index + 1)
        if word in ("pack", "set") and after == "of":
            return bool(_NUMBER.match(self._text(index + 2))) and self._joined(index, 2)
        return bool(_NUMBER.match(word)) and after in lists.COUNT_UNITS and self._joined(index)

    def _size_end(self, index: int) -> int:
        """Return the last word of a size that starts here, or -1."""
        word, after = self._text(index), self._text(index + 1)
        if _NUMBER.match(word) and after in lists.SIZE_UNITS - {"in", "m", "l"} and self._joined(index):
            return index + 1
        if word == "size" and self._joined(index) and (_NUMBER.match(after) or after in lists.SIZES):
            return index + 1
        if word in _SIZES_OF_TWO_WORDS and after == "size":
            return index + 1
        if _MEASURE.match(word):
            return index
        is_alone = word in ("s", "m", "l") and (self._newest > 0 or index == len(self._words) - 1)
        return index if is_alone or word in lists.SIZES - {"s", "m", "l"} else -1

    def _after_lead_in(self, utterance: int) -> int:
        """Return where the words about the product start: after "i am looking for" and the like."""
        text = self._question.utterances[utterance].lower()[:_MAX_LEAD_CHARACTERS]
        match = lists.LEAD_INS.search(text)
        return match.end() if match else 0

    def _take(self, facet: str, first: int, last: int) -> None:
        """Mark words as taken by a facet, unless some are already."""
        if any(index in self._taken or index in self._barred for index in range(first, last + 1)):
            return
        span = FacetSpan(facet, first, last, refused=first in self._refused)
        self._taken.update(dict.fromkeys(range(first, last + 1), span))

    def _facets_at(self, index: int) -> str | None:
        return self._facets[index] if index < len(self._facets) else None

    def _text(self, index: int) -> str:
        return self._words[index].text if 0 <= index < len(self._words) else ""

    def _joined(self, index: int, count: int = 1) -> bool:
        """Tell whether no punctuation and no utterance end separates this word from the `count` words after it."""
        return not any(self._breaks[index : index + count])

    def _breaks_after(self, index: int) -> bool:
        word = self._words[index]
        if index + 1 == len(self._words) or self._words[index + 1].utterance != word.utterance:
            return True
        between = self._question.utterances[word.utterance][word.end : self._words[index + 1].start]
        return bool(_BREAK.search(between))


_WORDS_OF_FACETS = (
    ("color", lists.COLORS),
    ("material", lists.MATERIALS),
    ("audience", lists.AUDIENCES),
    ("condition", lists.CONDITIONS),
    ("occasion", lists.OCCASIONS),
    ("feature", lists.FEATURES),
)
_STARTS = lists.SIZES | lists.COLOR_MODIFIERS | lists.MATERIAL_MODIFIERS | {"pack", "set", "size", *_SIZES_OF_TWO_WORDS}
