"""The closed phrases of one utterance: price, currency, rating, sort, offers and refusals, with their positions.

They are read by rule, so that none of it depends on the model (docs/decisions/0023). The model decides what a question
is about, and whether it is about a product at all; nothing here looks at history.
"""

from typing import Final

from service.planner.fallback.reading.amounts import Amounts
from service.planner.fallback.reading.indifferent import ANY, Indifference
from service.planner.fallback.reading.language_data import LanguageData
from service.planner.fallback.reading.phrases import OFFERS, Phrases, Refusal, SpokenPrice
from service.planner.fallback.reading.prices import PricePhrase, Prices, merge
from service.planner.fallback.reading.ratings import Ratings
from service.planner.fallback.reading.refusals import AFTER, CUES, Refusals, RefusedTokens
from service.planner.fallback.reading.tokens import BREAKS, Words
from service.planner.fallback.reading.values import Value, Values

_LONGEST: Final = 24  # tokens of a phrase, hyphens included
_NEAR: Final = 6  # tokens
_SHORT: Final = 3  # tokens of an utterance
_NOTHING: Final = Phrases()
_NONE: Final[frozenset[str]] = frozenset()
_MAX_DAYS: Final = 10  # "in 30 days" is no fast delivery


class Utterances:
    """What the phrases of one language mean."""

    def __init__(self, data: LanguageData) -> None:
        self.amounts = Amounts(data)
        self.values = Values(data)
        self.prices = Prices(data, self.amounts)
        self.refusals = Refusals(data, self.values)
        self.ratings = Ratings(data)
        self.indifference = Indifference(data)
        spoken = (*data.names("sort."), *data.names("offer."))
        self.closed = data.trie(*CUES, AFTER, "drop", *spoken, *data.names("lift."), "name")
        self.spoken = data.trie(*spoken)
        self.numbered = data.trie(*data.names("offer."), of_numbers=True)
        self.withdraw = data.trie("withdraw", backwards=True)
        self.remove = data.trie("remove")
        self.begins = self.closed.starts | self.remove.starts | self.indifference.begins
        self.apart = data.trie("price.apart")
        self.statements = {cue: frozenset(words.split()) for cue, words in data.table("refuse.statements").items()}
        self.denials = {cue: frozenset(words.split()) for cue, words in data.table("refuse.denials").items()}
        self.unsorted = data.words("word.sort.alone")
        self.sorting = data.words("word.sort.verbs")
        self.sorted_by = data.words("word.sort.by")
        self.directions = data.words("word.sort.directions")
        self.free = data.words("word.free")


