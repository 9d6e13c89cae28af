"""The categories of a shop that a plan is about, by what `peakplan shop learn` found the words of its products to tell.

What a thing is called leads to the categories whose things are called so. Where the shopper names no thing, every word
tells of the categories in whose products it stands more often than elsewhere, and the whole question of those that are
close to it in meaning. The evidence adds up, as in a naive Bayes classifier; where it does not single a category out,
there is none.

Tries, as the lexicon's: a word leads to at most `MOST_CATEGORIES` of them, whatever the number
of categories, so that a question takes some ten microseconds a word.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from heapq import nlargest
from importlib import import_module
from math import exp, log
from pathlib import Path
from typing import Any, Final, NamedTuple

from service.planner.shop.meanings import WORDS_FILE, Meanings

EVIDENCE_FILE: Final = "evidence.marisa"  # what words and names tell
KINDS_FILE: Final = "kinds.marisa"  # id and name of each category by its number
SETTINGS_FILE: Final = "kinds.json"
MOST_CATEGORIES: Final = 64  # that one word tells of
_EVIDENCE: Final = "<IH"  # the number of a category, how much a word tells of it in 256ths of a nat
_UNIT: Final = 256
_WORD, _NAME = "w", "n"  # before a key: what stands in products, and what things are called
_PARTING: Final = "\x1f"  # between id and name
_LONGEST_NAME: Final = 5  # words
_MOST_WORDS: Final = 24  # of a plan that are looked up
_PART_OF_BEST: Final = 0.2  # of the best category's share: a second or third one is worth naming
# The share from which on a category is believed, where a need is told and where only no thing was found: fitted to the
# four sets of rehearsal/bench/kinds_questions.jsonl, since products speak of themselves in other words than shoppers.
_LEAST_OF_NEEDS: Final = {True: 0.2, False: 0.4}
_WORDS: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_POSSESSIVE: Final = re.compile(r"['’]s?$")
_PLURALS: Final = (("ies", "y"), ("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("xes", "x"))


@cache
def _tries() -> Any:
    return import_module("marisa_trie")


def singular(word: str) -> str:
    """Return a word in lower case as it is looked up, without plural or possessive ending."""
    word = _POSSESSIVE.sub("", word)
    for ending, short in _PLURALS:
        if word.endswith(ending) and len(word) > len(ending) + 1:
            return word.removesuffix(ending) + short
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def plain_words(text: str) -> list[str]:
    return [singular(word) for word in _WORDS.findall(text.casefold())]


class Certainty(NamedTuple):
    """How evidence becomes a share, and the shares from which on a category is said; fitted when a shop is learnt.

    `least` holds where the shopper names a thing of the shop, `least_unnamed` where only other words tell.
    """

    sharpness: float
    least: float
    least_unnamed: float


class Thing(NamedTuple):
    """One thing that is wanted: all words that say so, and those that name it.

    `need` is what the shopper said where it tells what the thing is for, and names none; `is_told` where its words are
    those of needs, and not only none of a thing was found. `pointed` is where the model points that has read it.
    """

    text: str
    named: Sequence[str] = ()
    need: str = ""
    is_told: bool = False
    pointed: Sequence[float] = ()


class Category(NamedTuple):
    """A category by its id in the shop folder and its name."""

    id: str
    name: str


class Kinds:
    """The categories of one shop folder, and what tells of them. Never changes."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        """Take the files of a folder. Raises RuntimeError, TypeError, ValueError or KeyError where they are damaged."""
        self._evidence = _tries().RecordTrie(_EVIDENCE).frombytes(files[EVIDENCE_FILE])
        self._kinds = _tries().BytesTrie().frombytes(files[KINDS_FILE])
        settings = json.loads(files[SETTINGS_FILE])
        self._count = int(settings["categories"])
        self._certainty = Certainty(*(float(settings[name]) for name in Certainty._fields))
        # A folder that was learnt before there were vectors has none.
        self._meanings = Meanings(files) if WORDS_FILE in files else None

    def of(self, things: Sequence[Thing], most: int) -> list[Category]:
        """Return the categories of what is wanted, best first; none where none is sure.

        Of several things each gets its best one.
        """
        ranked = [self.ranked(thing, most) for thing in things]
        numbers = [each[0] for each in ranked if each] if len(things) > 1 else [one for each in ranked for one in each]
        return [self._category(number) for number in list(dict.fromkeys(numbers))[:most]]

    def ranked(self, thing: Thing, most: int) -> list[int]:
        """Return the numbers of the likeliest categories of one thing, best first; none where none is sure.

        Of a need that the shop cannot meet the words tell nothing either: they are those of what is near it.
        """
        if thing.need and self._meanings is not None:
            is_met = self._meanings.meets(plain_words(thing.need), thing.pointed)
            if is_met and (numbers := self._of_need(self._meanings, thing, most)):
                return numbers
            if not is_met and thing.is_told:
                return []
        told, is_named = self.evidence(thing)
        best = nlargest(most, told.items(), key=lambda each: (each[1], -each[0]))
        shares = [(number, share(told, number, self._certainty.sharpness, self._count)) for number, _ in best]
        least = self._certainty.least if is_named else self._certainty.least_unnamed
        if not shares or shares[0][1] < least:
            return []
        return [number for number, each in shares if each >= _PART_OF_BEST * shares[0][1]]

    @property
    def space(self) -> str:
        """The name of the space in which a model must point; "" where none can."""
        return self._meanings.space if self._meanings is not None else ""

    def _of_need(self, meanings: Meanings, thing: Thing, most: int) -> list[int]:
        """Return the numbers of the categories that a need is about, by meaning and words; none where none is sure."""
        told, _ = self.evidence(Thing(thing.need))
        least = _LEAST_OF_NEEDS[thing.is_told]
        return meanings.of_need(plain_words(thing.need), told, least, _PART_OF_BEST, thing.pointed)[:most]

    def evidence(self, thing: Thing) -> tuple[Mapping[int, float], bool]:
        """Return how much words tell of each category that they tell of, and whether a thing of the shop is named.

        Where one is, only categories whose things are called so come into question.
        """
        said = plain_words(thing.text)
        told: dict[int, float] = defaultdict(float)
        for word in list(dict.fromkeys(said))[:_MOST_WORDS]:
            for number, weight in self._evidence.get(_WORD + word, ()):
                told[number] += weight / _UNIT
        if called := self._called(said, thing.named):
            return {number: told.get(number, 0.0) + weight for number, weight in called.items()}, True
        return told, False

    def _called(self, said: Sequence[str], named: Sequence[str]) -> dict[int, float]:
        """Return the categories of the longest name that ends with what is named: "boots" of "leather hiking boots".

        A name may begin before what the plan takes for the thing: "hiking" may be a feature of the boots.
        """
        called: dict[int, float] = defaultdict(float)
        for value in named:
            words = _with_what_precedes(plain_words(value), said)[-_LONGEST_NAME:]
            for first in range(len(words)):
                if found := self._evidence.get(_NAME + " ".join(words[first:])):
                    for number, weight in found:
                        called[number] = max(called[number], weight / _UNIT)
                    break
        return called

    def _category(self, number: int) -> Category:
        identity, _, name = self._kinds[str(number)][0].decode().partition(_PARTING)
        return Category(identity, name)


def _with_what_precedes(words: list[str], said: Sequence[str]) -> Sequence[str]:
    """Return the words with all that stands before them in what was said."""
    for end in range(len(said), len(words) - 1, -1):
        if words and said[end - len(words) : end] == words:
            return said[:end]
    return words


def write_kinds(
    folder: Path,
    categories: Sequence[tuple[str, str]],
    words: Mapping[str, Mapping[int, float]],
    names: Mapping[str, Mapping[int, float]],
    certainty: Certainty,
) -> None:
    """Write the files that `Kinds` maps: categories by id and name, and what words and names tell of them in nats."""

    def records() -> Iterable[tuple[str, tuple[int, int]]]:
        for mark, found in ((_WORD, words), (_NAME, names)):
            for text, weights in found.items():
                best = nlargest(MOST_CATEGORIES, weights.items(), key=lambda each: (each[1], -each[0]))
                for number, weight in best:
                    if (whole := min(round(weight * _UNIT), 2**16 - 1)) > 0:
                        yield mark + text, (number, whole)

    _tries().RecordTrie(_EVIDENCE, records()).save(str(folder / EVIDENCE_FILE))
    kinds = ((str(number), f"{id_}{_PARTING}{name}".encode()) for number, (id_, name) in enumerate(categories))
    _tries().BytesTrie(kinds).save(str(folder / KINDS_FILE))
    content = {"categories": len(categories), **certainty._asdict()}
    (folder / SETTINGS_FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")


def share(told: Mapping[int, float], number: int, sharpness: float, count: int) -> float:
    """Return a category's share of evidence, among `count` categories of which most have none."""
    top = max(told.values(), default=0.0)
    total = sum(exp(sharpness * (value - top)) for value in told.values())
    total += (count - len(told)) * exp(-sharpness * top)
    return exp(sharpness * (told.get(number, 0.0) - top)) / total


def lift(within: float, everywhere: float) -> float:
    """Return how much more likely something is in a category than elsewhere, in nats; 0 where it is not."""
    return max(0.0, log(within / everywhere)) if within > 0 and everywhere > 0 else 0.0
