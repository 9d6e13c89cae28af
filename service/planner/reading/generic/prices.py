"""Price bounds from the phrases that name them, in a language that is data.

A number is a price when money stands beside it, or when a phrase says so and neither a unit nor a label claims it.
"""

from dataclasses import dataclass, replace
from typing import Final

from service.planner.reading.generic.amounts import Amount, Amounts
from service.planner.reading.generic.data import LanguageData
from service.planner.reading.generic.words import FoldedWords
from service.planner.reading.tokens import BREAKS

AROUND: Final = 0.2  # "around 100" is 80 to 120, as the contract of plan version 2 says
_LEAST_BARE: Final = 10  # "max 8" and "ab 3" are hardly prices
_HIGH, _LOW, _NEAR, _BETWEEN, _FROM = "price.high", "price.low", "price.around", "price.between", "price.from"
_SIGNS: Final = {"<": _HIGH, "≤": _HIGH, "<=": _HIGH, ">": _LOW, "≥": _LOW, ">=": _LOW, "~": _NEAR, "≈": _NEAR}
_DASHES: Final = ("-", "–", "—", "~", "/")
_BESIDE_BREAKS: Final = frozenset((":", "="))


@dataclass(frozen=True, slots=True)
class PricePhrase:
    """One price phrase: its bounds, its currency where it names one, and its tokens [first, end)."""

    min: float | None
    max: float | None
    currency: str | None
    first: int
    end: int