class Reading:
    """One pass over an utterance; `taken` are the tokens that belong to a phrase and leave the queries."""

    def __init__(self, language: Utterances, words: Words, territory: str | None) -> None:
        self.words = words
        self.taken: set[int] = set()
        self.names: set[int] = set()  # tokens that only look like a phrase
        self.dropped: set[int] = set()  # tokens of courtesy, which may also begin a lead-in: "hätte gerne"
        self.refused: list[Value] = []
        self.removed: list[str] = []  # words that are taken back
        self._language = language
        self._territory = territory
        self._phrases: list[tuple[int, int]] = []  # tokens
        self._rating: float | None = None
        self._sort = "relevance"
        self._sorted_until = 0  # the token after the phrase that said so
        self._offers: set[str] = set()
        self._refusals: list[Refusal] = []
        self._lifted: set[str] = set()

    def phrases(self) -> Phrases:
        """Read the utterance, once. Total, and linear in its length but for its longest phrases."""
        self._read_ratings()
        prices, together = self._read_prices()
        self._scan()
        span = self.words.span
        if not (self.taken or self.names or self._lifted):
            return _NOTHING
        if together.min is not None or together.max is not None:
            self._lifted.discard("price")
        return Phrases(
            prices=tuple([SpokenPrice(p.min, p.max, p.currency, span(p.first, p.end), p.is_told) for p in prices]),
            price_min=together.min,
            price_max=together.max,
            currency=together.currency,
            rating_min=self._rating,
            sort=self._sort,
            offers=tuple([offer for offer in OFFERS if offer in self._offers]),
            refused=tuple(self._refusals),
            lifted=frozenset(self._lifted),
            spans=self.words.spans(self._phrases),
            names=self.words.spans([(index, index + 1) for index in self.names]),
        )

    def take(self, first: int, end: int) -> int:
        """Take tokens [first, end) out of the queries, and return their end."""
        self.taken.update(range(first, end))
        self._phrases.append((first, end))
        return end

    def is_free(self, first: int, end: int) -> bool:
        return self.taken.isdisjoint(range(first, end))

    def _read_ratings(self) -> None:
        for rating in self._language.ratings.find(self.words):
            if self.is_free(rating.first, rating.end):
                self._rating = rating.min if self._rating is None else self._rating
                self.take(rating.first, rating.end)

    def _read_prices(self) -> tuple[list[PricePhrase], PricePhrase]:
        """Return the price phrases, and what they say together."""
        skipped = frozenset(self.taken | self._numbers_of_offers())
        prices = self._language.prices.find(self.words, skipped, self._territory)
        together = merge(prices)
        for price in prices:
            self.take(price.first, price.end)
        if prices:
            self._take_apart()
        return prices, together

    def _numbers_of_offers(self) -> set[int]:
        """Return the numbers of "20% off" and "2 day shipping", which are no prices."""
        found: set[int] = set()
        numbered = self._language.numbered
        if not self.words.numbers:
            return found
        for at in self.words.beginnings(numbered.starts):
            if match := numbered.match(self.words, at):
                found.update(range(at, at + match[0]))
        return found

    def _take_apart(self) -> None:
        """Take words about the price that stand apart from it: "my budget for the tent is 150"."""
        apart = self._language.apart
        for at in [at for at, text in enumerate(self.words.texts) if text in apart.starts]:
            match = apart.match(self.words, at)
            if match and self.is_free(at, at + match[0]):
                self.take(at, at + match[0])

    def _scan(self) -> None:
        """Read sort, offers, refusals and what is taken back, token by token, the longest phrase first."""
        words, language = self.words, self._language
        end = 0  # of what was read last
        for at in words.beginnings(language.begins):
            if at < end or at in self.taken:
                continue
            text = words.texts[at]
            most = range(at, min(at + _LONGEST, len(words.texts)))
            stop = next((index for index in most if index in self.taken), None) if self.taken else None
            match = language.closed.match(words, at, stop)
            found = language.indifference.find(words, at) if text in language.indifference.begins else None
            if found and (match is None or found.end - at >= match[0]):
                end = self.take(found.first, found.end)
            if found and found.attribute != ANY:
                self._lifted.add(found.attribute)  # also before more of a refusal: "any colour but red"
            if end > at:
                continue
            back = language.remove.match(words, at, stop) if text in language.remove.starts else None
            if back and (match is None or back[0] >= match[0]):
                end = self._remove(at, back[0])
            elif match is not None:
                end = self._say(match[1], at, at + match[0])

    def _say(self, label: str, first: int, end: int) -> int:
        kind, _, value = label.partition(".")
        if label == AFTER:
            return self._refuse_before(first, end)
        if kind == "refuse":
            return self._refuse(first, end - first, label)
        if kind == "name":
            self.names.update(range(first, end))
            return end
        if kind == "drop":
            self.dropped.update(range(first, end))
        elif kind == "lift":
            self._lifted.add(value)
        elif (start := self._withdrawn(first)) is not None:
            first = start
            self._lifted.add(value if kind == "offer" else "sort")
        elif kind == "sort":
            if self._language.unsorted.issuperset(self.words.texts[first:end]) and len(self.words.texts) > _SHORT:
                return end  # "which is cheaper to run" sorts nothing
            if self._language.directions.issuperset(self.words.texts[first:end]) and not self._is_direction(first):
                return end  # "a descending colon"
            self._order(value, first, end)
        elif (start := self._offer(value, first, end)) is not None:
            first = start
        else:
            return end
        return self.take(first, end)

    def _order(self, order: str, first: int, end: int) -> None:
        """Note an order: the first one that is said, but that of prices goes before that of ratings.

        What follows an order by price at once says its direction ("by price, high to low"), and a verb at the
        beginning is no part of what is wanted ("sort backpacks by price").
        """
        texts, is_price = self.words.texts, order.startswith("price_")
        if self._sort == "relevance" or (is_price and (self._sort == "rating" or self._is_direction(first))):
            self._sort = order
        if texts[first] in self._language.sorted_by and texts[0] in self._language.sorting:
            self.take(0, 1)
        self._sorted_until = end

    def _is_direction(self, first: int) -> bool:
        """Tell whether a phrase follows an order by price, with nothing but marks between."""
        between = self.words.texts[self._sorted_until : first]
        return self._sort.startswith("price_") and not any(map(str.isalnum, between))

    def _offer(self, offer: str, first: int, end: int) -> int | None:
        """Note an offer, and return the first token of its phrase; None where it is none: "in 30 days"."""
        texts = self.words.texts
        if offer == "fast_delivery":
            if any(text.isdecimal() and int(text) > _MAX_DAYS for text in texts[first:end]):
                return None
            if not self._language.free.isdisjoint(texts[max(0, first - 1) : end]):  # "free next day delivery"
                self._offers.add("free_shipping")
                first -= self.words.at(first - 1) in self._language.free
        self._offers.add(offer)
        return first

    def _withdrawn(self, first: int) -> int | None:
        """Return the first token of the words that withdraw a phrase: "it doesn't have to be on sale"."""
        match = self._language.withdraw.match(self.words, first - 1)
        return first - match[0] if match and first - match[0] not in self.taken else None

    def _remove(self, first: int, length: int) -> int:
        """Take "quita lo de impermeable", "es muss nicht blau sein": the rest names what is taken back."""
        words, at = self.words, first + length
        after = self._language.spoken.match(words, at)
        if after:
            self._lifted.add("sort" if after[1].startswith("sort.") else after[1].partition(".")[2])
            return self.take(first, at + after[0])
        if found := self._language.indifference.after_cue(words, first, at):
            self._lifted.add(found.attribute)
            return self.take(found.first, found.end)
        end = at
        while end < len(words.texts) and words.texts[end] not in BREAKS and end not in self.taken:
            end += 1
        self.removed += words.texts[at:end]
        return self.take(first, end)

    def _refuse(self, first: int, length: int, label: str) -> int:
        if self._is_no_refusal(first, first + length):
            return first + length
        refused = self._language.refusals.read(self.words, first, length, self.taken, label)
        if refused is None:
            return first + length
        self._note(refused)
        return self.take(refused.first, refused.end)

    def _refuse_before(self, first: int, end: int) -> int:
        """Refuse the few words before a cue, back to a break: "nein, samsung will ich nicht"."""
        texts, start = self.words.texts, first
        while start > 0 and start - 1 not in self.taken and texts[start - 1] not in BREAKS:
            start -= 1
        while start < first and texts[start] in self._language.refusals.stop:
            start += 1
        if not 0 < first - start <= self._language.refusals.most_words:
            return end
        self._note(RefusedTokens(start, end, ((start, first),)))
        return self.take(start, end)

    def _note(self, refused: RefusedTokens) -> None:
        words = self.words
        values = tuple(words.span(*value) for value in refused.values)
        self._refusals.append(Refusal(values, words.span(refused.first, refused.end)))
        for start, end in refused.values:
            self.refused.append(Value(self._language.values.facet_at(words, start) or "feature", start, end))

    def _is_no_refusal(self, first: int, end: int) -> bool:
        """Tell whether a cue refuses no thing: in a statement, or before a sort or an offer."""
        words, language = self.words, self._language
        cue, before = words.at(first), words.at(first - 1)
        if not language.denials.get(cue, _NONE).isdisjoint(words.texts[max(0, first - _NEAR) : first]):
            self.names.update(range(first, min(end + 1, len(words.texts))))
            return True  # "can't live without coffee"
        if before in language.statements.get(cue, _NONE):
            return True  # "i am not", "my kitchen has no shelf" say what is
        return language.spoken.match(words, end) is not None
