"""Cues of prices: the phrases before a number that say what bound it is ("under", "entre", "won't cost more than")."""

from typing import Final, NamedTuple

from service.planner.fallback.reading.claims import Claims
from service.planner.fallback.reading.language_data import LanguageData
from service.planner.fallback.reading.tokens import Words

HIGH: Final = "price.high"
LOW: Final = "price.low"
NEAR: Final = "price.around"
BETWEEN: Final = "price.between"
FROM: Final = "price.from"
WEAK: Final = "price.weak"
OTHER: Final = "price.other"
BESIDE_BREAKS: Final = frozenset((":", "="))
_TURNED: Final = {HIGH: LOW, LOW: HIGH}
_MONEY: Final = ".money"  # ends the name of a section whose cues need a currency: "from 50 bucks"


class Cue(NamedTuple):
    """A phrase from token `first` on that says what bound the number after it is; `is_soft`: "budget", "spend"."""

    first: int
    kind: str
    needs_money: bool = False
    is_soft: bool = False


class Cues:
    """Finds cues in one language."""

    def __init__(self, data: LanguageData, claims: Claims) -> None:
        self.fill = data.words("word.price.fill")
        self.soft = data.words("word.price.soft")
        self._phrases = data.trie(HIGH, LOW, NEAR, BETWEEN, FROM, WEAK, OTHER, FROM + _MONEY, backwards=True)
        self._claims = claims
        self._compares = data.words("word.price.compares")
        self._turns = data.words("word.price.turns")
        self._between = data.words("word.price.turned")

    def match(self, words: Words, last: int, taken: frozenset[int]) -> tuple[int, str] | None:
        """Return the first token and the kind of the cue that ends with token `last`.

        A no before what compares turns it, and belongs to it: "won't cost me more than 50" is no lower bound.
        """
        match = self._phrases.match(words, last)
        if match is None:
            return None
        at = first = last + 1 - match[0]
        said, kind = words.texts[first : last + 1], match[1]
        if kind not in _TURNED or self._compares.isdisjoint(said) or not self._turns.isdisjoint(said):
            return first, kind
        while at > 0 and at - 1 not in taken:
            at -= 1
            if words.texts[at] in self._turns:
                return at, _TURNED[kind]
            if words.texts[at] not in self._between:
                break
        return first, kind

    def before(self, words: Words, end: int, taken: frozenset[int]) -> Cue | None:
        """Return the cue that ends right before token `end`, past an outer one: "no más de unos 50"."""
        texts = words.texts
        found: Cue | None = None
        at = end
        while at > 0 and at - 1 not in taken:
            if match := self.match(words, at - 1, taken):
                if found and self._claims.is_name(words, match[0], at):
                    break
                at, kind = match
            elif texts[at - 1] in self.fill or texts[at - 1] in BESIDE_BREAKS:
                at -= 1
                continue
            else:
                break
            outer = _joined(
                found, at, kind, is_soft=not self.soft.isdisjoint(texts[at : found.first if found else end])
            )
            if outer is None:
                break
            found = outer
        return found


def _joined(found: Cue | None, first: int, kind: str, *, is_soft: bool) -> Cue | None:
    """Return what a cue and the one `found` between it and the number say together; None where that says nothing."""
    needs_money, kind = kind.endswith(_MONEY), kind.removesuffix(_MONEY)
    if found is None:
        return Cue(first, kind, needs_money, is_soft)
    if kind == HIGH and is_soft and found.kind in (NEAR, FROM, BETWEEN):
        return found._replace(first=first, needs_money=False)  # "budget um die 50" is no bound
    if kind in (HIGH, LOW):  # "no más de unos 50": the bound holds
        return Cue(first, BETWEEN if found.kind == BETWEEN else kind, is_soft=is_soft)
    return found._replace(first=first) if kind in (NEAR, WEAK, FROM) and found.kind == kind else None
