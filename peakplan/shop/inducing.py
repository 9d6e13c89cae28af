"""Kinds of things for a catalogue that has no categories, by what its titles call them: "Notebook", "Mouse pad".

A kind is a word that the planner knows for a thing, or that many titles end with before numbers, colours and "with".
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np

from peakplan.shop.meanings import word_vectors
from peakplan.shop.texts import ENDS, UNIT_OF, is_aside, key, singular, tokens
from service.planner.fallback.reading.en.facets import KIND_OF
from service.planner.spelling import words as word_list

KIND_FIELD: Final = "peakplan_kind"  # of a catalogue that has none; enriched.jsonl has each product's
_ENDS: Final = ENDS | frozenset("de en du des pour avec sans aus mit für ohne con para per di da".split())
_FEWEST: Final = 3  # titles that end with a word which nobody knows for a thing
_HEAD: Final = 0.5  # of the titles that have a word those that end with it
_MOST_TITLES: Final = 2000  # to one kind: rarer ones are no kinds
_CLOSE: Final = (0.5, 0.45)  # cosines of another name with a kind's own and with the words of its titles
_MOST_NAMES: Final = 2  # by vectors
Kinds = Mapping[str, tuple[str, ...]]  # what else shoppers call each kind


def kind_of(title: str, names: Collection[str]) -> str | None:
    """Return the kind that a title says, one of the names; None where it says none of them."""
    known = _by_key(tuple(names))
    found = [(at, is_end, said) for at, is_end, said in _said(title) if said in known]
    best = next((each for each in found if each[1]), found[-1] if found else None)
    if best is None:
        return None
    longer = [said for at, _, said in _said(title, 2) if at == best[0] and said in known]
    return known[longer[0] if longer else best[2]]


@lru_cache(maxsize=8)
def _by_key(names: tuple[str, ...]) -> dict[str, str]:
    return {key(name): name for name in names}


def _said(title: str, length: int = 1) -> Iterator[tuple[int, bool, str]]:
    """Yield words, or as many together, of a title up to what is added: last place, whether a thing ends there, key."""
    said: list[str] = []
    for token in title.replace(",", " , ").replace("(", " ( ").casefold().split():
        if token in _ENDS and said:
            break
        said += tokens(token)
    keys = [singular(word) for word in said]
    for at in range(length - 1, len(keys)):
        after = next((word for word in keys[at + 1 :] if not is_aside(word)), "")
        if keys[at].isalpha() and not is_aside(keys[at]):
            yield at, not after.isalpha(), " ".join(keys[at - length + 1 : at + 1])


def induced(titles: Collection[str], taken: Collection[str]) -> Kinds:
    """Return the kinds of titles with their other names; `taken` are keys of brands and of values, which are none."""
    having: Counter[str] = Counter()
    ending: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    for title in titles:
        told = list(_said(title))
        having.update({said for _, _, said in told})
        ending.update({said for _, is_end, said in told if is_end})
        pairs.update({said for _, is_end, said in _said(title, 2) if is_end and _is_thing(said.split()[0])})
    least = max(1, len(titles) // _MOST_TITLES)
    heads = {
        word for word, count in ending.items()
        if word not in taken and word not in KIND_OF and word not in UNIT_OF and len(word) > 2
        and count >= _HEAD * having[word] and count >= (least if _is_thing(word) else max(_FEWEST, least))
        and word_list().facets.get(word, "type") == "type"
    }  # fmt: skip
    compounds = {pair for pair, count in pairs.items() if count >= max(2, least) and pair.split()[1] in heads
                 and pair.split()[0] not in taken}  # fmt: skip
    names = {word: word.capitalize() for word in sorted(heads | compounds)}
    words: dict[str, Counter[str]] = defaultdict(Counter)
    for title in titles:
        if name := kind_of(title, names.values()):
            words[name].update(singular(word) for word in tokens(title))
    found = {}
    for word, name in names.items():
        if name in words:
            head = word.split()[1:] if word in compounds else []
            found[name] = (*head, *_other_names(word, words[name], having))
    return found


def _is_thing(word: str) -> bool:
    facets = word_list().facets
    return word not in KIND_OF and "type" in (facets.get(word), facets.get(f"{word}s"))


def _other_names(name: str, said: Mapping[str, int], taken: Collection[str]) -> Iterable[str]:
    """Return words that no title says, close in meaning to a kind's name and to the words of its titles."""
    numbers, directions, things = _things()
    own = [numbers[word] for word in name.split() if word in numbers]
    if len(own) < len(name.split()):
        return []
    known = {numbers[word]: count for word, count in said.items() if word in numbers}
    centre = np.array(list(known.values())) @ directions[list(known)]
    close = directions[things] @ _unit(directions[own].sum(0)), directions[things] @ _unit(centre)
    right = np.flatnonzero((close[0] >= _CLOSE[0]) & (close[1] >= _CLOSE[1]))
    words = list(numbers)
    best = (words[things[at]] for at in right[np.argsort(-close[0][right])])
    return [word for word in best if word not in taken][:_MOST_NAMES]


@lru_cache(maxsize=1)
def _things() -> tuple[dict[str, int], Any, list[int]]:
    """Return the number of each word, its direction, and the numbers of those that name things."""
    numbers, vectors, _ = word_vectors()
    return numbers, _unit(vectors.astype(np.float32)), [at for word, at in numbers.items() if _is_thing(word)]


def _unit(vectors: Any) -> Any:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)
