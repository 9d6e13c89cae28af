"""What the words of a question say by themselves, by rule: facets, sizes, counts, and where marks part them."""

import re
from collections import defaultdict
from collections.abc import Callable

from service.planner.fallback.reading.en import lists
from service.planner.fallback.reading.en.facets import facet_of
from service.planner.question import Question
from service.planner.shop import current
from service.planner.shop.lexicon import MOST_WORDS

_NUMBER = re.compile(r"^\d[\d./x-]*$")
_MEASURE = re.compile(
    r"^\d[\d./x-]*-?(?:" + "|".join(sorted(lists.SIZE_UNITS, key=len, reverse=True)) + r")\.?$|^\d+[\"']$"
)
_BREAK = re.compile(r"[.,;:?!()\[\]|]")
_MAX_LEAD_CHARACTERS = 200
_SIZES = lists.SIZES - {"s", "m", "l"}  # which may be part of a name
_SIZE_UNITS = lists.SIZE_UNITS - {"in", "m", "l"}


class Readings:
    """The words of a question; `facets` has what each mostly names, None where that is nothing known."""

    def __init__(self, question: Question, skipped: frozenset[str]) -> None:
        """Take `skipped`, words that name nothing."""
        self._question = question
        self._words = question.words
        texts = [word.text for word in self._words]
        self.facets = [None if text in skipped else facet_of(text) or None for text in texts]
        # A word by its index, empty outside the question. It and the next are asked at every step, so no call is ours.
        self.text: Callable[[int], str] = defaultdict(str, enumerate(texts)).__getitem__
        # Does neither punctuation nor the end of an utterance part a word from the next one?
        self.joined: Callable[[int], bool] = defaultdict(
            bool, enumerate(map(self._joins_next, range(len(texts))))
        ).__getitem__
        leads = [_lead_end(utterance) for utterance in question.utterances]
        # Words before those about the product: "i am looking for" and the like.
        self.lead_ins = frozenset(i for i, word in enumerate(self._words) if word.start < leads[word.utterance])
        self.numbers = frozenset(
            i for i, text in enumerate(texts) if text[0].isdigit() and _NUMBER.match(text)
        )  # or ranges
        self.values = [self._value_at(index) for index in range(len(texts))]

    def clause(self, index: int) -> range:
        """Return the words between the marks around a word."""
        first = last = index
        while first > 0 and self.joined(first - 1):
            first -= 1
        while self.joined(last):
            last += 1
        return range(first, last + 1)

    def said(self, indices: range) -> str:
        """Return words as text."""
        return " ".join(map(self.text, indices))

    def name_of_shop(self, index: int) -> tuple[str, int] | None:
        """Return facet and last word of a name of the shop that starts here, unless it only says what a thing is."""
        shop = current.lexicon()
        if shop is None:
            return None
        texts: list[str] = []
        for at in range(index, index + MOST_WORDS):
            texts.append(self.text(at))
            if not self.joined(at):
                break
        found = shop.longest(texts, 0)
        return (found[1].facet, index + found[0] - 1) if found and found[1].facet != "type" else None

    def _value_at(self, index: int) -> tuple[str, int] | None:
        """Return facet and last word of the count, size, color or material of several words that starts here."""
        word = self.text(index)
        if self._is_count(index):
            return "count", index + (2 if self.text(index + 1) == "of" else 1)
        if (last := self._size_end(index)) >= index:
            return "size", last
        for facet, modifiers in (("color", lists.COLOR_MODIFIERS), ("material", lists.MATERIAL_MODIFIERS)):
            if word in modifiers and self.joined(index) and self.facets[index + 1] == facet:
                return facet, index + 1
        return None

    def _is_count(self, index: int) -> bool:
        word, after = self.text(index), self.text(index + 1)
        if word in ("pack", "set") and after == "of":
            return index + 2 in self.numbers and self.joined(index) and self.joined(index + 1)
        return index in self.numbers and after in lists.COUNT_UNITS and self.joined(index)

    def _size_end(self, index: int) -> int:
        """Return the last word of a size that starts here, or -1."""
        word, after = self.text(index), self.text(index + 1)
        if index in self.numbers and after in _SIZE_UNITS and self.joined(index):
            return index + 1
        if word == "size" and self.joined(index) and (index + 1 in self.numbers or after in lists.SIZES):
            return index + 1
        return index if _MEASURE.match(word) or word in _SIZES else -1

    def _joins_next(self, index: int) -> bool:
        word = self._words[index]
        if index + 1 == len(self._words) or self._words[index + 1].utterance != word.utterance:
            return False
        between = self._question.utterances[word.utterance][word.end : self._words[index + 1].start]
        return not _BREAK.search(between)


def _lead_end(utterance: str) -> int:
    match = lists.LEAD_INS.search(utterance.lower()[:_MAX_LEAD_CHARACTERS])
    return match.end() if match else 0
