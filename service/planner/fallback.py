"""Plans by rule, in well under a millisecond: the service's answer when no model can answer in time.

It knows facets by small word lists and the product by its place in the sentence. Like the model it only ever names
words of the question, and `queries.complete_plan` completes the plan of both.
"""

import re

from service.planner import fallback_words as lists
from service.planner.plan import Plan
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.queries import FUNCTION_WORDS, complete_plan
from service.planner.question import Question, Word
from service.planner.vocabulary import Vocabulary

MAX_TYPE_WORDS = 2
_NUMBER = re.compile(r"^\d[\d./x-]*$")
_MEASURE = re.compile(
    r"^\d[\d./x-]*-?(?:" + "|".join(sorted(lists.SIZE_UNITS, key=len, reverse=True)) + r")\.?$|^\d+\"$"
)
_MONEY = re.compile(r"^[$£€¥]|^(?:dollars?|bucks?|usd|price[ds]?|budget|cheap(?:er)?)$")
_BREAK = re.compile(r"[.,;:?!()\[\]|]")
_MAX_LEAD_CHARACTERS = 200
_LONGEST_WISH = 3  # in words
_MAX_PHRASE_WORDS = 2
_SKIPPED = lists.FILLERS | lists.LINKS | lists.NEGATIONS | FUNCTION_WORDS
_SIZES_OF_TWO_WORDS = ("plus", "king", "queen", "full", "twin")
_PREPOSITIONS = {"with": "feature", "for": "feature", "without": "condition"}


def fallback_plan(question: Question, vocabulary: Vocabulary) -> Plan:
    """Return the best plan that rules can make. Total: every question gets a valid one."""
    return complete_plan(fallback_draft(question), question, vocabulary)


def fallback_draft(question: Question) -> PlanDraft:
    """Return the same plan as a draft, before search queries are derived from it."""
    text = question.text.lower().replace("’", "'")
    mode = "conversational" if lists.CONVERSATIONAL.search(text) else "keyword"
    for intent, pattern in lists.SUPPORT_INTENTS:
        if pattern.search(text):
            return PlanDraft(mode, intent)
    draft = PlanDraft(mode, "find_product")
    if _asks_about_product(question, text):
        draft.intent = "ask_product"
        draft.sources = ["reviews", "qa"] if lists.REVIEW_QUESTION.search(text) else ["catalog", "qa"]
    draft.spans = _Spans(question, _SKIPPED | (lists.QUESTION_VERBS if draft.intent == "ask_product" else set())).find()
    return draft


def _asks_about_product(question: Question, text: str) -> bool:
    """Tell a question about one thing ("does it fit a 15 inch laptop?") from a search ("do you have ...")."""
    if lists.WISH.search(text) or (len(question.utterances) > 1 and lists.FOLLOW_UP.search(text)):
        return False
    if text.endswith("?"):
        return True
    is_long_enough = len(question.own_words) > _LONGEST_WISH
    return bool(lists.QUESTION_START.search(text)) and (is_long_enough or bool(lists.PRODUCT_REFERENCE.search(text)))


