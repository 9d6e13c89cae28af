"""The closed phrases of one utterance: price, currency, rating, sort, offers and refusals, with their positions.

They are read by rule, so that none of it depends on the model (docs/decisions/0023). The model decides what a question
is about, and whether it is about a product at all; nothing here looks at history.
"""

from typing import Final

from service.planner.reading.en import indifferent
from service.planner.reading.en.data import PHRASES
from service.planner.reading.en.prices import NO_PRICE, PricePhrase, find_prices, merge
from service.planner.reading.en.ratings import find_ratings
from service.planner.reading.en.refusals import RefusedTokens, read_refusal
from service.planner.reading.phrases import OFFERS, SORTS, Phrases, Refusal, Span, SpokenPrice
from service.planner.reading.tokens import Words

_SORTS = tuple(f"sort.{sort}" for sort in SORTS[1:])
_OFFERS = tuple(f"offer.{offer}" for offer in OFFERS)
_LIFTS = ("lift.price", "lift.rating", "lift.sort")
_CLOSED = PHRASES.trie("indifferent", "refuse", *_SORTS, *_OFFERS, *_LIFTS, "slogan", "name")
_APART = PHRASES.trie("price.apart")
_TAKE_BACK = PHRASES.trie("take back", backwards=True)
_QUOTES = PHRASES.words("quote")
_STATEMENTS: Final = {  # "i am not", "my kitchen has no shelf" say what is
    "not": frozenset("is are am was were be to do does did we".split()),
    "no": frozenset("have has had is are was got get there's".split()),
}
_SHORT: Final = 3  # tokens
_LONGEST: Final = 24  # tokens of a phrase, hyphens included
_FREE: Final = "free"
_CANNOT: Final = frozenset("can't cannot cant couldn't couldnt".split())  # "can't live without coffee" refuses nothing
_TURNS: Final = frozenset("make change switch wait sorry actually i i'm it's that's let's".split())
_NEAR: Final = 6  # tokens
MAX_DAYS: Final = 10  # "in 30 days" is no fast delivery


_NOTHING = Phrases()


def read_phrases(utterance: str) -> Phrases:
    """Read the closed phrases of one utterance. Total, and linear in the text's length."""
    words = Words(utterance)
    return _Reading(words).read() if words.texts else _NOTHING


