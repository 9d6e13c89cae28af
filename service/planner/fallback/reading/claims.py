"""What a number beside a price phrase may be instead of a price: a measure, a size, a model, an age, a year."""

from typing import Final

from service.planner.fallback.reading.amounts import Amount
from service.planner.fallback.reading.language_data import LanguageData
from service.planner.fallback.reading.tokens import BREAKS, Words

_YEARS: Final = range(1600, 2036)
_AGES: Final = range(18, 91)
_CHILD_AGES: Final = range(13)
_LEAST_BEYOND_NAMES: Final = 1000  # "iphone 15 max 512" is a phone, "ipad max 2000" a price
_SIZE_MARKS: Final = ('"', "″", "”", "x", "×", "/", "%", "°", "'")
_APART: Final = ("x", "×", "%")  # marks of a size even where a space stands before them


class Claims:
    """Judges the numbers of utterances in one language that have no currency."""

    def __init__(self, data: LanguageData) -> None:
        self._others = data.trie("price.not.money")
        self._topics = data.words("word.price.topics")
        self._tail = data.trie("price.tail")
        self._units = data.words("word.units") | data.words("word.counted")
        self._weak_units = data.words("word.units.weak")
        self._after_weak_units = data.words("word.units.weak.before")
        self._labels = data.words("word.labels")
        self._names = data.words("word.price.names")
        self._name_cues = [[], *([cue] for cue in data.words("word.price.names.cues"))]
        self._glued = data.words("word.price.glued")
        self._small = data.words("word.size.small")
        self._adults, self._children = data.words("word.price.people.adult"), data.words("word.price.people.child")
        self._followers = data.words("word.function") | data.words("word.price.followers")

    def measures(self, words: Words, amount: Amount) -> bool:
        """Tell whether a unit or a thing that is counted follows: "50 cm", "12 Personen", "4 x 6"."""
        if amount.is_money:
            return False
        at = amount.end + 1 if words.at(amount.end) == "-" else amount.end
        text = words.at(at)
        if at == amount.end and text[:1].isalpha() and words.touches(at - 1) and text not in self._glued:
            return True  # "50s", "5w30", "64gb", but "50ish"
        if text in self._weak_units:  # "20 in", "20 in wide", but "under 35 in black"
            return at + 1 >= len(words.texts) or words.at(at + 1) in self._after_weak_units
        return text in self._units or (text in _SIZE_MARKS and (text in _APART or words.touches(at - 1)))

    def is_labelled(self, words: Words, first: int) -> bool:
        """Tell whether a word before says what the number is: "talla 42", "size: 9"."""
        at = first - 2 if words.at(first - 1) in BREAKS or words.at(first - 1) in self._small else first - 1
        has_own = words.at(at - 1)[:1].isdigit() or words.at(at - 2)[:1].isdigit()  # "10th gen"
        return words.at(at) in self._labels and not has_own

    def is_model(self, words: Words, first: int, amount: Amount) -> bool:
        """Tell whether a cue that begins at `first` is rather part of a model's name: "s23 max 512"."""
        before = words.at(first - 1)
        cue = words.texts[first : amount.first]
        if not cue or cue not in self._name_cues or amount.value >= _LEAST_BEYOND_NAMES:
            return False
        return self.is_name(words, first, amount.first) or (before not in BREAKS and any(map(str.isdigit, before)))

    def is_name(self, words: Words, first: int, end: int) -> bool:
        """Tell whether a cue, tokens [first, end), belongs to the name before it: "pepsi max", "air max"."""
        return words.at(first - 1) in self._names and words.texts[first:end] in self._name_cues

    def is_age(self, words: Words, first: int, amount: Amount, *, is_lower: bool) -> bool:
        """Tell whether a bound says how old somebody is: "women over 50", "toys for kids under 5"."""
        people = {words.at(first - 1), words.at(first - 2)}
        if is_lower and not people.isdisjoint(self._adults | self._children):
            return amount.value in _AGES
        return not people.isdisjoint(self._children) and amount.value in _CHILD_AGES

    def is_off(self, words: Words, amount: Amount) -> bool:
        """Tell whether the amount is not the product's price: "20 € de descuento", "$50 gift card"."""
        return words.at(amount.end) in self._others.starts and self._others.match(words, amount.end) is not None

    def ends(self, words: Words, end: int, taken: frozenset[int]) -> bool:
        """Tell whether a phrase may end before a token."""
        text = words.at(end)
        return (
            not text
            or end in taken
            or text in BREAKS
            or text in self._followers
            or self._tail.match(words, end) is not None
        )

    def is_year(self, words: Words, first: int, amount: Amount) -> bool:
        """Tell whether the number is of what a title is about: "book about 1944"."""
        return amount.value in _YEARS and not self._topics.isdisjoint(words.texts[:first])

    def are_years(self, low: Amount, high: Amount) -> bool:
        return low.value in _YEARS and high.value in _YEARS
