"""Kinds of things for a catalogue that has no categories, by what its titles call them: "Notebook", "Mouse pad".

A kind is a word that the planner knows for a thing, or that many titles end with before numbers, colours and "with".
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import sqrt
from typing import Any, Final, NamedTuple

import numpy as np

from peakplan.shop.fields import SECTIONS
from peakplan.shop.meanings import unit, word_vectors
from peakplan.shop.texts import ENDS, UNIT_OF, key, singular, tokens
from service.planner.spelling import words as word_list
from service.planner.text import KIND_OF

KIND_FIELD: Final = "peakplan_kind"  # of a catalogue that has none; enriched.jsonl has each product's
_ENDS: Final = ENDS | frozenset("de en du des pour avec sans aus mit für ohne con para per di da".split())
_NO_KINDS: Final = frozenset(SECTIONS["words of titles that are no kinds"])
_FEWEST: Final = 3  # titles that say a word which the planner does not know for a thing
_ROUNDS: Final = 8
_BEFORE: Final = 0.2  # what a thing counts that stands before another: "notebook" of a notebook bag
_LEAST: Final = 0.5  # titles of a kind
_MOST_TITLES: Final = 2000  # to one kind: rarer ones are no kinds
_CLOSE: Final = (0.5, 0.45)  # cosines of another name with a kind's own and with the words of its titles
_MOST_NAMES: Final = 2  # by vectors


class Kind(NamedTuple):
    """How many titles say a kind, and what else shoppers call it."""

    titles: float
    names: tuple[str, ...] = ()


def kind_of(title: str, counts: Mapping[str, float]) -> str | None:
    """Return the kind that a title most likely says; None where it says none. `counts` are titles by kind."""
    known = _by_key(tuple(counts))
    told = _weighed(words := _words(title), known)
    if not told:
        return None
    at = max(told, key=lambda at: (told[at] * sqrt(counts[known[words[at]]]), at))
    return known.get(" ".join(words[max(0, at - 1) : at + 1]), known[words[at]])


@lru_cache(maxsize=8)
def _by_key(names: tuple[str, ...]) -> dict[str, str]:
    return {key(name): name for name in names}


@lru_cache(maxsize=50_000)
def _words(title: str) -> list[str]:
    """Return the keys of a title's words up to what is added: "with", "for", a comma behind them."""
    said: list[str] = []
    for token in title.replace(",", " , ").replace("(", " ( ").casefold().split():
        if token in _ENDS and said:
            break
        said += tokens(token)
    return [singular(word) for word in said]


def _weighed(words: Sequence[str], known: Container[str]) -> dict[int, float]:
    """Return the weight of each thing in a title by its place: a thing that describes the next one weighs less."""
    places = [at for at, word in enumerate(words) if word in known]
    after = {at: next((then for then in range(at + 1, len(words)) if words[then][-1].isalpha()), -1) for at in places}
    return {at: _BEFORE if after[at] in places else 1.0 for at in places}


def induced(titles: Collection[str], taken: Collection[str]) -> dict[str, Kind]:
    """Return the kinds of titles; `taken` are keys of brands and of values, which are none.

    Each title has one kind: the likeliest of its things, of those that most titles have (expectation maximisation).
    """
    split = [_words(title) for title in titles]
    having = Counter(word for words in split for word in set(words))
    pairs = Counter(pair for words in split for pair in {" ".join(two) for two in pairwise(words)})
    usual = {word for word, count in having.items() if count > 0.5 * len(split) >= _FEWEST}  # "gift" of a gift shop
    things = {word for word in having if word not in taken and word not in usual and _is_thing(word)}
    others = {word for word, count in having.items() if count >= _FEWEST and _may_be_thing(word)} - usual - set(taken)
    told = []
    for words in split:
        mine = things if not things.isdisjoint(words) else others
        told.append({words[at]: weight for at, weight in _weighed(words, mine).items()})
    counts: Mapping[str, float] = having
    for _ in range(_ROUNDS):
        after: dict[str, float] = defaultdict(float)
        for weights in told:
            scores = {word: weight * sqrt(counts[word]) for word, weight in weights.items()}
            for word, score in scores.items():
                after[word] += score / sum(scores.values())
        counts = after
    least = max(_LEAST, len(split) / _MOST_TITLES)
    kinds: dict[str, float] = {word: count for word, count in counts.items() if count >= least}
    kinds |= {pair: count for pair, count in pairs.items() if count >= max(2, least)
              and pair.split()[1] in kinds and pair.split()[0] in things}  # fmt: skip
    return _named(titles, split, kinds)


def _named(titles: Collection[str], split: Sequence[Sequence[str]], kinds: Mapping[str, float]) -> dict[str, Kind]:
    """Return kinds by the name that most titles write, with their other names."""
    written = Counter(word for title in titles for word in tokens(title))
    shown: dict[str, str] = {}
    for word, _ in written.most_common():
        shown.setdefault(singular(word), word)
    names = {" ".join(shown.get(word, word) for word in kind.split()).capitalize(): kind for kind in kinds}
    counts = {name: kinds[kind] for name, kind in names.items()}
    words: dict[str, Counter[str]] = defaultdict(Counter)
    for title, said in zip(titles, split, strict=True):
        if name := kind_of(title, counts):
            words[name].update(said)
    return {name: Kind(count, (*names[name].split()[1:], *_other_names(names[name], words[name], kinds)))
            for name, count in counts.items()}  # fmt: skip


def _is_thing(word: str) -> bool:
    facets = word_list().facets
    return _may_be_thing(word) and "type" in (facets.get(word), facets.get(f"{word}s"))


def _may_be_thing(word: str) -> bool:
    unlike = (
        word in _NO_KINDS or word in KIND_OF or word in UNIT_OF or word in ENDS or len(word) < 3 or not word.isalpha()
    )
    return not unlike and word_list().facets.get(word, "type") == "type"


def _other_names(name: str, said: Mapping[str, int], taken: Collection[str]) -> Iterable[str]:
    """Return words that no title says, close in meaning to a kind's name and to the words of its titles."""
    numbers, directions, things = _things()
    own = [numbers[word] for word in name.split() if word in numbers]
    if not said or len(own) < len(name.split()):
        return []
    known = {numbers[word]: count for word, count in said.items() if word in numbers}
    centre = np.array(list(known.values())) @ directions[list(known)]
    close = directions[things] @ unit(directions[own].sum(0)), directions[things] @ unit(centre)
    right = np.flatnonzero((close[0] >= _CLOSE[0]) & (close[1] >= _CLOSE[1]))
    words = list(numbers)
    best = (words[things[at]] for at in right[np.argsort(-(close[0] + close[1])[right])])
    return [word for word in best if word not in taken and word not in name.split()][:_MOST_NAMES]


@lru_cache(maxsize=1)
def _things() -> tuple[dict[str, int], Any, list[int]]:
    """Return the number of each word, its direction, and the numbers of those that name things."""
    numbers, vectors = word_vectors()
    return numbers, unit(vectors.astype(np.float32)), [at for word, at in numbers.items() if _is_thing(word)]
