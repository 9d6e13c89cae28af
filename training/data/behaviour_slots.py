"""Fills the slots of skeletons: products, their attributes, and closed phrases with their meaning."""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from service.planner.fallback.reading.en.reader import ENGLISH
from service.planner.fallback.reading.phrases import Phrases
from training.data.behaviour_phrases import Facts, closed_phrase
from training.data.behaviour_text import Line, Piece, sections
from training.data.rows import VERTICAL_CODES, LabelledQuery
from training.data.written import FACET_LETTERS, labelled_queries, product_names

_LETTERS = {facet: letter for letter, facet in FACET_LETTERS.items()}
_JOINS = frozenset("and or vs with without not no plus & + of for".split())
MAX_WORDS = 5
_COMMON = 0.55  # of kinds of product come from the few that most shoppers ask for
_ALIKE = 0.85  # of sentences compare things of one kind


@dataclass
class Filled:
    """A skeleton with its slots filled: its pieces, their vertical, and the meaning of its closed phrases."""

    pieces: list[Piece] = field(default_factory=list)
    vertical: str | None = None
    facts: Facts = field(default_factory=Facts)


@cache
def attributes() -> dict[tuple[str, str], tuple[str, ...]]:
    """Return values by vertical and facet."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for section, line, _ in sections("attributes.txt"):
        code, facet = section.split()
        found[VERTICAL_CODES[code], facet] += [value.strip() for value in line.split(",")]
    return {key: tuple(values) for key, values in found.items()}


@cache
def _things() -> dict[str, list[LabelledQuery]]:
    """Return labelled queries that name one product without closed phrases, by kind of slot."""
    found: dict[str, list[LabelledQuery]] = {"thing": [], "numbered": [], "branded": []}
    for query in labelled_queries():
        words, facets = query.text.words, {span.facet for span in query.text.spans}
        text = " ".join(words)
        is_plain = 2 <= len(words) <= MAX_WORDS and not _JOINS & set(words) and ENGLISH.phrases(text) == Phrases()
        if not is_plain:
            continue
        has_number = any(character.isdigit() for character in text)
        marked = sum(span.last - span.first + 1 for span in query.text.spans)
        if "type" in facets and marked == len(words):
            found["numbered" if has_number else "thing"].append(query)
        is_named = "brand" in facets and facets <= {"brand", "line", "model", "type"} and len(facets) > 1
        if is_named and len(words) < MAX_WORDS and marked == len(words):
            found["branded"].append(query)
    return found


@cache
def _types() -> dict[str, list[str]]:
    """Return kinds of product by vertical."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, vertical in product_names():
        words = name.split()
        is_plain = 1 <= len(words) <= 3 and name.replace(" ", "").replace("-", "").isalpha()
        if is_plain and not _JOINS & set(words) and ENGLISH.phrases(name) == Phrases():
            found[vertical].append(name)
    return found