class _Reading:
    """One pass over a text; `_taken` are the tokens that already belong to a phrase."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._taken: set[int] = set()
        self._spans: list[Span] = []
        self._names: list[Span] = []
        self._rating: float | None = None
        self._sort = "relevance"
        self._offers: dict[str, None] = {}
        self._refused: list[Refusal] = []
        self._lifted: set[str] = set()

    def read(self) -> Phrases:
        quoted = self._quoted()
        self._read_ratings()
        off = self._off_tokens()
        prices = find_prices(self._words, frozenset(self._taken | quoted | off))
        for price in prices:
            self._take(price.first, price.end)
        if prices:
            self._take_apart()
        self._scan(quoted)
        together = merge(prices) if prices else NO_PRICE
        if together.min is not None or together.max is not None:
            self._lifted.discard("price")
        return Phrases(
            prices=tuple(self._price(price) for price in prices),
            price_min=together.min,
            price_max=together.max,
            currency=together.currency,
            rating_min=self._rating,
            sort=self._sort,
            offers=tuple(offer for offer in OFFERS if offer in self._offers),
            refused=tuple(self._refused),
            lifted=frozenset(self._lifted),
            spans=tuple(sorted(self._spans)),
            names=tuple(self._names),
        )

    def _price(self, price: PricePhrase) -> SpokenPrice:
        return SpokenPrice(price.min, price.max, price.currency, self._words.span(price.first, price.end))

    def _take(self, first: int, end: int) -> int:
        self._taken.update(range(first, end))
        self._spans.append(self._words.span(first, end))
        return end

    def _read_ratings(self) -> None:
        for rating in find_ratings(self._words):
            self._rating = rating.min if self._rating is None else self._rating
            self._take(rating.first, rating.end)

    def _take_apart(self) -> None:
        """Mark words about the price that stand apart from it: "my budget for the tent is 150"."""
        for at in range(len(self._words.texts)):
            if at in self._taken or self._words.texts[at] not in _APART.starts:
                continue
            match = _APART.match(self._words, at)
            if match and not any(index in self._taken for index in range(at, at + match[0])):
                self._take(at, at + match[0])

    def _off_tokens(self) -> set[int]:
        """Return the numbers of "20% off" and "2 day shipping", which are no prices."""
        found: set[int] = set()
        texts = self._words.texts
        for at, text in enumerate(texts):
            if text[0].isdigit() or text == "$":
                match = _CLOSED.match(self._words, at)
                if match and match[1].startswith("offer."):
                    found.update(range(at, at + match[0]))
        return found

    def _quoted(self) -> set[int]:
        """Return the tokens inside quotation marks: text printed on a product does not describe it."""
        if _QUOTES.isdisjoint(self._words.texts):
            return set()
        marks = [
            at
            for at, text in enumerate(self._words.texts)
            if text in _QUOTES and not (at and self._words.texts[at - 1][:1].isdigit() and self._words.touches(at - 1))
        ]
        return {at for first, last in zip(marks[::2], marks[1::2], strict=False) for at in range(first, last + 1)}

    def _scan(self, quoted: set[int]) -> None:
        """Read sort, offers, refusals and withdrawn phrases, token by token, the longest phrase first."""
        words, at = self._words, 0
        while at < len(words.texts):
            if at in self._taken or at in quoted:
                at += 1
                continue
            text = words.texts[at]
            if text in indifferent.ATTRIBUTES and (shrugged := indifferent.before_cue(words, at)):
                at = self._take(*shrugged)
                continue
            if text not in _CLOSED.starts and not text[0].isdigit():
                at += 1
                continue
            stop = next(
                (index for index in range(at, min(at + _LONGEST, len(words.texts))) if index in self._taken), None
            )
            match = _CLOSED.match(words, at, stop)
            if match is None:
                at += 1
                continue
            length, label = match
            if label == "slogan":
                return
            end = at + length
            if label == "refuse":
                end = self._refuse(at, length)
            elif label == "indifferent":
                shrugged = indifferent.after_cue(words, at, end)
                end = self._take(*shrugged) if shrugged else at + 1
            elif label == "name":
                self._names.append(words.span(at, end))
            else:
                self._say(label, at, end)
            at = end

    def _say(self, label: str, first: int, end: int) -> None:
        kind, _, value = label.partition(".")
        if value == "fast_delivery" and any(
            text.isdecimal() and int(text) > MAX_DAYS for text in self._words.texts[first:end]
        ):
            return
        if kind == "lift":
            self._lifted.add(value)
        elif (back := self._taken_back(first)) is not None:
            first = back
            self._lifted.add(value if kind == "offer" else "sort")
        elif kind == "sort":
            if self._words.texts[first:end] == ["cheaper"] and len(self._words.texts) > _SHORT:
                return  # "which is cheaper to run" sorts nothing
            self._sort = value if self._sort == "relevance" else self._sort
        else:
            self._offers[value] = None
            if value == "fast_delivery" and _FREE in self._words.texts[max(0, first - 1) : end]:
                self._offers["free_shipping"] = None
                first -= self._words.at(first - 1) == _FREE
        self._take(first, end)

    def _taken_back(self, first: int) -> int | None:
        """Return the first token of the words that withdraw a phrase: "it doesn't have to be on sale"."""
        starts = [first]
        if self._words.at(first - 1) in ("the", "be", "any", "a"):
            starts.append(first - 1)
        for start in starts:
            match = _TAKE_BACK.match(self._words, start - 1)
            if match and start - match[0] not in self._taken:
                return start - match[0]
        return None

    def _refuse(self, first: int, length: int) -> int:
        if self._words.at(first + length) in (",", ".", "!") and length == 1 and self._words.at(first) == "no":
            return first + length
        cue, before = self._words.at(first), self._words.at(first - 1)
        if cue == "no" and self._words.at(first + length) in _TURNS:
            return first + length  # "no, make that orange"
        if cue == "without" and not _CANNOT.isdisjoint(self._words.texts[max(0, first - _NEAR) : first]):
            self._names.append(self._words.span(first, min(first + length + 1, len(self._words.texts))))
            return first + length
        is_statement = before in _STATEMENTS.get(cue, ()) or (cue == "apart" and "sets" in self._words.texts[:first])
        if is_statement or self._is_sort_or_offer(first + length):
            return first + length
        refused = read_refusal(self._words, first, length, self._taken)
        if refused is None:
            return first + length
        self._add(refused)
        return refused.end

    def _is_sort_or_offer(self, at: int) -> bool:
        """Tell whether a negation withdraws a sort or an offer, not a product: "not the cheapest", "no deals"."""
        while self._words.at(at) in ("the", "a", "any"):
            at += 1
        match = _CLOSED.match(self._words, at)
        return match is not None and match[1].startswith(("sort.", "offer."))

    def _add(self, refused: RefusedTokens) -> None:
        values = tuple(self._words.span(first, end) for first, end in refused.values)
        self._refused.append(Refusal(values, self._words.span(refused.first, refused.end)))
        self._take(refused.first, refused.end)
