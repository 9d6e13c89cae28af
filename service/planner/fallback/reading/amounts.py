"""The amounts in a question: numbers in digits or in words, with an adjacent currency."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from service.planner import money
from service.planner.fallback.reading.language_data import LanguageData
from service.planner.fallback.reading.phrase_file import Trie
from service.planner.fallback.reading.tokens import Words

_MAX_AMOUNT = 1_000_000_000  # Guaraníes and pesos have many zeros
_LEAST_SCALE = 100
_SCALES = (_LEAST_SCALE, 1000, 1_000_000)
Candidates = tuple[int, tuple[str, ...]]  # number of tokens, the currencies that they may stand for
_THOUSANDS = re.compile(r"\d{3}(?:\.\d{1,2})?")
_DASHES = ("-", "–", "—")


class Amount(NamedTuple):
    """A number as tokens [first, end), its currency with it (ISO 4217)."""

    value: float
    first: int
    end: int
    currency: str | None = None
    is_money: bool = False  # a sign or a word for money stands beside it
    is_spelled: bool = False  # in words: a lone small one is an article as often as a number


class Amounts:
    """Finds the amounts of utterances in one language."""

    def __init__(self, data: LanguageData) -> None:
        self._currencies = data.currencies
        keys = {key: key for key in data.currencies}
        self._after = Trie(keys)
        self._before = Trie(keys, backwards=True)
        self._numbers = Trie(data.table("numbers"))
        self._scales = Trie(data.table("scales"))
        self._function = data.words("word.function")
        self._joins = data.words("word.number.joins")
        self._adds = data.words("word.number.adds")
        self._notes = {name: told.split() for name, told in data.table("money.notes").items()}
        self._note_names = Trie({name: name for name in self._notes})
        self._glue = _glued(data.table("numbers"), data.words("word.number.glue"))
        self._has_glue = bool(data.words("word.number.glue"))
        self._has_spaces = "space" in data.words("word.number.groups")
        self._starts = self._numbers.starts | self._note_names.starts
        self._ambiguous = data.words("word.number.articles")

    def find(self, words: Words, taken: frozenset[int], territory: str | None) -> list[Amount]:
        """Return every amount in order; `taken` are tokens to skip."""
        found: list[Amount] = []
        if not words.numbers and not self._has_glue and self._starts.isdisjoint(words.texts):
            return found
        end = 0  # of the last amount
        for at in self._beginnings(words):
            amount = self._at(words, at, territory) if at >= end and at not in taken else None
            if amount is None or amount.value > _MAX_AMOUNT or not taken.isdisjoint(range(amount.first, amount.end)):
                continue
            if found and amount.first < end:
                amount = amount._replace(first=end)
            found.append(amount)
            end = amount.end
        return found

    def _beginnings(self, words: Words) -> Sequence[int]:
        """Return the tokens at which an amount may begin."""
        if self._has_glue:  # "fünfundzwanzig" is one word
            return [at for at, text in enumerate(words.texts) if text[0].isalnum() or text in self._starts]
        return words.beginnings(self._starts)

    def _at(self, words: Words, first: int, territory: str | None) -> Amount | None:
        is_digit = words.texts[first][0].isdigit()
        if not is_digit and (note := self._note_names.match(words, first)):
            value, currency = self._notes[note[1]]
            return Amount(float(value), first, first + note[0], currency, is_money=True)
        number = self._digits(words, first) if is_digit else self._spelled(words, first)
        if number is None:
            return None
        number = self._scaled(words, number)
        number = self._bare_cents(words, number)
        return self._with_currency(words, number, territory)

    def _digits(self, words: Words, first: int) -> Amount | None:
        text = words.texts[first]
        if not text.replace(".", "", 1).isdecimal():
            return None
        value, end = text, first + 1
        if self._has_spaces and len(text) <= 3 and not text.startswith("0"):  # "1 200", a space between thousands
            while (
                _THOUSANDS.fullmatch(words.at(end))
                and "." not in value
                and words.starts[end] - words.ends[end - 1] == 1
            ):
                value, end = value + words.texts[end], end + 1
            if end > first + 1 and not self._speaks_of_money(words, first, end):
                value, end = text, first + 1
        return Amount(float(value), first, end)

    def _speaks_of_money(self, words: Words, first: int, end: int) -> bool:
        """Tell whether a number in groups is one sum: "1 200 €", "moins de 1 200", but not "iphone 15 500 €"."""
        if self._before.match(words, first - 1):
            return True
        before = words.at(first - 1)
        if self._after.match(words, end) is None and self._code(words, end, None) is None:
            return before in self._function and first > 0
        return not before or before in self._function or not before.isalpha() or len(words.texts[first]) == 1

    def _spelled(self, words: Words, first: int) -> Amount | None:
        values: list[float] = []
        at = end = first
        while (match := self._value(words, at)) and (not values or self._follows(words, at, values[-1], match)):
            values.append(match[1])
            at = end = at + match[0]
            if words.at(at) in self._joins or words.at(at) in self._adds or words.at(at) == "-":
                at += 1
        if not values or (end == first + 1 and words.texts[first] in self._ambiguous):
            return None
        return Amount(_sum(values), first, end, is_spelled=True)

    def _follows(self, words: Words, at: int, before: float, match: tuple[int, float]) -> bool:
        """Tell whether a number word goes on with the one before it: "treinta y cinco", but not "treinta y cien"."""
        length, value = match
        join = words.at(at - 1)
        is_low = 20 <= before < _LEAST_SCALE and value < 20
        if join in self._joins:
            return is_low
        if join in self._adds:  # "two hundred and fifty", but not "a hundred and two hundred"
            following = self._value(words, at + length)
            return before >= _LEAST_SCALE > value and not (following and following[1] in _SCALES)
        return value in _SCALES or (before >= _LEAST_SCALE and value < before) or is_low

    def _value(self, words: Words, at: int) -> tuple[int, float] | None:
        match = self._numbers.match(words, at)
        if match:
            return match[0], float(match[1])
        glued = self._glue(words.at(at)) if words.at(at)[:1].isalpha() else None
        return (1, glued) if glued else None

    def _scaled(self, words: Words, amount: Amount) -> Amount:
        """Take "k", "mil" and "tausend" behind digits."""
        is_scaled = words.at(amount.end) in self._scales.starts and not amount.is_spelled
        match = self._scales.match(words, amount.end) if is_scaled else None
        if match is None or (words.at(amount.end) in ("k", "m") and not words.touches(amount.end - 1)):
            return amount
        return amount._replace(value=amount.value * float(match[1]), end=amount.end + match[0])

    def _bare_cents(self, words: Words, amount: Amount) -> Amount:
        """Take the dash that stands for no cents: "50,-", "50.–"."""
        end = amount.end
        if (
            words.at(end) in (",", ".")
            and words.at(end + 1) in _DASHES
            and words.touches(end - 1)
            and words.touches(end)
        ):
            return amount._replace(end=end + 2, is_money=True)
        return amount

    def _with_currency(self, words: Words, amount: Amount, territory: str | None) -> Amount:
        before, after = (
            self._money_before(words, amount.first, territory),
            self._money_after(words, amount.end, territory),
        )
        if after and self._leads_on(words, amount.end, after[0]) and (before or not words.touches(amount.end - 1)):
            after = None
        if before is None and after is None:
            return amount
        candidates = after[1] if after else before[1] if before else ()
        if before and after:  # "$500 pesos" are pesos, whoever's
            candidates = tuple(code for code in after[1] if code in before[1]) or after[1]
        first, end = amount.first - (before[0] if before else 0), amount.end + (after[0] if after else 0)
        amount = Amount(amount.value, first, end, money.certain(candidates, territory), True, amount.is_spelled)
        return _with_cents(words, amount) if after else amount

    def _money_before(self, words: Words, first: int, territory: str | None) -> Candidates | None:
        at = first - 1
        is_money = words.at(at) in self._before.starts
        match = self._touching(words, self._before.match(words, at), at, step=-1) if is_money else None
        is_after_number = at > 0 and words.texts[at - 1][:1].isdigit()  # the "euros" of "50 euros 3 estrellas"
        if match and not (match[0] == 1 and words.texts[at].isalpha() and is_after_number):
            return match[0], self._currencies[match[1]]
        return self._code(words, at, territory)

    def _money_after(self, words: Words, end: int, territory: str | None) -> Candidates | None:
        at = end + 1 if words.at(end) in ("de", "d'", "-") else end
        is_money = words.at(at) in self._after.starts
        match = self._touching(words, self._after.match(words, at), at, step=1) if is_money else None
        if match:
            return match[0] + at - end, self._currencies[match[1]]
        return self._code(words, end, territory)

    def _touching(self, words: Words, match: tuple[int, str] | None, at: int, *, step: int) -> tuple[int, str] | None:
        """Return the match, of a sign such as "A$" only where its parts touch: the "a" of "$50 a $80" is a word."""
        if match is None or match[0] == 1 or match[1].replace(" ", "").isalnum():
            return match
        first = at if step > 0 else at - match[0] + 1
        if all(words.touches(index) for index in range(first, first + match[0] - 1)):
            return match
        return (1, words.texts[at]) if words.texts[at] in self._currencies else None

    def _code(self, words: Words, at: int, territory: str | None) -> Candidates | None:
        """Match an ISO code or a sign that is letters, which keeps its case."""
        if not 0 <= at < len(words.texts) or not words.texts[at][:1].isalpha():
            return None
        if words.texts[at] not in money.written() and words.texts[at].isascii():
            return None
        text = words.source[words.starts[at] : words.ends[at]]
        if code := money.code_of(text):
            return 1, (code,)
        candidates = money.signs().get(text)
        if candidates is None:
            return None
        is_local = money.territories().get(territory or "") in candidates
        if is_local or (len(text) > 1 and not text.isupper()) or text == "FCFA":
            return 1, candidates
        return None

    def _leads_on(self, words: Words, end: int, length: int) -> bool:
        """Tell whether a sign after an amount belongs to the next one: "$20 $40"."""
        return words.at(end + length)[:1].isdigit() and words.touches(end + length - 1)


def _with_cents(words: Words, amount: Amount) -> Amount:
    """Take the cents behind the sign: "49€90"."""
    text = words.at(amount.end)
    is_glued = words.touches(amount.end - 1) and not words.texts[amount.end - 1].isalpha()
    if is_glued and len(text) == 2 and text.isdecimal() and amount.value % 1 == 0:
        return amount._replace(value=amount.value + int(text) / 100, end=amount.end + 1)
    return amount


def _sum(values: Sequence[float]) -> float:
    """Return the number that number words say together: 2, 100, 50 is 250."""
    total = current = 0.0
    for value in values:
        if value in _SCALES:
            current = max(current, 1) * value
            if value > _LEAST_SCALE:
                total, current = total + current, 0
        else:
            current += value
    return total + current


def _glued(numbers: dict[str, str], glue: frozenset[str]) -> Callable[[str], float | None]:
    """Return what reads number words written as one: "zweihundertfünfzig"; nothing where a language has none."""
    if not glue:
        return lambda _: None
    names = sorted((name for name in numbers if " " not in name), key=len, reverse=True)
    part = re.compile("|".join(names))
    whole = re.compile(rf"(?:(?:{'|'.join(names)})(?:{'|'.join(glue)})?)+")

    def read(word: str) -> float | None:
        if not whole.fullmatch(word) or word.endswith(tuple(glue)):
            return None
        values = [float(numbers[name]) for name in part.findall(word)]
        return _sum(values) if len(values) > 1 else None

    return read
