"""What a product's own words say of it: what it is called, which colour and which material they name.

Words only tell what they say: that a text does not name leather is no sign that the thing has none.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final

import yaml

from peakplan_client.mapping import normal

Words = tuple[str, ...]
_FILE: Final = files(__package__) / "words.yaml"  # also in a wheel that is not unpacked
# In names: what comes after is no thing ("jacket with pin").
_AFTER: Final = re.compile(r"[,:;(]|\s(?:with|for|in|featuring|by|from|-|–)\s")
# In descriptions: "this silver laptop" is one, "our laptop skin" is none.
_SELF: Final = frozenset(("this", "these", "our"))
_TOKEN: Final = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|[.!?;:–—]")
_LONGEST: Final = 9  # words of such a phrase


@cache
def _file() -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return loaded


SEVERAL: Final = frozenset(_file()["several"])
_ENDS: Final = frozenset(_file()["ends"])
_PHRASE: Final = re.compile(rf"([,.!?;:–—]|\b(?:{'|'.join(sorted(_ENDS))})\b)")


def kind_groups() -> list[tuple[list[str], list[str]]]:
    """Return the groups of names: those of the same thing, and those of a part of it."""
    split = [line.partition("<") for line in _file()["kinds"]]
    return [(_listed(same), _listed(narrower)) for same, _, narrower in split]


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@cache
def _covered() -> Mapping[Words, frozenset[Words]]:
    groups = [(same, frozenset(map(normal, [*same, *narrower]))) for same, narrower in kind_groups()]
    return {normal(name): group for same, group in groups for name in same}


@cache
def _within(list_name: str) -> Mapping[Words, tuple[str, ...]]:
    return {normal(broad): tuple(narrow) for broad, narrow in _file()[list_name].items()}


def kinds_of(name: Words) -> frozenset[Words]:
    """Return the names that say that a thing is of a kind: couch, settee and loveseat of sofa, and its own."""
    return _covered().get(name, frozenset()) | {name}


def narrower(facet: str, said: str) -> tuple[str, ...]:
    """Return the narrower names of a material or colour: suede for leather."""
    return _within(f"{facet}s").get(normal(said), ()) if facet in ("material", "color") else ()


def ends_a_name(name: str, kind: Words) -> bool:
    """Tell whether a name says that the thing is of a kind: "Skate Shoe" is a shoe, "Guitar Wall Art" no guitar."""
    return not kinds_of(kind).isdisjoint(endings(name))


@lru_cache(maxsize=1024)
def endings(name: str) -> frozenset[Words]:
    """Return the words in which a name ends, also without what only counts and what it is of: each may say its kind."""
    first = _AFTER.split(name)[0]
    return frozenset(end for each in (first, first.partition(" of ")[0]) for end in _endings(normal(each)))


def _endings(name: Words) -> Iterator[Words]:
    while name:
        yield from (name[at:] for at in range(len(name)))
        name = name[:-1] if name[-1] in SEVERAL else ()


def begins_a_name(name: str, kind: Words) -> bool:
    """Tell whether the first of several things of a name is of a kind: "Shirt and Watch Set"."""
    first, both, _ = _AFTER.split(name)[0].partition(" and ")
    return bool(both) and not kinds_of(kind).isdisjoint(_endings(normal(first)))


def calls_itself(text: str, kind: Words) -> bool:
    """Tell whether a description says of the thing that it is of a kind: "this sleek silver laptop"."""
    return not kinds_of(kind).isdisjoint(_names_of_itself(text))


@lru_cache(maxsize=1024)
def _names_of_itself(text: str) -> frozenset[Words]:
    tokens = _TOKEN.findall(text.casefold())
    return frozenset(
        end
        for at, token in enumerate(tokens)
        if token in _SELF
        for end in _endings(normal(" ".join(_phrase(tokens[at + 1 : at + 1 + _LONGEST]))))
    )


def _phrase(tokens: Sequence[str]) -> list[str]:
    """Return the words up to the first that ends a phrase, and none where no word does."""
    end = next((at for at, token in enumerate(tokens) if token in _ENDS or not token[0].isalnum()), None)
    return list(tokens[:end]) if end is not None else []


def says(text: str, said: str, facet: str = "", *, whole: bool = True) -> bool:
    """Tell whether a text has words, or words for one of it, side by side; faux leather is no leather.

    A colour or a material is said of the `whole`: a shoe with white soles is not therefore white.
    """
    names = [normal(name) for name in (said, *narrower(facet, said))]
    return any(_has(named, name) for named in _told(text, facet, whole=whole) for name in names)


def _has(text: Words, phrase: Words) -> bool:
    if not phrase or phrase[0] not in text:  # most are not
        return False
    return any(text[at : at + len(phrase)] == phrase for at in range(len(text)))


@lru_cache(maxsize=1024)
def _told(text: str, facet: str, *, whole: bool = True) -> tuple[Words, ...]:
    """Return a text's words; of those for a colour or a material what is said of the `whole`, by phrase.

    What stands before a part ("contrasting white soles") is said of that part, and one word after "faux" of nothing. Of
    colours those that come first: a "navy backpack, complementing the vibrant yellow coat" is not yellow.
    """
    if facet not in ("material", "color"):
        return (normal(text),)
    false, parts = _words_of("imitation"), _words_of("parts")
    told: list[Words] = []
    of_part = False
    for phrase in reversed(list(_phrases(text))):
        after = max((at + 1 for at, word in enumerate(phrase) if word in parts), default=0)
        # "Purple and yellow accents": what ends in a colour is of the part that its list ends with.
        of_part = bool(after) or (of_part and bool(phrase) and phrase[-1] in _colors())
        after = len(phrase) if of_part and not after else after
        is_real = [facet == "color" or at == 0 or phrase[at - 1] not in false for at in range(len(phrase))]
        told.insert(0, tuple(word for at, word in enumerate(phrase) if (at >= after or not whole) and is_real[at]))
    if facet == "material" or not whole:
        return tuple(told)
    tells = [bool(_colors().intersection(phrase)) for phrase in told]
    first = tells.index(True) if True in tells else 0
    return tuple(phrase for at, phrase in enumerate(told) if not tells[at] or all(tells[first:at]))


def _phrases(text: str) -> Iterator[Words]:
    """Yield the words of each phrase, and nothing between two that are no list ("red, white, and blue" is one)."""
    pieces = ["", *_PHRASE.split(text.casefold())]
    for sign, piece in zip(pieces[::2], pieces[1::2], strict=True):
        if sign not in ("", ",", "and", "or"):
            yield ()
        if named := normal(piece):
            yield named


@cache
def _words_of(list_name: str) -> frozenset[str]:
    return frozenset(normal(" ".join(_file()[list_name])))


@cache
def _colors() -> frozenset[str]:
    named = [
        *_file()["maybe_colors"],
        *(word for broad, narrow in _file()["colors"].items() for word in (broad, *narrow)),
    ]
    return frozenset(normal(" ".join(named)))


def says_another(texts: Iterable[str], said: str, facet: str) -> bool:
    """Tell whether texts name a material or a colour, and nothing that may be the one that was said."""
    if facet not in ("material", "color"):
        return False
    anywhere, named = _named(tuple(texts), facet)
    groups, words = _groups(facet), set(normal(said))
    own = words.union(*(group for group in groups if group & words))
    vague = normal(" ".join(_file()["maybe_colors" if facet == "color" else "imitation"]))
    return not anywhere & own.union(vague) and any(named & group for group in groups)


@lru_cache(maxsize=1024)
def _named(texts: tuple[str, ...], facet: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words of texts, and those that may name the whole's material or colour."""
    anywhere = frozenset(word for text in texts for word in normal(text))
    return anywhere, frozenset(word for text in texts for phrase in _told(text, facet) for word in phrase)


@cache
def _groups(facet: str) -> list[frozenset[str]]:
    """Return each material or colour with its narrower names."""
    named = _file()[f"{facet}s"].items()
    return [frozenset(normal(" ".join([broad, *narrow]))) for broad, narrow in named]
