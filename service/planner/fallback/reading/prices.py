"""Price bounds from the phrases that name them: "under $50", "entre 50 y 80 €", "50 oder weniger".

A number is a price when money stands beside it, or when a phrase says so and nothing else claims it.
"""

from typing import Final, NamedTuple

from service.planner import money
from service.planner.fallback.reading.amounts import Amount, Amounts
from service.planner.fallback.reading.claims import Claims
from service.planner.fallback.reading.language_data import LanguageData
from service.planner.fallback.reading.price_cues import (
    BESIDE_BREAKS,
    BETWEEN,
    FROM,
    HIGH,
    LOW,
    NEAR,
    OTHER,
    WEAK,
    Cue,
    Cues,
)
from service.planner.fallback.reading.tokens import Words

AROUND: Final = 0.2  # "around 100" is 80 to 120, as the contract of plan version 2 says
_LEAST_BARE: Final = 10  # "max 8" and "ab 3" are hardly prices
_LEAST_RANGE: Final = 100  # without a cue: "tv 300-500" is a price, "boys 10-12" is not
_NEAR_BY: Final = 4  # tokens
_DASHES: Final = ("-", "–", "—", "~", "/")


class PricePhrase(NamedTuple):
    """One price phrase: its bounds, its currency where it names one, its tokens [first, end); `is_told` is a bound."""

    min: float | None
    max: float | None
    currency: str | None
    first: int
    end: int
    is_told: bool = True


NO_PRICE: Final = PricePhrase(None, None, None, 0, 0)


class Prices:
    """Finds the price phrases of utterances in one language."""

    def __init__(self, data: LanguageData, amounts: Amounts) -> None:
        self._amounts = amounts
        self._claims = Claims(data)
        self._cues = Cues(data, self._claims)
        self._after = data.trie("price.after.high", "price.after.low", "price.after.around")
        self._lead = data.trie("price.lead", backwards=True)
        self._tail = data.trie("price.tail")
        self._joins = data.words("word.price.joins")
        self._weights = data.table("money.weights")
        self._weighed = data.words("word.price.weighed")
        self._spending = self._cues.soft | data.words("word.price.spending")
        self._least_upwards = float(data.table("price.least").get("after low", _LEAST_BARE))

    def find(self, words: Words, taken: frozenset[int], territory: str | None) -> list[PricePhrase]:
        """Return every price phrase in order, without overlaps; `taken` are tokens with another meaning (stars)."""
        amounts = self._amounts.find(words, taken, territory)
        return _Reading(self, words, amounts, taken).read() if amounts else []