class _Spans:
    """Finds facet spans. Every word belongs to at most one span; `taken` marks words that are already in one."""

    def __init__(self, question: Question, skipped: frozenset[str]) -> None:
        """Take `skipped`, the words that are part of no product's name."""
        self._question = question
        self._skipped = skipped
        self._words = question.words
        self._taken: dict[int, FacetSpan] = {}
        self._breaks = [self._breaks_after(index) for index in range(len(self._words))]

    def find(self) -> list[FacetSpan]:
        """Return spans in question order, without overlaps; the newest utterance that names a product decides it."""
        for index in range(len(self._words)):
            if index not in self._taken:
                self._match(index)
        newest = len(self._question.utterances) - 1
        for utterance in range(newest, -1, -1):
            if self._find_type(utterance):
                break
        for index in range(len(self._words)):
            self._match_phrase(index)
        spans = sorted(set(self._taken.values()), key=lambda span: span.first)
        return self._without_outdated(spans)

    def _match(self, index: int) -> None:
        if self._words[index].text not in _CUES and not self._text(index)[:1].isdigit():  # true of most words
            return
        word, after = self._text(index), self._text(index + 1)
        before = self._text(index - 1)
        if word in lists.COLORS or (word in lists.COLOR_MODIFIERS and after in lists.COLORS and self._joined(index)):
            self._take("color", index, self._run(index, lists.COLORS))
        elif word in lists.MATERIALS or (word in lists.MATERIAL_MODIFIERS and after in lists.MATERIALS):
            self._take("material", index, self._run(index, lists.MATERIALS))
        elif word in lists.AUDIENCES:
            self._take("audience", index - 1 if before == "for" else index, self._run(index, lists.AUDIENCES))
        elif self._is_count(index):
            self._take("count", index, index + (2 if word in ("pack", "set") else 1))
        elif (last := self._size_end(index)) >= index:
            self._take("size", index, last)
        else:
            for facet, vocabulary in _SINGLE_WORDS:
                if word in vocabulary:
                    self._take(facet, index, index)

    def _match_phrase(self, index: int) -> None:
        """Match "with pockets", "for dogs", "without lid": a preposition and the one or two free words it governs."""
        facet = _PREPOSITIONS.get(self._text(index))
        last = index
        while facet and last < index + _MAX_PHRASE_WORDS and self._joined(last) and self._is_content(last + 1):
            last += 1
        if facet and last > index:
            self._take(facet, index, last)

    def _is_content(self, index: int) -> bool:
        word = self._text(index)
        is_free = bool(word) and word not in self._skipped and index not in self._taken
        return is_free and not _MONEY.match(word) and not _NUMBER.match(word)

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
        return self._run(index, lists.SIZES) if word in lists.SIZES - {"s", "m", "l"} else -1

    def _find_type(self, utterance: int) -> bool:
        """Find the product's name: the last words of the first run of words that no other span has taken."""
        indices = [index for index, word in enumerate(self._words) if word.utterance == utterance]
        start = self._after_lead_in(utterance)
        run: list[int] = []
        for index in indices:
            if self._words[index].start >= start and self._is_content(index):
                run.append(index)
            elif run:
                break
            if run and self._breaks[index]:
                break
        if run:
            self._take("type", max(run[0], run[-1] - MAX_TYPE_WORDS + 1), run[-1])
        return bool(run)

    def _after_lead_in(self, utterance: int) -> int:
        """Return where the words about the product start: after "i am looking for" and the like."""
        text = self._question.utterances[utterance].lower()[:_MAX_LEAD_CHARACTERS]
        match = lists.LEAD_INS.search(text)
        return match.end() if match else 0

    def _without_outdated(self, spans: list[FacetSpan]) -> list[FacetSpan]:
        """Drop what a later utterance replaces: after "red shoes", "what about in blue" leaves no red."""
        newest = {span.facet: self._words[span.first].utterance for span in spans}
        return [span for span in spans if self._words[span.first].utterance == newest[span.facet]]

    def _take(self, facet: str, first: int, last: int) -> None:
        """Mark words as taken; a negation right before them belongs to the value ("not leather")."""
        if first > 0 and self._text(first - 1) in lists.NEGATIONS and self._joined(first - 1):
            first -= 1
        if any(index in self._taken for index in range(first, last + 1)):
            return
        span = FacetSpan(facet, first, last)
        self._taken.update(dict.fromkeys(range(first, last + 1), span))

    def _run(self, index: int, vocabulary: frozenset[str]) -> int:
        """Return the last index of the joined words from here that are in the vocabulary; the first always counts."""
        while self._text(index + 1) in vocabulary and self._joined(index):
            index += 1
        return index

    def _text(self, index: int) -> str:
        return self._words[index].text if 0 <= index < len(self._words) else ""

    def _joined(self, index: int, count: int = 1) -> bool:
        """Tell whether no punctuation and no utterance end separates this word from the `count` words after it."""
        return not any(self._breaks[index : index + count])

    def _breaks_after(self, index: int) -> bool:
        word: Word = self._words[index]
        if index + 1 == len(self._words) or self._words[index + 1].utterance != word.utterance:
            return True
        between = self._question.utterances[word.utterance][word.end : self._words[index + 1].start]
        return bool(_BREAK.search(between))


# First words of spans that are found by their words, numbers aside.
_CUES = frozenset().union(
    lists.COLORS, lists.COLOR_MODIFIERS, lists.MATERIALS, lists.MATERIAL_MODIFIERS, lists.AUDIENCES, lists.SIZES,
    lists.CONDITIONS, lists.OCCASIONS, lists.FEATURES, ("pack", "set", "size", *_SIZES_OF_TWO_WORDS),
)  # fmt: skip
_SINGLE_WORDS = (
    ("condition", lists.CONDITIONS),
    ("occasion", lists.OCCASIONS),
    ("feature", lists.FEATURES),
)
