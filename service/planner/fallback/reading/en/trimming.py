"""Search text without the words that belong to a question's closed phrases.

The rest reads like text that a person would type: no "but" whose other half is gone, and no "please".
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

from service.planner.fallback.reading.en.data import PHRASES
from service.planner.fallback.reading.tokens import BREAKS, QUOTES, Words

_LEFT, _RIGHT, _SMALL = (
    PHRASES.words("word.trim.left"),
    PHRASES.words("word.trim.right"),
    PHRASES.words("word.trim.small"),
)
_START = PHRASES.trie("trim.start", "name")
_END = PHRASES.trie("trim.end", backwards=True)
_LOOSE_MARK = re.compile(r" ([,;.?!])(?=\s|$)")


def without(utterance: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return the text without the spans ([start, end) of its characters) and the words that only led to them.

    Words keep the shopper's spelling and case. Empty where nothing to search for is left.
    """
    words = Words(utterance)
    runs = _runs(words, _cut(words, spans))
    kept: list[range] = []
    for index, run in enumerate(runs):
        trimmed = _trimmed(words, run, is_first=not kept, is_after_cut=index > 0, is_before_cut=index < len(runs) - 1)
        kept += [trimmed] if trimmed else []
    return _joined(words, kept)


def unsaid(utterance: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return the text without the spans at its ends, courtesy and marks there, and the words that only led to them.

    The whole text where no word is left, and where a span stands between others: "a kettle under 40 and a toaster".
    """
    words = Words(utterance)
    runs = _runs(words, _cut(words, spans))
    kept = []
    for index, run in enumerate(runs):
        first, end = run.start, run.stop
        while index < len(runs) - 1 and first < end and words.texts[end - 1] in _LEFT:
            end -= 1
        while first < end and words.texts[first] in (_RIGHT | BREAKS if index else BREAKS):
            first += 1
        end = _drop_courtesy(words, first, end)
        kept += [range(first, end)] if first < end else []
    return _joined(words, kept) if len(kept) == 1 else utterance


def _cut(words: Words, spans: Iterable[tuple[int, int]]) -> bytearray:
    is_cut = bytearray(len(words.texts))
    for start, end in spans:
        for index in range(bisect_left(words.starts, start), bisect_left(words.starts, end)):
            is_cut[index] = 1
    if QUOTES.isdisjoint(words.texts):
        return is_cut
    quotes = [index for index, text in enumerate(words.texts) if text in QUOTES]
    for opening, closing in pairwise(quotes):
        if closing - opening > 1 and all(is_cut[opening + 1 : closing]):
            is_cut[opening] = is_cut[closing] = 1
    return is_cut


def _runs(words: Words, is_cut: bytearray) -> list[range]:
    """Return runs of tokens between the cuts; an empty first or last run stands for a cut at the very edge."""
    runs: list[range] = []
    start = 0
    for index in range(len(words.texts) + 1):
        if index == len(words.texts) or is_cut[index]:
            if index > start or index in (0, len(words.texts)):
                runs.append(range(start, index))
            start = index + 1
    return runs


def _trimmed(words: Words, run: range, *, is_first: bool, is_after_cut: bool, is_before_cut: bool) -> range:
    first, end = run.start, run.stop
    while first < end and words.texts[first] in BREAKS and words.texts[first] not in "([":
        first += 1
    if is_before_cut:
        end = _drop_left_of_cut(words, first, end)
    if is_after_cut:
        first = _drop_right_of_cut(words, first, end, is_first=is_first)
    else:
        first = _drop_request(words, first, end)
    return range(first, _drop_courtesy(words, first, end))


def _drop_left_of_cut(words: Words, first: int, end: int) -> int:
    while end > first and words.texts[end - 1] in _LEFT:
        end -= 1
    return end


def _drop_right_of_cut(words: Words, first: int, end: int, *, is_first: bool) -> int:
    while first < end and words.texts[first] in _RIGHT:
        first += 1
    after = _drop_request(words, first, end)
    if is_first and after == first:
        after = _drop_small(words, first, end)
    return after


def _drop_request(words: Words, first: int, end: int) -> int:
    """Skip requests such as "i'm looking for a", and the small words after one."""
    start = first
    while first < end and (match := _START.match(words, first)) and match[1] == "trim.start":
        if first + match[0] >= end:
            return end
        first += match[0]
        first = _drop_small(words, first, end)
    return first if first > start else start


def _drop_small(words: Words, first: int, end: int) -> int:
    while first < end - 1 and words.texts[first] in _SMALL:
        first += 1
    return first


def _drop_courtesy(words: Words, first: int, end: int) -> int:
    while end > first:
        if words.texts[end - 1] in BREAKS and words.texts[end - 1] not in ")]":
            end -= 1
        elif (match := _END.match(words, end - 1)) and end - match[0] >= first:
            end -= match[0]
        else:
            break
    return end


def _joined(words: Words, runs: list[range]) -> str:
    pieces = [words.source[words.starts[run.start] : words.ends[run.stop - 1]] for run in runs if len(run)]
    text = " ".join(pieces)
    text = _LOOSE_MARK.sub(r"\1", text)
    return " ".join(text.split())
