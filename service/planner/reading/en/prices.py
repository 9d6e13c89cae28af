"""Price bounds from the phrases that name them ("under $50", "between 15 and 37", "about 200 bucks"), by rule.

A number is a price when a phrase or a currency says so and nothing else claims it: a unit, a size, a model, an age.
"""

from dataclasses import dataclass, replace
from typing import Final

from service.planner.reading.en.amounts import Amount, find_amounts
from service.planner.reading.en.claims import SPENDING, YEARS, Claims
from service.planner.reading.en.data import PHRASES
from service.planner.reading.tokens import Words

AROUND: Final = 0.2  # "around 100" is 80 to 120, as the contract of plan version 2 says

_BEFORE = PHRASES.trie(
    "price.high", "price.high.lone", "price.low", "price.low.money", "price.around", "price.around.money",
    "price.between", backwards=True,
)  # fmt: skip
_AFTER = PHRASES.trie("price.after.high", "price.after.low", "price.after.around")
_LEAD = PHRASES.trie("price.lead", backwards=True)
_TAIL = PHRASES.trie("price.tail")
_WEIGHED = PHRASES.words("price.weighed")
_LEAST_STERLING: Final = 10  # "under 3 pounds" is a weight
_STERLING_CUES: Final = frozenset(("price.high", "price.around"))
_LEAST_FROM_TO: Final = 10  # "from 1 to 3" is a count
_WEAK_LEADS = frozenset(PHRASES.sections["price.lead.weak"])
_PRICE_NAMES: Final = frozenset(("fisher", "half", "vincent", "kelley"))  # "fisher price" names no price
_SORTING: Final = frozenset(("by", "highest", "lowest"))  # "sort by price under 30"
_FLIPS = PHRASES.words("price.flips")
_BETWEEN_FLIP_AND_CUE = PHRASES.words("price.between.flip")


@dataclass(frozen=True, slots=True)
class PricePhrase:
    """One price phrase: its bounds, its currency where it names one, and its tokens [first, end)."""

    min: float | None
    max: float | None
    currency: str | None
    first: int
    end: int


NO_PRICE: Final = PricePhrase(None, None, None, 0, 0)


def merge(prices: list[PricePhrase]) -> PricePhrase:
    """Merge several price phrases: the first lower and the first upper bound that agree."""
    merged = NO_PRICE
    for price in prices:
        if merged.min is None and price.min is not None and (merged.max is None or price.min <= merged.max):
            merged = replace(merged, min=price.min)
        if merged.max is None and price.max is not None and (merged.min is None or merged.min <= price.max):
            merged = replace(merged, max=price.max)
        if merged.currency is None:
            merged = replace(merged, currency=price.currency)
    return merged


def find_prices(words: Words, taken: frozenset[int] = frozenset()) -> list[PricePhrase]:
    """Return every price phrase in order, without overlaps; `taken` are tokens with another meaning (stars)."""
    amounts = find_amounts(words, taken)
    if not amounts:
        return []
    return _Reader(words, amounts, taken).read()


