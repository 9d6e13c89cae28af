"""Other readings of a number beside a price phrase: a unit, a size, a model, an age, a count."""

import re
from typing import Final

from service.planner.reading.en.amounts import Amount
from service.planner.reading.en.data import PHRASES
from service.planner.reading.tokens import BREAKS, Words

YEARS = range(1600, 2036)
_ADULT_AGES = range(18, 91)
_CHILD_AGES = range(0, 13)
_AGE_LIMIT = 100  # "12 and up" is an age, "120 and up" is not
_LEAST_BARE_MAX = 30  # "iphone 11 max" is a phone
_WORTHS: Final = frozenset(("card", "cards", "certificate", "certificates", "voucher", "vouchers"))
_MOST_COUNTED = 99  # "up to 6 cables" counts, "up to 300 headphones" does not
_LEAST_OR_LESS = 20
_LEAST_SHORT_BOUND = 10  # "max 8" is hardly a price
_LEAST_BEYOND_NAMES = 1000  # "iphone 15 max 512" is a phone, "ipad 64gb max 20k" a price
_PLAIN_BOUNDS: Final = frozenset(("or less", "or under", "or below", "or cheaper", "or lower", "tops"))
_LARGEST_SIZE = 60
_LEAST_BARE_RANGE = 100  # "tv 300-500" is a price, "boys 10-12" is not
_NOT_MONEY = PHRASES.trie("price.not.money")
_UNITS, _LABELS, _NAMES = PHRASES.words("price.unit"), PHRASES.words("price.label"), PHRASES.words("price.names")
_ADULTS, _CHILDREN = PHRASES.words("price.people.adult"), PHRASES.words("price.people.child")
_TOPICS = PHRASES.words("price.topics")
# What may follow a number that is a price although no currency says so: "over 50 with pockets", not "over 50 pockets".
_FUNCTION_WORDS = PHRASES.words("price.followers")
_DIMENSIONS = PHRASES.words("price.dimensions")
_RESOLUTIONS = PHRASES.words("price.resolutions")
SPENDING: Final = re.compile(r"spend|pay|budget|cheaper|price|cost|afford|expensive")


