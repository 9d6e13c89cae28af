"""The plan of a question in a language that is read by data alone: the same whether a model or rules were asked.

The model was trained to say only that such a question is in another language. Queries keep the shopper's own words.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from service.planner.fallback.making.follow_ups import REPLACED
from service.planner.fallback.reading.phrases import OFFERS
from service.planner.fallback.reading.reader import Reader
from service.planner.fallback.reading.wishes import Said
from service.planner.plan import Mode, Plan, Price, Rating
from service.planner.question import Question
from service.planner.vocabulary import DEFAULT_INTENT, Vocabulary

_MEASURED = frozenset(("size", "count"))
_SURE = frozenset(("brand", "line", "model", "size"))  # whatever the question is about
_LETTERS = frozenset("xs s m l xl xxl".split())  # sizes, after another size
_LONG = 7  # words of an utterance that tells rather than names


@dataclass(slots=True)
class Piece:
    """Words that are searched for together: `key` is how they are compared, `facet` what they surely name.

    `value` is what the shopper said of it in one place: of "42 cm" only "42", where the unit was said before.
    """

    text: str
    key: str
    facet: str | None = None
    unit: str = ""  # of a size: the words after its number
    value: str = ""

    def __post_init__(self) -> None:
        self.value = self.value or self.text


@dataclass(slots=True)
class Topic:
    """What stands of a conversation after its newest utterance."""

    pieces: list[Piece] = field(default_factory=list)
    excluded: dict[str, str] = field(default_factory=dict)  # facet by value
    price: Price = field(default_factory=Price)
    rating: float | None = None
    sort: str = "relevance"
    offers: tuple[str, ...] = ()


def plan_in_language(question: Question, reader: Reader, vocabulary: Vocabulary) -> Plan:
    """Return the plan of a question in the reader's language. Total: every question gets a valid plan."""
    intent = reader.intent(question.text) or DEFAULT_INTENT
    said = reader.read(question.text, question.locale)
    known = vocabulary.intents[intent]
    mode: Mode = "conversational" if said.asks or len(said.words.texts) > _LONG else "keyword"
    if known.sources == ():
        return Plan(mode=mode, intent=intent)
    sources = list(known.sources or list(vocabulary.sources)[:1])
    if not known.products:
        own = (word.text.strip("¿¡?!.,") for word in question.own_words)
        content = [text for text in own if text and reader.fold(text) not in reader.function_words]
        return Plan(mode=mode, intent=intent, sources=sources, queries=[" ".join(content) or question.text])
    topic = Topic()
    for utterance in question.utterances:
        if reader.intent(utterance) in (None, DEFAULT_INTENT) or utterance is question.text:
            topic = _Turn(topic, reader.read(utterance, question.locale), reader, is_first=not topic.pieces).topic()
    return _plan(topic, Plan(mode=mode, intent=intent, sources=sources), question, reader, vocabulary)


def _plan(topic: Topic, plan: Plan, question: Question, reader: Reader, vocabulary: Vocabulary) -> Plan:
    facets: dict[str, list[str]] = {}
    for piece in topic.pieces:
        if piece.facet not in _SURE:
            continue
        values = facets.setdefault(piece.facet, [])
        if piece.value not in values:
            values.append(piece.value)
    exclude: dict[str, list[str]] = {}
    for value, facet in topic.excluded.items():
        exclude.setdefault(facet, []).append(value)
    strict = " ".join(piece.text.lower() for piece in topic.pieces)
    telling = (piece for piece in topic.pieces if piece.facet or piece.key not in reader.function_words)
    content = " ".join(dict.fromkeys(piece.text.lower() for piece in telling))
    queries = [query for query in dict.fromkeys((strict, content)) if query] or [question.text]
    return plan.model_copy(
        update={
            "facets": {facet: values for facet, values in facets.items() if facet in vocabulary.facets},
            "exclude": {facet: values for facet, values in exclude.items() if facet in vocabulary.facets},
            "price": topic.price,
            "rating": Rating(min=topic.rating),
            "sort": topic.sort,
            "offers": list(topic.offers),
            "queries": queries,
        }
    )