class _Reader:
    """Reads the price phrases around the amounts of one text."""

    def __init__(self, words: Words, amounts: list[Amount], taken: frozenset[int]) -> None:
        self._words = words
        self._claims = Claims(words, taken)
        self._amounts = [self._weighed(amount) for amount in amounts]
        self._starts = frozenset(amount.first for amount in amounts)
        self._found: list[PricePhrase] = []

    def read(self) -> list[PricePhrase]:
        at = 0
        while at < len(self._amounts):
            amount = self._amounts[at]
            following = self._amounts[at + 1] if at + 1 < len(self._amounts) else None
            price = self._range(amount, following) if following else None
            at += 2 if price else 1
            price = price or self._before(amount) or self._after(amount)
            if price:
                self._found.append(self._grown(price))
        lone = [] if self._found else [amount for amount in self._amounts if self._is_lone(amount)]
        if len(lone) == 1:  # "$10 candles": whoever names one sum means to spend no more
            (one,) = lone
            first = self._lone_cue(one)
            return [self._grown(PricePhrase(None, one.value, one.currency, first, one.end))]
        return self._found

    def _range(self, low: Amount, high: Amount) -> PricePhrase | None:
        """Match "$20-$40", "between 15 and 37 euros", "from 200 to 120"."""
        words = self._words
        joined = words.texts[low.end : high.first]
        cue = self._cue(low.first)
        kind = cue[1] if cue else ""
        is_between = kind == "price.between"
        is_from = kind in ("price.between", "price.low.money")
        if joined not in (["-"], ["–"], ["—"], ["to"], ["and"], ["~"], ["or"]) and not (
            is_from and joined in (["up", "to"], ["down", "to"])
        ):
            return None
        if joined == ["or"] or (joined == ["and"] and not is_between):
            return None
        first, end = (cue[0] if cue else low.first), high.end
        if not high.is_money and not low.is_money:
            if self._claims.measures(high) or self._claims.measures(low) or self._claims.is_labelled(first):
                return None
            if self._claims.is_size(first, low, high) or (kind == "price.low.money" and high.value < _LEAST_FROM_TO):
                return None
            if not (is_between or kind == "price.low.money" or self._speaks_of_price(first)):
                if not self._claims.is_bare_range(low, high):
                    return None
            elif not is_between and low.value in YEARS and high.value in YEARS:
                return None
        elif high.end in self._claims.other_money:
            return None
        elif high.has_prefix and not low.is_money and joined != ["to"] and not words.touches(low.end):
            return None  # "iphone 15 - $500"
        smaller, larger = sorted((self._scaled(low, high), high.value))
        return PricePhrase(smaller, larger, high.currency or low.currency, first, end)

    def _scaled(self, low: Amount, high: Amount) -> float:
        """Scale a range: "1-2k" is 1000 to 2000."""
        is_thousands = self._words.texts[high.end - 1].endswith("k") and low.value < high.value / 1000
        return low.value * 1000 if is_thousands else low.value

    def _before(self, amount: Amount) -> PricePhrase | None:
        """Match "under 50", "at least $20", "around 30 euros"."""
        cue = self._cue(amount.first) or self._apart_cue(amount.first)
        if cue is None:
            return None
        first, kind, phrase = cue
        is_money = amount.is_money
        if not is_money:
            if kind.endswith(".money") or kind in ("price.between", "price.high.lone"):
                return None
            if kind == "price.around" and self._words.at(first - 1) in ("what", "how"):
                return None  # "what about 75?"
            if self._claims.measures(amount) or not self._claims.may_be_bare(
                amount, first, kind, phrase, follows_sum=self._is_after_amount(first)
            ):
                return None
        elif amount.end in self._claims.other_money or kind in ("price.between", "price.high.lone"):
            return None
        kind = kind.removesuffix(".money")
        if kind in ("price.high", "price.low"):
            flip = self._flip(first)
            if flip is not None and not phrase.startswith(("no ", "not ", "nothing ", "never ")):
                first, kind = flip, "price.low" if kind == "price.high" else "price.high"
        return self._bound(amount, kind, first, amount.end)

    def _after(self, amount: Amount) -> PricePhrase | None:
        """Match "50 or less", "$100 and up", "30 euros or so"."""
        match = _AFTER.match(self._words, amount.end)
        if match is None:
            return None
        length, kind = match
        end = amount.end + length
        phrase = " ".join(self._words.texts[amount.end : end])
        is_money = amount.is_money
        if (is_money and amount.end in self._claims.other_money) or self._leads_on(end):
            return None
        if not is_money:
            if self._claims.is_labelled(amount.first) or self._claims.measures(amount):
                return None
            if not self._claims.is_bare_bound(amount, kind, phrase, end):
                return None
        elif amount.end < len(self._words.texts) and phrase in ("+", "plus") and self._words.at(end)[:1].isdigit():
            return None
        return self._bound(amount, kind.replace(".after", ""), amount.first, end)

    def _leads_on(self, end: int) -> bool:
        """Tell whether the words before token `end` belong to the next amount: "min 300 max 500"."""
        while self._words.at(end) in ("price", "of", ":"):
            end += 1
        return end in self._starts

    def _bound(self, amount: Amount, kind: str, first: int, end: int) -> PricePhrase:
        if kind == "price.around":
            low, high = (round(amount.value * factor, 2) for factor in (1 - AROUND, 1 + AROUND))
            return PricePhrase(low, high, amount.currency, first, end)
        if kind == "price.high":
            return PricePhrase(None, amount.value, amount.currency, first, end)
        return PricePhrase(amount.value, None, amount.currency, first, end)

    def _cue(self, end: int) -> tuple[int, str, str] | None:
        """Return (first token, kind, phrase) of the cue that ends right before token `end`."""
        words = self._words
        at = end
        while (
            words.at(at - 1) in (":", "=", "of", "the", "a", "price", "cost") and _BEFORE.match(words, at - 1) is None
        ):
            at -= 1
        match = _BEFORE.match(words, at - 1)
        if match is None:
            return None
        first, kind = at - match[0], match[1]
        while words.at(first - 1) in (":", "of", "price", "cost", "is", "be", "a", "the", "say", "like", "only"):
            outer = self._outer(first)
            if outer is None or kind == "price.between":
                break
            first, kind = outer
        if kind.startswith("price.around") and (outer := self._outer(first)):
            first, kind = (outer[0], outer[1] if self._is_strict(outer[0], first) else kind)
        return first, kind, " ".join(words.texts[first:end])

    def _apart_cue(self, end: int) -> tuple[int, str, str] | None:
        """Find a cue that stands apart from its amount: "my budget for a lamp is 40"."""
        words = self._words
        if words.at(end - 1) not in ("is", "=", "would") or not {"budget", "limit"} & set(words.texts[: end - 1]):
            return None
        return end - 1, "price.high", "budget is"

    def _outer(self, first: int) -> tuple[int, str] | None:
        """Find a cue before a cue: "under a price of", "no more than around"."""
        at = first
        while self._words.at(at - 1) in (":", "of", "price", "cost", "is", "be", "a", "the", "say", "like", "only"):
            match = _BEFORE.match(self._words, at - 1)
            if match:
                break
            at -= 1
        match = _BEFORE.match(self._words, at - 1)
        return (at - match[0], match[1]) if match and match[1] != "price.high.lone" else None

    def _is_strict(self, first: int, end: int) -> bool:
        """Tell whether a cue stays a bound before "around": "under about 50", but not "spend about 50"."""
        return not SPENDING.search(" ".join(self._words.texts[first:end]))

    def _flip(self, first: int) -> int | None:
        """Find the token that reverses a bound: "don't want to spend more than"."""
        at = first - 1
        while at >= 0 and first - at <= 6 and self._words.at(at) in _BETWEEN_FLIP_AND_CUE:
            at -= 1
        return at if self._words.at(at) in _FLIPS else None

    def _weighed(self, amount: Amount) -> Amount:
        """Return the amount as pounds sterling, unless "30 pounds" may be a weight: of a dog, or what a thing holds."""
        if not amount.pounds:
            return amount
        texts, cue = self._words.texts, self._cue(amount.first)
        is_bound = cue is not None and cue[1] in _STERLING_CUES and not cue[2].startswith("up to")
        follows = (
            cue is not None and cue[1] == "price.high.lone" and _AFTER.match(self._words, amount.end + 1) is not None
        )
        is_sterling = (is_bound or follows) and amount.value >= _LEAST_STERLING and _WEIGHED.isdisjoint(texts)
        if is_sterling or SPENDING.search(" ".join(texts[max(0, amount.first - 4) : amount.first])):
            return amount._replace(currency="GBP", end=amount.end + 1, is_money=True)
        return amount

    def _is_after_amount(self, first: int) -> bool:
        return any(amount.end == first and self._cue(amount.first) for amount in self._amounts)

    def _speaks_of_price(self, first: int) -> bool:
        return any(SPENDING.search(text) for text in self._words.texts[max(0, first - 3) : first])

    def _is_lone(self, amount: Amount) -> bool:
        is_word_code = amount.has_prefix and not amount.is_money
        return amount.is_money and not is_word_code and not self._claims.is_value(amount) and amount.value > 0

    def _lone_cue(self, amount: Amount) -> int:
        match = _BEFORE.match(self._words, amount.first - 1)
        return amount.first - match[0] if match and match[1] == "price.high.lone" else amount.first

    def _grown(self, price: PricePhrase) -> PricePhrase:
        """Extend the phrase by adjacent words about the price: "my budget is", "each", "in total"."""
        first, end = price.first, price.end
        floor = self._found[-1].end if self._found else 0
        while (match := _TAIL.match(self._words, end)) and not self._leads_on(end + match[0]):
            end += match[0]
        reached = first
        while (match := _LEAD.match(self._words, first - 1)) and first - match[0] >= floor:
            if self._words.at(first - match[0] - 1) in _PRICE_NAMES | _SORTING:
                break
            first -= match[0]
            if " ".join(self._words.texts[first : first + match[0]]) not in _WEAK_LEADS:
                reached = first
        return replace(price, first=reached, end=end)