class _Reading:
    """The price phrases around the amounts of one text."""

    def __init__(self, language: Prices, words: Words, amounts: list[Amount], taken: frozenset[int]) -> None:
        self._language = language
        self._words = words
        self._taken = taken
        self._found: list[PricePhrase] = []
        weights = language._weights
        self._amounts = amounts  # which tell whether one ends a range
        self._amounts = [self._as_money(one) if words.at(one.end) in weights else one for one in amounts]

    def read(self) -> list[PricePhrase]:
        at = 0
        while at < len(self._amounts):
            amount = self._amounts[at]
            following = self._amounts[at + 1] if at + 1 < len(self._amounts) else None
            price = self._range(amount, following) if following else None
            at += 2 if price else 1
            price = price or self._bound(amount)
            if price and price.first >= self._floor:
                self._found.append(self._grown(price))
        if not self._found:
            lone = [amount for amount in self._amounts if self._is_lone(amount)]
            self._found = [self._grown(self._lone(amount)) for amount in lone] if len(lone) == 1 else []
        return self._found

    @property
    def _floor(self) -> int:
        return self._found[-1].end if self._found else 0

    def _range(self, low: Amount, high: Amount) -> PricePhrase | None:
        """Match "entre 50 y 80 €", "50-80 euros", "von 50 bis 80"."""
        words, claims = self._words, self._language._claims
        cue = self._cue(low.first)
        is_told = cue is not None and (cue.kind in (BETWEEN, FROM, LOW, WEAK) or cue.is_soft)
        if not self._is_joined(low, high, is_told=is_told) or claims.is_off(words, high):
            return None
        if claims.measures(words, low) or claims.measures(words, high):
            return None
        is_surely_told = is_told and cue is not None and cue.kind != WEAK
        if not (low.is_money or high.is_money):
            if is_surely_told:
                is_price = min(low.value, high.value) >= _LEAST_BARE and self._ends(high.end)
            else:
                is_price = self._is_bare_range(low, high)
            if not is_price:
                return None
        if not is_told and claims.is_labelled(words, low.first):
            return None
        first = cue.first if cue and (is_told or cue.kind == NEAR) else low.first
        small, large = sorted((low.value, high.value))
        if words.texts[high.end - 1] == "k" and small < large / 1000:  # "1-2k"
            small *= 1000
        return PricePhrase(small, large, high.currency or low.currency, first, high.end)

    def _is_joined(self, low: Amount, high: Amount, *, is_told: bool) -> bool:
        joined = self._words.texts[low.end : high.first]
        if len(joined) == 1 and (joined[0] in self._language._joins or joined[0] in _DASHES):
            return True
        second = self._language._cues.match(self._words, high.first - 1, self._taken)
        is_bound = second is not None and is_told and second[1] in (HIGH, WEAK)
        return is_bound and second is not None and second[0] - low.end <= 1  # "desde 50 euros hasta 80"

    def _is_bare_range(self, low: Amount, high: Amount) -> bool:
        """Match "tv 300-500": two round numbers without another reading, at the end of a text."""
        values = (low.value, high.value)
        before = self._words.at(low.first - 1)
        return (
            all(value >= _LEAST_RANGE and value % 10 == 0 for value in values)
            and before.isalpha()
            and max(values) <= 10 * min(values)
            and self._ends(high.end)
            and not self._language._claims.are_years(low, high)
            and not self._language._claims.is_name(self._words, low.first, low.first)
        )

    def _bound(self, amount: Amount) -> PricePhrase | None:
        """Match "menos de 50", "ab 20 €", "environ 30 euros", "50 o menos"."""
        words, claims = self._words, self._language._claims
        if claims.is_off(words, amount) or claims.measures(words, amount):
            return None
        cue = self._cue(amount.first)
        has_after = words.at(amount.end) in self._language._after.starts
        after = self._language._after.match(words, amount.end) if has_after else None
        if after and not self._leads_on(amount.end + after[0]) and self._is_bound_after(amount, after[1]):
            first = cue.first if cue and cue.kind not in (WEAK, OTHER) else amount.first
            return _price(amount, after[1].replace(".after", ""), first, amount.end + after[0])
        if cue is None or cue.kind in (WEAK, OTHER) or (not amount.is_money and not self._is_bare_bound(amount, cue)):
            return None
        return _price(amount, LOW if cue.kind in (FROM, BETWEEN) else cue.kind, cue.first, amount.end)

    def _is_bound_after(self, amount: Amount, kind: str) -> bool:
        if amount.is_money:
            return True
        least = self._language._least_upwards if kind == "price.after.low" else _LEAST_BARE
        claims = self._language._claims
        if amount.value < least or claims.is_labelled(self._words, amount.first):
            return False
        return not claims.is_name(self._words, amount.first, amount.first)

    def _is_bare_bound(self, amount: Amount, cue: Cue) -> bool:
        words, claims = self._words, self._language._claims
        is_small = amount.value < _LEAST_BARE or (amount.is_spelled and amount.value < 2 * _LEAST_BARE)
        if is_small or cue.needs_money or cue.kind == BETWEEN:
            return False
        if claims.is_labelled(words, cue.first) or claims.is_model(words, cue.first, amount):
            return False
        if claims.is_age(words, cue.first, amount, is_lower=cue.kind == LOW):
            return False
        if cue.kind == NEAR and claims.is_year(words, cue.first, amount):
            return False
        return cue.kind == HIGH or self._ends(amount.end)

    def _cue(self, end: int) -> Cue | None:
        return self._language._cues.before(self._words, end, self._taken)

    def _leads_on(self, end: int) -> bool:
        """Tell whether the words before token `end` belong to the next amount: "min 300 max 500"."""
        starts = [amount.first for amount in self._amounts]
        while self._words.at(end) in self._language._cues.fill and end not in starts:
            end += 1
        return end in starts

    def _as_money(self, amount: Amount) -> Amount:
        """Return a sum in a word that is a weight as often, "30 pounds", as money where a bound says that it is."""
        texts, language = self._words.texts, self._language
        currency = language._weights[self._words.at(amount.end)]
        cue = self._cue(amount.first)
        after = language._after.match(self._words, amount.end + 1)
        is_bound = cue is not None and (cue.kind in (HIGH, NEAR) or after is not None)
        lower = (self._cue(one.first) for one in self._amounts if one.end == amount.first - 1)
        is_bound = is_bound or any(each is not None and each.kind == BETWEEN for each in lower)
        near = texts[max(0, amount.first - _NEAR_BY) : amount.first] + texts[amount.end + 1 : amount.end + 3]
        is_spent = not language._spending.isdisjoint(near)
        is_weight = amount.value < _LEAST_BARE or not language._weighed.isdisjoint(texts)
        if is_spent or (is_bound and not is_weight):
            return amount._replace(currency=currency, end=amount.end + 1, is_money=True)
        return amount

    def _ends(self, end: int) -> bool:
        return self._language._claims.ends(self._words, end, self._taken)

    def _is_lone(self, amount: Amount) -> bool:
        if not amount.is_money or amount.value <= 0 or self._language._claims.is_off(self._words, amount):
            return False
        written = self._words.source[slice(*self._words.span(amount.first, amount.first + 1))]
        return not (written.islower() and money.code_of(written) is not None)  # "sneakers eur 42"

    def _lone(self, amount: Amount) -> PricePhrase:
        """Return the price of one sum alone: whoever names one means to spend no more."""
        cue = self._language._cues.match(self._words, amount.first - 1, self._taken)
        first = cue[0] if cue and cue[1] == WEAK else amount.first
        return PricePhrase(None, amount.value, amount.currency, first, amount.end, is_told=False)

    def _grown(self, price: PricePhrase) -> PricePhrase:
        """Extend the phrase by adjacent words about the price: "presupuesto", "my budget is", "pro Stück"."""
        language, end = self._language, price.end
        while (
            self._words.at(end) in language._tail.starts
            and (match := language._tail.match(self._words, end))
            and not self._leads_on(end + match[0])
        ):
            end += match[0]
        first = price.first
        floor = self._floor
        while first > floor:
            is_lead = self._words.at(first - 1) in language._lead.starts
            match = language._lead.match(self._words, first - 1) if is_lead else None
            if match and first - match[0] >= floor:
                first -= match[0]
            elif self._words.texts[first - 1] in BESIDE_BREAKS:
                first -= 1
            else:
                break
        return price._replace(first=first, end=end)


def _price(amount: Amount, kind: str, first: int, end: int) -> PricePhrase:
    if kind == NEAR:
        low, high = (round(amount.value * factor, 2) for factor in (1 - AROUND, 1 + AROUND))
        return PricePhrase(low, high, amount.currency, first, end)
    if kind == HIGH:
        return PricePhrase(None, amount.value, amount.currency, first, end)
    return PricePhrase(amount.value, None, amount.currency, first, end)


def merge(prices: list[PricePhrase]) -> PricePhrase:
    """Merge several price phrases: the first lower and the first upper bound that agree."""
    (low, high, currency, *_), *others = prices or (NO_PRICE,)
    for price in others:
        if low is None and price.min is not None and (high is None or price.min <= high):
            low = price.min
        if high is None and price.max is not None and (low is None or low <= price.max):
            high = price.max
        currency = currency or price.currency
    return PricePhrase(low, high, currency, 0, 0)