class Claims:
    """Judges the numbers of one text that carry no currency."""

    def __init__(self, words: Words, taken: frozenset[int]) -> None:
        """Take `taken`, tokens with another meaning (stars): a number before them counts as the last word."""
        self._words = words
        self._taken = taken
        # Where words begin after which a sum is no product's price: "$20 off", "$50 gift card", "$50 amazon gift card".
        told = [at for at, text in enumerate(words.texts) if text in _NOT_MONEY.starts and _NOT_MONEY.match(words, at)]
        self.other_money: Final = frozenset((*told, *(at - 1 for at in told if words.texts[at] == "gift")))

    def is_bare_range(self, low: Amount, high: Amount) -> bool:
        """Match "tv 300-500": two round numbers without another reading, at the end of a text."""
        values = (low.value, high.value)
        is_round = all(value >= _LEAST_BARE_RANGE and value % 10 == 0 for value in values)
        is_years = all(value in YEARS for value in values)
        before = self._words.at(low.first - 1)
        is_end = self.ends(high.end) and low.first > 0 and before.isalpha() and before not in _NAMES
        return is_round and is_end and not is_years and max(values) <= 10 * min(values)

    def may_be_bare(self, amount: Amount, first: int, kind: str, phrase: str, *, follows_sum: bool) -> bool:
        """Tell whether a bare number after a cue is a price: not an age, a model, or a count of things."""
        words, value = self._words, amount.value
        before = words.at(first - 1)
        if value == 0 or (value == 1 and not words.at(amount.first)[:1].isdigit()):
            return False
        if phrase.startswith(("max", "min")) and amount.value % 1 == 0:
            is_short = phrase in ("max", "min")
            is_name = before in _NAMES or (before not in BREAKS and any(character.isdigit() for character in before))
            is_model = (is_name and value < _LEAST_BEYOND_NAMES) or value < _LEAST_SHORT_BOUND
            if is_short and is_model and words.at(amount.first)[:1].isdigit():
                return follows_sum
            if first == 0 or before in BREAKS:
                return True
        people = {before, words.at(first - 2)} if before in ("and", "aged", "age", "who", "are", "is") else {before}
        if before in ("aged", "age", "ages"):
            return False
        if phrase in ("over", "above") and people & (_ADULTS | _CHILDREN) and value in _ADULT_AGES:
            return False
        if people & _CHILDREN and value in _CHILD_AGES:
            return False
        if phrase == "about" and value in YEARS and _TOPICS & set(words.texts[:first]):
            return False
        if phrase in ("<", ">", "< =", "> =", "≤", "≥", "~", "≈"):
            return True
        after = words.at(amount.end)
        if (
            (words.at(amount.end - 1).endswith("k") and after not in _RESOLUTIONS)
            or self.ends(amount.end)
            or after in _FUNCTION_WORDS
        ):
            return True
        return not self._counts(amount, kind) or phrase.split()[-1] in ("under", "below", "sub")

    def _counts(self, amount: Amount, kind: str) -> bool:
        """Tell whether a plural follows that the number may count: "at least 6 cables"."""
        after = self._words.at(amount.end)
        is_plural = after.endswith("s") and not after.endswith(("ss", "us")) and len(after) > 2
        is_whole = "." not in self._words.at(amount.end - 1)
        return is_plural and is_whole and (kind == "price.low" or amount.value <= _MOST_COUNTED)

    def is_size(self, first: int, low: Amount, high: Amount) -> bool:
        """Match "what size if i'm between 8 and 9"."""
        words = self._words
        speaks_of_size = any(
            text in ("size", "sizes", "aged", "ages") and not words.at(at + 1)[:1].isdigit()  # "size 9 boots" is told
            for at, text in enumerate(words.texts[:first])
        )
        return speaks_of_size and max(low.value, high.value) <= _LARGEST_SIZE

    def is_bare_bound(self, amount: Amount, kind: str, phrase: str, end: int) -> bool:
        """Tell whether the phrase that ends at token `end` makes a number without a currency a bound."""
        is_plain = phrase in _PLAIN_BOUNDS and amount.value >= _LEAST_OR_LESS
        if not is_plain and not self.ends_phrase(end):
            return False
        before = self._words.at(amount.first - 1)
        if amount.value in YEARS and kind != "price.after.high":
            return False
        if kind == "price.after.high":
            if phrase in ("max", "maximum", "top", "tops", "limit", "cap", "budget"):
                is_picture = self._words.at(amount.end - 1) in ("4k", "8k")  # "fire tv stick 4k max"
                is_digits = self._words.at(amount.first)[:1].isdigit()
                is_model = phrase == "max" and amount.value < _LEAST_BARE_MAX and is_digits
                is_model |= amount.value < _LEAST_SHORT_BOUND
                return not is_model and before not in _NAMES and not is_picture
            is_age = "and" in phrase or before in _CHILDREN | _ADULTS
            return not (is_age and amount.value in range(0, 19))
        if kind == "price.after.low":
            return amount.value >= _AGE_LIMIT and phrase not in ("+", "plus", "and more")
        return amount.value >= _LEAST_BARE_MAX and phrase in (
            "or so",
            "ish",
            "- ish",
            "or thereabouts",
            "or close to it",
        )

    def ends(self, index: int) -> bool:
        return index >= len(self._words.texts) or self._words.at(index) in BREAKS or index in self._taken

    def ends_phrase(self, index: int) -> bool:
        return self.ends(index) or self._words.at(index) in _FUNCTION_WORDS

    def measures(self, amount: Amount) -> bool:
        """Tell whether a unit follows: "15 inch", "8-piece", "4 x 6"."""
        words = self._words
        at = amount.end + 1 if words.at(amount.end) == "-" else amount.end
        unit = words.at(at)
        if unit in ("in", "&"):
            return at + 1 >= len(words.texts) or words.at(at + 1) in _DIMENSIONS
        if (
            unit in ("set", "note", "light", "can", "box", "bag", "min", "number", "cup", "step", "a")
            and at == amount.end
        ):
            return unit != "a" and not self.ends_phrase(at + 1)
        is_size = unit in ('"', "″", "”", "/", "x", "×", "'") and words.touches(amount.end - 1)
        return unit in _UNITS or is_size or (unit == "x" and words.at(at + 1)[:1].isdigit())

    def is_value(self, amount: Amount) -> bool:
        """Tell whether the amount is a product's own value: "$50 gift card", "gift card $50"."""
        words = self._words
        return amount.end in self.other_money or words.at(amount.first - 1) in _WORTHS

    def is_labelled(self, first: int) -> bool:
        return self._words.at(first - 1) in _LABELS