class Prices:
    """Finds the price phrases of utterances in one language."""

    def __init__(self, data: LanguageData, amounts: Amounts) -> None:
        self._amounts = amounts
        self._cues = data.trie(_HIGH, _LOW, _NEAR, _BETWEEN, _FROM, "price.weak", backwards=True)
        self._after = data.trie("price.after.high", "price.after.low", "price.after.around")
        self._lead = data.trie("price.lead", backwards=True)
        self._tail = data.trie("price.tail")
        self._others = data.trie("price.not.money")
        self._other_before = data.trie("price.not.money.before", backwards=True)
        self._soft = data.words("word.price.soft")
        self._fill = data.words("word.price.fill")
        self._joins = data.words("word.price.joins")
        self._units = data.words("word.units") | data.words("word.counted")
        self._labels = data.words("word.labels")
        self._followers = data.words("word.function") | data.words("word.price.followers")

    def find(self, words: FoldedWords, taken: frozenset[int], territory: str | None) -> list[PricePhrase]:
        """Return every price phrase in order, without overlaps; `taken` are tokens with another meaning (stars)."""
        amounts = self._amounts.find(words, taken, territory)
        found: list[PricePhrase] = []
        at = 0
        while at < len(amounts):
            amount = amounts[at]
            following = amounts[at + 1] if at + 1 < len(amounts) else None
            floor = found[-1].end if found else 0
            price = self._range(words, amount, following) if following else None
            at += 2 if price else 1
            price = price or self._bound(words, amount, following)
            if price and price.first >= floor:
                found.append(self._grown(words, price, floor))
        if not found:
            found = [self._lone(words, amount) for amount in amounts if self._is_lone(words, amount)]
            found = [self._grown(words, price, 0) for price in found] if len(found) == 1 else []
        return found

    def _range(self, words: FoldedWords, low: Amount, high: Amount) -> PricePhrase | None:
        """Match "entre 50 y 80 €", "50-80 euros", "von 50 bis 80"."""
        joined = words.texts[low.end : high.first]
        cue = self._cue(words, low.first)
        kind = cue[1] if cue else ""
        is_joined = len(joined) == 1 and (joined[0] in self._joins or joined[0] in _DASHES)
        is_told = kind in (_BETWEEN, _FROM, _LOW) or (kind == "price.weak" and joined[0:1] != ["-"])
        second = self._cues.match(words, high.first - 1)
        if not is_joined and is_told and second and second[1] in (_HIGH, "price.weak"):
            is_joined = high.first - second[0] - low.end <= 1  # "desde 50 euros hasta 80", "ab 50 bis 80"
        if not is_joined or any(self._claims(words, amount) for amount in (low, high)) or self._is_off(words, high):
            return None
        is_money = low.is_money or high.is_money
        if not is_money and (not (is_told and kind != "price.weak") or min(low.value, high.value) < _LEAST_BARE):
            return None
        if not is_money and not self._ends(words, high.end):
            return None
        if is_money and not is_told and joined[0] not in (*_DASHES, *self._joins):
            return None
        if not is_told and self._labelled(words, low.first):
            return None
        first = cue[0] if cue and (is_told or kind == _NEAR) else low.first
        small, large = sorted((low.value, high.value))
        if words.texts[high.end - 1] == "k" and small < large / 1000:
            small *= 1000
        return PricePhrase(small, large, high.currency or low.currency, first, high.end)

    def _bound(self, words: FoldedWords, amount: Amount, following: Amount | None) -> PricePhrase | None:
        """Match "menos de 50", "ab 20 €", "environ 30 euros", "50 o menos"."""
        if self._is_off(words, amount):
            return None
        cue = self._cue(words, amount.first)
        after = self._after.match(words, amount.end)
        if after and following and amount.end + after[0] >= following.first:
            after = None  # "talla 44 max 90 €"
        is_labelled = not amount.is_money and self._labelled(words, amount.first)
        if (
            after
            and not is_labelled
            and (amount.is_money or (not self._claims(words, amount) and amount.value >= _LEAST_BARE))
        ):
            kind = after[1].replace(".after", "")
            first = cue[0] if cue and cue[1] != "price.weak" else amount.first
            return _price(amount, kind, first, amount.end + after[0])
        if cue is None or cue[1] == "price.weak":
            return None
        first, kind = cue
        if not amount.is_money:
            if self._claims(words, amount) or self._labelled(words, first) or kind == _BETWEEN:
                return None
            if amount.value < _LEAST_BARE or (amount.is_spelled and amount.value < 2 * _LEAST_BARE):
                return None
            if kind in (_FROM, _NEAR, _LOW) and not self._ends(words, amount.end):
                return None
        return _price(amount, _LOW if kind in (_FROM, _BETWEEN) else kind, first, amount.end)

    def _cue(self, words: FoldedWords, end: int) -> tuple[int, str] | None:
        """Return (first token, kind) of the cue that ends right before token `end`, past an outer one."""
        found: tuple[int, str] | None = None
        at = end
        while at > 0:
            if words.texts[at - 1] in _SIGNS:
                at, kind = at - 1, _SIGNS[words.texts[at - 1]]
            elif match := self._cues.match(words, at - 1):
                at, kind = at - match[0], match[1]
            elif words.texts[at - 1] in self._fill or words.texts[at - 1] in _BESIDE_BREAKS:
                at -= 1
                continue
            else:
                break
            is_soft = kind == _HIGH and not self._soft.isdisjoint(words.texts[at : found[0]] if found else ())
            if found and is_soft and found[1] in (_NEAR, _FROM, _BETWEEN):
                found = (at, found[1])  # "budget um die 50" is no bound
            elif found is None or kind in (_HIGH, _LOW):  # "no más de unos 50": the bound holds
                found = (at, kind if found is None or found[1] != _BETWEEN else _BETWEEN)
            elif kind in (_NEAR, "price.weak", _FROM) and found[1] == kind:
                found = (at, kind)
            else:
                break
        return found

    def _claims(self, words: FoldedWords, amount: Amount) -> bool:
        """Tell whether a unit or a thing that is counted follows: "50 cm", "12 Personen"."""
        if amount.is_money:
            return False
        at = amount.end + 1 if words.at(amount.end) == "-" else amount.end
        text = words.at(at)
        is_size = text in ('"', "″", "”", "x", "×", "/", "%", "°") and (
            words.touches(at - 1) or text in ("x", "×", "%")
        )
        return text in self._units or is_size

    def _labelled(self, words: FoldedWords, first: int) -> bool:
        return any(words.at(at) in self._labels for at in (first - 1, first - 2))

    def _is_off(self, words: FoldedWords, amount: Amount) -> bool:
        """Tell whether the amount is not the product's price: "20 € de descuento", "bon d'achat de 50 €"."""
        return (
            self._others.match(words, amount.end) is not None
            or self._other_before.match(words, amount.first - 1) is not None
        )

    def _ends(self, words: FoldedWords, end: int) -> bool:
        text = words.at(end)
        return not text or text in BREAKS or text in self._followers or self._tail.match(words, end) is not None

    def _is_lone(self, words: FoldedWords, amount: Amount) -> bool:
        return amount.is_money and amount.value > 0 and not self._is_off(words, amount)

    def _lone(self, words: FoldedWords, amount: Amount) -> PricePhrase:
        """Return the price of one sum alone: whoever names one means to spend no more."""
        cue = self._cues.match(words, amount.first - 1)
        first = amount.first - cue[0] if cue and cue[1] == "price.weak" else amount.first
        return PricePhrase(None, amount.value, amount.currency, first, amount.end)

    def _grown(self, words: FoldedWords, price: PricePhrase, floor: int) -> PricePhrase:
        """Extend the phrase by adjacent words about the price: "presupuesto", "pro Stück"."""
        first, end = price.first, price.end
        while match := self._tail.match(words, end):
            end += match[0]
        while first > floor:
            match = self._lead.match(words, first - 1)
            if match and first - match[0] >= floor:
                first -= match[0]
            elif words.texts[first - 1] in _BESIDE_BREAKS:
                first -= 1
            else:
                break
        return replace(price, first=first, end=end)


def _price(amount: Amount, kind: str, first: int, end: int) -> PricePhrase:
    if kind == _NEAR:
        low, high = (round(amount.value * factor, 2) for factor in (1 - AROUND, 1 + AROUND))
        return PricePhrase(low, high, amount.currency, first, end)
    if kind == _HIGH:
        return PricePhrase(None, amount.value, amount.currency, first, end)
    return PricePhrase(amount.value, None, amount.currency, first, end)


def merge(prices: list[PricePhrase]) -> PricePhrase:
    """Merge several price phrases: the first lower and the first upper bound that agree."""
    merged = PricePhrase(None, None, None, 0, 0)
    for price in prices:
        if merged.min is None and price.min is not None and (merged.max is None or price.min <= merged.max):
            merged = replace(merged, min=price.min)
        if merged.max is None and price.max is not None and (merged.min is None or merged.min <= price.max):
            merged = replace(merged, max=price.max)
        if merged.currency is None:
            merged = replace(merged, currency=price.currency)
    return merged