class _Turn:
    """One utterance on top of what stands."""

    def __init__(self, before: Topic, said: Said, reader: Reader, *, is_first: bool) -> None:
        self._before = before
        self._said = said
        self._reader = reader
        self._pieces = self._own_pieces()
        self._starts_afresh = is_first or self._is_new()

    def topic(self) -> Topic:
        """Return what stands after the utterance."""
        before = Topic() if self._starts_afresh and self._before.pieces else self._before
        pieces = self._merged([] if self._starts_afresh else list(before.pieces))
        excluded = self._excluded(dict(before.excluded))
        pieces = self._without(pieces, lambda piece: self._is_refused(piece, excluded))
        phrases, lifted = self._said.phrases, self._said.lifted
        standing = tuple(offer for offer in before.offers if offer not in lifted)
        sort = "relevance" if "sort" in lifted else before.sort
        return Topic(
            pieces,
            excluded,
            self._price(before),
            self._rating(before),
            sort if phrases.sort == "relevance" else phrases.sort,
            tuple(offer for offer in OFFERS if offer in (*standing, *phrases.offers)),
        )

    def _own_pieces(self) -> list[Piece]:
        said, pieces = self._said, []
        by_token = {index: value for value in said.values for index in range(value.first, value.end)}
        at = 0
        kept = said.kept
        while at < len(kept):
            value = by_token.get(kept[at])
            end = at + 1
            while value and end < len(kept) and kept[end] < value.end:
                end += 1
            while (
                not value and end < len(kept) and said.words.touches(kept[end] - 1) and kept[end] == kept[end - 1] + 1
            ):
                if by_token.get(kept[end]):
                    break
                end += 1  # "wh-1000" and "l'eau" are one
            first, last = kept[at], kept[end - 1]
            text = self._source(first, last + 1)
            unit = self._source(first + 1, last + 1) if value and value.facet in _MEASURED and last > first else ""
            pieces.append(Piece(text, self._reader.fold(text), value.facet if value else None, unit))
            at = end
        return pieces

    def _source(self, first: int, end: int) -> str:
        start, stop = self._said.words.span(first, end)
        return self._said.words.source[start:stop]

    def _is_new(self) -> bool:
        """Tell whether the utterance begins a topic."""
        if self._said.begins:
            return True
        names = [p for p in self._pieces if p.facet is None and p.key not in self._reader.function_words]
        names = [p for p in names if not (p.key[:1].isdigit() or p.key in self._reader.labels or p.key in _LETTERS)]
        before = {piece.key for piece in self._before.pieces}
        if not names or any(_is_same(piece.key, key) for piece in names for key in before):
            return False
        return not (self._said.turns or self._pieces[0].key in self._reader.prepositions)

    def _merged(self, pieces: list[Piece]) -> list[Piece]:
        lifted = self._said.lifted
        pieces = self._without(pieces, lambda piece: piece.facet in lifted)
        gone = {self._reader.fold(word) for word in self._said.removed} - self._reader.function_words
        pieces = self._without(
            pieces, lambda old: any(_is_same(word, part) for part in old.key.split() for word in gone)
        )
        for piece in self._pieces:
            self._merge(pieces, piece)
        return pieces

    def _without(self, pieces: list[Piece], is_gone: Callable[[Piece], bool]) -> list[Piece]:
        """Return the pieces without those that are gone, nor the "de" that led to one."""
        kept: list[Piece] = []
        for piece in pieces:
            if not is_gone(piece):
                kept.append(piece)
                continue
            while kept and (kept[-1].key in self._reader.function_words or kept[-1].key in self._reader.labels):
                kept.pop()
        return kept

    def _merge(self, pieces: list[Piece], piece: Piece) -> None:
        if (
            any(old.key == piece.key for old in pieces)
            and not self._starts_afresh
            and piece.key not in self._reader.function_words
        ):
            return
        if self._starts_afresh:
            pieces.append(piece)
            return
        if piece.key in _LETTERS and any(old.facet == "size" for old in pieces):
            piece = replace(piece, facet="size")
        numbers = [at for at, old in enumerate(pieces) if old.facet == "size" and old.key[:1].isdigit()]
        if piece.facet is None and piece.key[:1].isdigit() and numbers:
            old = pieces[numbers[-1]]
            text = f"{piece.text} {old.unit}".strip() if old.unit else piece.text
            pieces[numbers[-1]] = Piece(text, self._reader.fold(text), "size", old.unit, piece.value)
            return
        place = self._replaced_by(pieces, piece)
        if place is None:
            pieces.append(piece)
            return
        pieces[place] = piece
        while pieces[-1] in self._pieces and pieces[-1].key in self._reader.function_words and place < len(pieces) - 1:
            pieces.pop()  # the "in" of "lieber in blau"

    def _replaced_by(self, pieces: list[Piece], piece: Piece) -> int | None:
        """Return the piece of before that this one replaces."""
        own = {id(own) for own in self._pieces}
        for at, old in enumerate(pieces):
            if id(old) in own or piece.facet not in REPLACED:
                continue
            if old.facet == piece.facet and (piece.facet not in _MEASURED or _unit(old) == _unit(piece)):
                return at
        return None

    def _excluded(self, excluded: dict[str, str]) -> dict[str, str]:
        wanted = {piece.key for piece in self._pieces}
        kept = {value: facet for value, facet in excluded.items() if self._reader.fold(value) not in wanted}
        kept = {value: facet for value, facet in kept.items() if facet not in self._said.lifted}
        gone = {self._reader.fold(word) for word in self._said.removed}
        kept = {value: facet for value, facet in kept.items() if self._reader.fold(value) not in gone}
        for value in self._said.refused:
            kept[self._source(value.first, value.end)] = value.facet
        return kept

    def _is_refused(self, piece: Piece, excluded: dict[str, str]) -> bool:
        return any(_is_same(self._reader.fold(value), piece.key) for value in excluded)

    def _rating(self, before: Topic) -> float | None:
        if (rating := self._said.phrases.rating_min) is not None:
            return rating
        return None if "rating" in self._said.lifted else before.rating

    def _price(self, before: Topic) -> Price:
        phrases, price = self._said.phrases, before.price
        if "price" in self._said.lifted:
            price = Price()
        if phrases.price_min is not None or phrases.price_max is not None:
            return Price(min=phrases.price_min, max=phrases.price_max, currency=phrases.currency or price.currency)
        return price


def _unit(piece: Piece) -> str:
    return piece.unit.lower().rstrip("s")


def _is_same(word: str, other: str) -> bool:
    """Tell whether two words are forms of one: "negro" and "negras", "blau" and "blaue"."""
    if word == other:
        return True
    stem = min(len(word), len(other))
    ending = max(len(word), len(other)) - stem
    if stem < 4:
        return stem == 3 and ending <= 2 and word[:3] == other[:3]  # "rot" and "rotes"
    return ending <= 2 and word[: stem - 1] == other[: stem - 1]
