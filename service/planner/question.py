"""A shopper's question as words, with their positions in the text."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

# Limits on the model's input. They keep the prompt, and therefore the prefill, short: a plan must fit 300 ms.
MAX_QUESTION_WORDS = 96
MAX_HISTORY_WORDS = 96
MAX_WORD_CHARACTERS = 48
# Letters and digits, with what stands inside a number ("1,200.50") or a word ("men's"); other marks are tokens each.
TOKEN: Final = re.compile(r"[^\W_]+(?:(?:(?<=\d)[.,](?=\d)|['’](?=[^\W\d_]))[^\W_]+)*|[^\w\s]|_")
# Limits on what is read. A word without a space in it ("$1$1$1…") may be many tokens, and each takes its time.
MAX_QUESTION_TOKENS = 96
MAX_HISTORY_TOKENS = 112
ORDINARY_TOKENS = 48  # more than any question that people wrote for us has, its history included

_SUBTAGS = re.compile("[-_]")
_TRAILING = ",;:?!"
_OPENING = "\"'([{“‘"
_CLOSING = "\"')]}”’"
_LONG_ENOUGH_TO_END_A_SENTENCE = 4


class Word(NamedTuple):
    """One word: `text` as the model sees it, [start, end) where it stands in utterance number `utterance`."""

    text: str
    utterance: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Question:
    """The newest utterance and the kept part of the history, oldest first.

    `utterances` are cleaned texts, the question last; `words` runs over all of them in order. All utterances together
    have at most MAX_QUESTION_TOKENS + MAX_HISTORY_TOKENS tokens, so that reading them has a known worst cost.
    `locale` is the BCP 47 tag that came with them, empty for none.
    """

    utterances: tuple[str, ...]
    words: tuple[Word, ...]
    locale: str = ""

    @property
    def text(self) -> str:
        return self.utterances[-1]

    @property
    def language(self) -> str | None:
        """The language of the locale, ISO 639-1: "es" of "es-MX"; None without a locale."""
        return _SUBTAGS.split(self.locale)[0].lower() or None if self.locale else None

    @property
    def own_words(self) -> tuple[Word, ...]:
        return tuple(word for word in self.words if word.utterance == len(self.utterances) - 1)

    def surface(self, first: int, last: int) -> str:
        """Return the text of words `first` to `last` (inclusive, same utterance) exactly as the shopper wrote it."""
        return self.utterances[self.words[first].utterance][self.words[first].start : self.words[last].end]

    def spelled(self, indices: Iterable[int]) -> str:
        """Return words as the model sees them, each once, in the question's order."""
        return " ".join(self.words[index].text for index in sorted(set(indices)))

    @property
    def weight(self) -> int:
        """How many ordinary questions this one is worth of a caller's rate: reading costs time for each token."""
        if sum(map(len, self.utterances)) <= ORDINARY_TOKENS:  # a token has a character at least
            return 1
        tokens = sum(1 for utterance in self.utterances for _ in TOKEN.finditer(utterance))
        return max(1, -(-tokens // ORDINARY_TOKENS))

    @property
    def brief(self) -> "Question":
        """The newest utterance, as far as an ordinary question goes, without what was said before: its weight is 1."""
        return Question.parse(self.text[: _end_of_token(self.text, ORDINARY_TOKENS)], (), self.locale)

    @classmethod
    def parse(cls, query: str, history: Sequence[str] = (), locale: str | None = None) -> "Question":
        """Split a query and its history (newest last) into words; the history keeps its newest words only.

        What stands past the question's last token is not read by anything, the model included.
        """
        newest = clean(query)
        newest = newest[: _end_of_token(newest, MAX_QUESTION_TOKENS)]
        kept = _newest([clean(text) for text in history], MAX_HISTORY_WORDS, MAX_HISTORY_TOKENS)
        return cls.of((*kept, newest), locale or "")

    @classmethod
    def of(cls, utterances: tuple[str, ...], locale: str) -> "Question":
        """Return the question of clean utterances, the newest last."""
        words = [word for index, text in enumerate(utterances) for word in _words(text, index)]
        return cls(utterances, tuple(words), locale)


def _newest(history: Sequence[str], words: int, tokens: int) -> list[str]:
    """Return the newest utterances that have at most so many words and tokens together; blank ones are none."""
    kept: list[str] = []
    for utterance in reversed(history):
        words -= len(utterance.split())
        if words < 0 or _end_of_token(utterance, tokens) < len(utterance):
            break
        tokens -= sum(1 for _ in TOKEN.finditer(utterance))
        if utterance:
            kept.insert(0, utterance)
    return kept


def clean(text: str) -> str:
    """Collapse white space and drop control, format and unassigned characters; keep everything else as it is."""
    if text.isascii() and text.isprintable():  # true of nearly all texts, which then need no cleaning
        return " ".join(text.split())
    kept = (" " if character.isspace() else character for character in text if _is_kept(character))
    return " ".join("".join(kept).split())


def _end_of_token(text: str, count: int) -> int:
    """Return where so many tokens of a text end; its length where it has no more."""
    if len(text) <= count:  # a token has a character at least
        return len(text)
    ends = [match.end() for match in islice(TOKEN.finditer(text), count + 1)]
    return len(text) if len(ends) <= count else ends[count - 1] if count else 0


def _is_kept(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) not in ("Cc", "Cf", "Cn", "Cs", "Co")


def _words(text: str, utterance: int) -> list[Word]:
    found = text.split()[:MAX_QUESTION_WORDS]  # single spaces separate them
    words = []
    at = 0
    for position, word in enumerate(found):
        start, end = _trim(word, is_last=position == len(found) - 1)
        end = min(end, start + MAX_WORD_CHARACTERS)
        words.append(Word(word[start:end].lower(), utterance, at + start, at + end))
        at += len(word) + 1
    return words


def _trim(word: str, *, is_last: bool) -> tuple[int, int]:
    """Return the span of the word inside its punctuation; a token of punctuation alone stays whole."""
    start, end = 0, len(word)
    if word.isalnum():
        return start, end
    while start < end and word[start] in _OPENING:
        start += 1
    while end > start and _is_trailing(word, start, end, is_last=is_last):
        end -= 1
    return (start, end) if end > start else (0, len(word))


def _is_trailing(word: str, start: int, end: int, *, is_last: bool) -> bool:
    last = word[end - 1]
    if last == ".":  # "st." and "oz." keep their period
        return is_last or end - start > _LONG_ENOUGH_TO_END_A_SENTENCE
    if last in "\"'”’" and end - start > 1 and word[end - 2].isdigit():  # 10" and 6' are sizes
        return False
    return last in _TRAILING or last in _CLOSING