@cache
def _by_head() -> dict[tuple[str, str], list[str]]:
    """Return kinds of product by vertical and last word, where several share it."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for vertical, names in _types().items():
        for name in names:
            found[vertical, name.split()[-1]].append(name)
    return {key: names for key, names in found.items() if len(names) > 1}


@cache
def _branded_alike() -> dict[tuple[str, str], list[LabelledQuery]]:
    """Return branded products by vertical and last word of their kind, where there are enough to compare."""
    found: dict[tuple[str, str], list[LabelledQuery]] = defaultdict(list)
    for query in _things()["branded"]:
        if query.vertical and (kinds := query.values("type")):
            found[query.vertical, kinds[-1].split()[-1]].append(query)
    return {key: queries for key, queries in found.items() if len(queries) > 2}


def query_pieces(query: LabelledQuery, part: int = 0) -> list[Piece]:
    """Return a labelled query as pieces: its spans, and its other words, all of them for search."""
    pieces: list[Piece] = []
    at = 0
    words = query.text.words
    for span in sorted(query.text.spans, key=lambda span: span.first):
        pieces += [Piece(word, part=part, is_queried=True) for word in words[at : span.first]]
        pieces.append(Piece(" ".join(words[span.first : span.last + 1]), span.facet, part, is_queried=True))
        at = span.last + 1
    return pieces + [Piece(word, part=part, is_queried=True) for word in words[at:]]


class Filler:
    """Fills the slots of one skeleton at a time, with one random source."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._compared: list[str] = []  # products of the sentence so far
        self._said: set[str] = set()  # values of the sentence so far
        self._is_alike = True
        self._head: tuple[str, str] | None = None  # vertical and last word of the kind that is compared
        self._verticals = [vertical for vertical in VERTICAL_CODES.values() if (vertical, "brand") in attributes()]
        self._slots: dict[str, Callable[[Piece, Filled], list[Piece]]] = {
            "thing": self._thing, "numbered": self._thing, "branded": self._branded, "type": self._type,
            "kind": self._type, "it": self._it, "count": self._count, "age": self._age,
        }  # fmt: skip

    def fill(self, line: Line, vertical: str | None = None) -> Filled:
        """Fill every slot of the skeleton, products first, because other slots depend on them."""
        filled = Filled(vertical=line.vertical or vertical)
        names = {piece.slot.lstrip("-") for piece in line.pieces if piece.slot}
        needs_attributes = names & {"brand", "color", "material", "size", "audience", "feature"}
        if filled.vertical is None and (needs_attributes or any(piece.part > 1 for piece in line.pieces)):
            filled.vertical = self._vertical(names)
        self._compared = []
        self._said = set()
        self._head = None
        self._is_alike = self.rng.random() < _ALIKE
        done: dict[int, list[Piece]] = {}
        order = sorted(range(len(line.pieces)), key=lambda at: line.pieces[at].slot not in self._slots)
        for at in order:
            piece = line.pieces[at]
            done[at] = self._filled(piece, filled) if piece.slot else [piece]
        filled.pieces = [piece for at in range(len(line.pieces)) for piece in done[at]]
        filled.pieces = _with_articles(filled.pieces)
        return filled

    def _vertical(self, names: set[str]) -> str:
        facets = names & {"brand", "color", "material", "size", "audience", "feature"}
        choices = [v for v in self._verticals if all((v, facet) in attributes() for facet in facets)]
        return self.rng.choice(choices)

    def _filled(self, slot: Piece, filled: Filled) -> list[Piece]:
        name = slot.slot or ""
        if name in self._slots:
            pieces = self._slots[name](slot, filled)
        elif name.lstrip("-") in _LETTERS:
            pieces = [self._attribute(slot, filled)]
        else:
            pieces = [Piece(self._closed(name, filled))]
        if slot.tail and pieces:
            pieces[-1] = replace(pieces[-1], tail=slot.tail)
        return pieces

    def _thing(self, slot: Piece, filled: Filled) -> list[Piece]:
        pool = _things()[slot.slot or "thing"]
        return self._queried(pool, slot, filled)

    def _branded(self, slot: Piece, filled: Filled) -> list[Piece]:
        """Return a branded product; of several in a comparison most are of one kind."""
        if slot.part and self._is_alike:
            if self._head is None:
                choices = [head for head, queries in _branded_alike().items() if filled.vertical in (None, head[0])]
                self._head = self.rng.choice(choices) if choices else None
            if self._head is not None:
                return self._queried(_branded_alike()[self._head], slot, filled)
        return self._queried(_things()["branded"], slot, filled)

    def _queried(self, pool: list[LabelledQuery], slot: Piece, filled: Filled) -> list[Piece]:
        for _ in range(400):
            query = self.rng.choice(pool)
            if filled.vertical in (None, query.vertical) and " ".join(query.text.words) not in self._compared:
                break
        filled.vertical = filled.vertical or query.vertical
        self._compared.append(" ".join(query.text.words))
        return query_pieces(query, slot.part)

    def _type(self, slot: Piece, filled: Filled) -> list[Piece]:
        """Return a kind of product; the second of two often shares the first one's last word ("garden hose")."""
        vertical = filled.vertical = filled.vertical or self.rng.choice(self._verticals)
        pool: Sequence[str] = _types()[vertical]
        if self._compared and self.rng.random() < 0.5:
            pool = _by_head().get((vertical, self._compared[-1].split()[-1]), _types()[vertical])
        elif self.rng.random() < _COMMON:
            pool = attributes().get((vertical, "type"), _types()[vertical])
        name = self.rng.choice(pool)
        for _ in range(20):
            if name not in self._compared:
                break
            name = self.rng.choice(_types()[vertical])
        self._compared.append(name)
        return [Piece(name, "type", slot.part, is_queried=True)]

    def _it(self, slot: Piece, filled: Filled) -> list[Piece]:  # noqa: ARG002
        return [Piece(self.rng.choice(("it", "it", "this", "this one", "that")))]

    def _count(self, slot: Piece, filled: Filled) -> list[Piece]:  # noqa: ARG002
        number = self.rng.choice((2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 48, 50, 100))
        form = self.rng.choice(("pack of {}", "{} pack", "set of {}", "{} count", "{} pcs", "{}-pack", "{} pieces"))
        return [Piece(form.format(number), "count", slot.part, is_queried=True)]

    def _age(self, slot: Piece, filled: Filled) -> list[Piece]:  # noqa: ARG002
        form = self.rng.choice(("{} year old", "{} year old boy", "{} year old girl", "{}-year-old", "{} yr old"))
        return [Piece(form.format(self.rng.randint(2, 16)), "audience", slot.part, is_queried=True)]

    def _attribute(self, slot: Piece, filled: Filled) -> Piece:
        name = (slot.slot or "").lstrip("-")
        is_refused = (slot.slot or "").startswith("-")
        values = attributes().get((filled.vertical or "", name)) or attributes()["home-garden", name]
        said = self._said
        said.update(self._compared)
        value = self.rng.choice(values)
        for _ in range(20):
            if not any(set(value.split()) & set(other.split()) for other in said):
                break
            value = self.rng.choice(values)
        said.add(value)
        return Piece(value, name, slot.part, is_refused, is_queried=not is_refused)

    def _closed(self, name: str, filled: Filled) -> str:
        text, facts = closed_phrase(name, self.rng, filled.facts)
        filled.facts.update(facts)
        return text


def _with_articles(pieces: list[Piece]) -> list[Piece]:
    """ "an" before a vowel, and no article before a plural."""
    found: list[Piece] = []
    for at, piece in enumerate(pieces):
        following = pieces[at + 1] if at + 1 < len(pieces) else None
        if piece.facet is None and piece.text == "a" and following is not None and following.is_queried:
            if following.text.endswith("s") and not following.text.endswith("ss"):
                continue
            piece = replace(piece, text="an") if following.text[:1] in "aeiou" else piece
        found.append(piece)
    return found
