"""What is left of an utterance to search for, in a language that is planned by its closed phrases alone."""

from dataclasses import dataclass, field
from typing import Final

from service.planner.fallback.reading.language_data import LanguageData
from service.planner.fallback.reading.phrases import Phrases
from service.planner.fallback.reading.tokens import BREAKS, Words, words_of
from service.planner.fallback.reading.utterance import Reading, Utterances
from service.planner.fallback.reading.values import Value
from service.planner.money import ANYWHERE, Region

_LEFT_OUT: Final = BREAKS - {"(", ")"} | frozenset("¿¡\"'“”„«»-–—~=<>…")


@dataclass(slots=True)
class Said:
    """What one utterance says. Tokens are those of `words`; `kept` are those to search for, in order.

    `turns` tells that it begins or ends as a change of what was said before, `begins` that it leaves that behind.
    `lifted` has facets, too: "cualquier marca". `removed` are words that it takes back.
    """

    words: Words
    phrases: Phrases
    kept: list[int]
    values: list[Value]
    refused: list[Value]
    lifted: frozenset[str] = frozenset()
    removed: list[str] = field(default_factory=list)
    turns: bool = False
    begins: bool = False
    asks: bool = False  # it has a lead-in such as "busco", or is a question


class Wishes:
    """Finds what utterances of one language ask for."""

    def __init__(self, data: LanguageData) -> None:
        self._data = data
        self.utterances = Utterances(data)
        self.lead = data.trie("lead", "drop", "turn")
        self.leads = data.trie("lead")
        self.turn_end = data.trie("turn.end", "courtesy", backwards=True)
        self.begin = data.trie("turn.new")
        self.courtesy = data.trie("courtesy")
        self.articles = data.words("word.articles")
        self.prepositions = data.words("word.prepositions")
        self.trim_end = data.words("word.trim.end")
        self.trim_start = data.words("word.trim.start")

    def read(self, text: str, region: Region = ANYWHERE) -> Said:
        """Read one utterance. Total."""
        words = words_of(text, self._data.umlauts, region.decimal_mark)
        return _Wish(self, words, region.territory).said()


class _Wish:
    """One utterance; what its closed phrases take is out."""

    def __init__(self, language: Wishes, words: Words, territory: str | None) -> None:
        self._language = language
        self._words = words
        self._territory = territory
        self._reading = Reading(language.utterances, words, territory)
        self._taken = self._reading.taken

    def said(self) -> Said:
        words, reading = self._words, self._reading
        begins = self._opening()
        phrases = reading.phrases()
        turns, asks = self._ends()
        turned, start = self._starts()
        values = self._language.utterances.values.find(words, self._taken)
        kept = self._kept(start, {index for value in values for index in range(value.first, value.end)})
        return Said(
            words,
            phrases,
            kept,
            [value for value in values if value.first >= start and value.first in kept],
            reading.refused,
            phrases.lifted,
            reading.removed,
            turns or turned,
            begins,
            asks or start > 0 or "?" in words.texts,
        )

    def _opening(self) -> bool:
        """Take what leaves the topic behind: "olvida eso", "jetzt suche ich"."""
        for at in range(len(self._words.texts)):
            match = self._language.begin.match(self._words, at)
            back = self._language.utterances.remove.match(self._words, at) if match else None
            if match and back and back[0] > match[0]:
                break  # "oublie la couleur" goes on with the rest
            if match and all(index in self._taken or self._words.texts[index] in _LEFT_OUT for index in range(at)):
                self._reading.take(at, at + match[0])
                return True
            if self._words.texts[at] not in _LEFT_OUT:
                break
        return False

    def _ends(self) -> tuple[bool, bool]:
        """Take courtesy and turns at the end: "por favor", "lieber", "à la place"."""
        words, end, turns, asks = self._words, len(self._words.texts), False, False
        while end > 0:
            if end - 1 in self._taken or words.texts[end - 1] in _LEFT_OUT:
                asks |= words.texts[end - 1] == "?"
                end -= 1
            elif match := self._language.turn_end.match(words, end - 1):
                turns |= match[1] == "turn.end"
                self._reading.take(end - match[0], end)
                end -= match[0]
            else:
                break
        return turns, asks

    def _starts(self) -> tuple[bool, int]:
        """Skip "hola, busco un", "y", "mejor en": return whether a turn is among them, and the first token after."""
        words, at, turns = self._words, 0, False
        start = 0
        while at < len(words.texts):
            text = words.texts[at]
            match = self._language.lead.match(words, at)
            is_free = match and (self._taken - self._reading.dropped).isdisjoint(range(at, at + match[0]))
            if (at in self._taken and not (is_free and match and match[1] == "lead")) or text in _LEFT_OUT:
                at += 1
                continue
            if match and is_free and not self._reading.names.intersection(range(at, at + match[0])):
                turns |= match[1] == "turn"
                at += match[0]
                start = at
                if words.texts[at - 1] in self._language.prepositions and match[1] == "turn":
                    start = at - 1  # of "y con cajones", the "con" belongs to what is wanted
                    break
            elif courtesy := self._language.courtesy.match(words, at):
                self._reading.take(at, at + courtesy[0])
                at += courtesy[0]
                start = at
            elif text in self._language.articles and at + 1 < len(words.texts):
                at += 1
                start = at
            else:
                break
        return turns, start

    def _kept(self, start: int, named: set[int]) -> list[int]:
        """Return the tokens to search for, without what only led to phrases that were taken."""
        words = self._words
        runs: list[list[int]] = [[]]
        for index in range(start, len(words.texts)):
            if index in self._taken:
                runs.append([])
            else:
                runs[-1].append(index)
        kept: list[int] = []
        for run in runs:
            kept += self._trimmed(run, is_first=not kept, named=named)
        return kept

    def _trimmed(self, run: list[int], *, is_first: bool, named: set[int]) -> list[int]:
        texts = self._words.texts
        language = self._language
        run = [index for index in run if not self._is_loose(index)]
        while run and (texts[run[-1]] in language.trim_end or texts[run[-1]] in language.articles):
            if run[-1] in named:
                break
            run.pop()
        is_led = is_first and bool(run) and run[0] - 1 in self._taken
        small = language.articles | language.prepositions if is_led else language.articles if is_first else frozenset()
        while run and (texts[run[0]] in language.trim_start or texts[run[0]] in small):
            if run[0] in named:
                break
            run.pop(0)
        while is_first and len(run) > 1:
            match = language.leads.match(self._words, run[0])
            if match is None or match[0] >= len(run) or run[match[0] - 1] - run[0] != match[0] - 1:
                break
            run = run[match[0] :]
            while run and (texts[run[0]] in language.trim_start or texts[run[0]] in language.articles):
                run.pop(0)
        return run

    def _is_loose(self, index: int) -> bool:
        """Tell whether a token is a mark that belongs to no word."""
        words = self._words
        if words.texts[index] not in _LEFT_OUT:
            return False
        glued = words.texts[index] in "-'\"”″" and index > 0 and words.touches(index - 1)
        return not (glued and (words.touches(index) or words.texts[index - 1][:1].isdigit()))
