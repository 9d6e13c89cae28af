"""One utterance in a language that is data: its closed phrases, its values, and what is left to search for."""

from dataclasses import dataclass, field
from typing import Final

from service.planner.reading.generic.amounts import Amounts
from service.planner.reading.generic.data import LanguageData
from service.planner.reading.generic.facets import Facets, Value
from service.planner.reading.generic.prices import PricePhrase, Prices, merge
from service.planner.reading.generic.refusals import Refusals
from service.planner.reading.generic.words import FoldedWords
from service.planner.reading.phrases import OFFERS, Phrases, Refusal, SpokenPrice
from service.planner.reading.tokens import BREAKS

_MOST_STARS: Final = 5
_LEFT_OUT: Final = BREAKS - {"(", ")"} | frozenset("¿¡\"'“”„«»-–—~=<>…")


@dataclass(slots=True)
class Said:
    """What one utterance says. Tokens are those of `words`; `kept` are those to search for, in order.

    `turns` tells that it begins or ends as a change of what was said before, `begins` that it leaves that behind.
    `lifted` has facets, too: "cualquier marca". `removed` are words that it takes back.
    """

    words: FoldedWords
    phrases: Phrases
    kept: list[int]
    values: list[Value]
    refused: list[Value]
    lifted: frozenset[str] = frozenset()
    removed: list[str] = field(default_factory=list)
    turns: bool = False
    begins: bool = False
    asks: bool = False  # it has a lead-in such as "busco", or is a question
    adds: bool = False
    amount: tuple[float, str | None] | None = None  # the one amount of an utterance that says no more


class Utterances:
    """Reads utterances of one language."""

    def __init__(self, data: LanguageData) -> None:
        self._data = data
        self.amounts = Amounts(data)
        self.facets = Facets(data)
        self._prices = Prices(data, self.amounts)
        self._refusals = Refusals(data, self.facets)
        self._ratings = data.patterns("rating")
        self._stars = data.table("numbers")
        self._closed = data.trie("refuse", "refuse.known", "drop", *data.names("sort."), *data.names("offer."), "name")
        self._lead = data.trie("lead", "drop", "turn")
        self._leads = data.trie("lead")
        self._turn = data.trie("turn")
        self._turn_end = data.trie("turn.end", "courtesy", backwards=True)
        self._begin = data.trie("turn.new")
        self._remove = data.trie("remove")
        self._remove_end = data.trie("remove.end", backwards=True)
        self._courtesy = data.trie("courtesy")
        self._lifts = data.patterns("lift.")
        self._articles = data.words("word.articles")
        self.prepositions = data.words("word.prepositions")
        self._trim_end = data.words("word.trim.end")
        self._trim_start = data.words("word.trim.start")
        self._function = data.words("word.function")
        self._restating = data.words("word.restating")

    def read(self, text: str, territory: str | None = None) -> Said:
        """Read one utterance. Total, and linear in the text's length but for its longest phrases."""
        return _Reading(self, FoldedWords(text, umlauts=self._data.umlauts), territory).said()


class _Reading:
    """One pass over an utterance; `_taken` are tokens with a meaning that leaves the queries."""

    def __init__(self, language: Utterances, words: FoldedWords, territory: str | None) -> None:
        self._language = language
        self._words = words
        self._territory = territory
        self._taken: set[int] = set()
        self._names: set[int] = set()
        self._dropped: set[int] = set()  # tokens of courtesy, which may also begin a lead-in: "hätte gerne"
        self._rating: float | None = None
        self._sort = "relevance"
        self._offers: set[str] = set()
        self._refusals: list[Refusal] = []
        self._refused: list[Value] = []
        self._lifted: set[str] = set()
        self._removed: list[str] = []

    def said(self) -> Said:
        words = self._words
        begins = self._opening()
        self._read_lifts()
        self._read_ratings()
        prices = self._read_prices()
        self._scan()
        turns, asks = self._ends()
        turned, start = self._starts()
        values = self._language.facets.find(words, self._taken)
        kept = self._kept(start, {index for value in values for index in range(value.first, value.end)})
        values = [value for value in values if value.first >= start and value.first in kept]
        said = Said(words, self._phrases(prices), kept, values, self._refused)
        said.lifted, said.removed = frozenset(self._lifted), self._removed
        said.turns, said.begins = turns or turned, begins
        said.asks = asks or start > 0 or "?" in words.texts
        said.amount = self._amount_alone(prices)
        return said

    def _phrases(self, prices: list[PricePhrase]) -> Phrases:
        words, together = self._words, merge(prices)
        if together.min is not None or together.max is not None:
            self._lifted.discard("price")
        spoken = [SpokenPrice(p.min, p.max, p.currency, words.span(p.first, p.end)) for p in prices]
        return Phrases(
            prices=tuple(spoken),
            price_min=together.min,
            price_max=together.max,
            currency=together.currency,
            rating_min=self._rating,
            sort=self._sort,
            offers=tuple(offer for offer in OFFERS if offer in self._offers),
            refused=tuple(self._refusals),
            lifted=frozenset(self._lifted),
            spans=tuple(words.span(index, index + 1) for index in sorted(self._taken)),
        )

    def _take(self, first: int, end: int) -> int:
        self._taken.update(range(first, end))
        return end

    def _is_free(self, first: int, end: int) -> bool:
        return self._taken.isdisjoint(range(first, end))

    def _opening(self) -> bool:
        """Take what leaves the topic behind: "olvida eso", "jetzt suche ich"."""
        for at in range(len(self._words.texts)):
            match = self._language._begin.match(self._words, at)
            if match and all(index in self._taken or self._words.texts[index] in _LEFT_OUT for index in range(at)):
                self._take(at, at + match[0])
                return True
            if self._words.texts[at] not in _LEFT_OUT:
                break
        return False

    def _read_lifts(self) -> None:
        words = self._words
        for name, pattern in self._language._lifts:
            for match in pattern.finditer(words.joined):
                tokens = words.tokens_in(match.start(), match.end())
                if self._is_free(tokens.start, tokens.stop):
                    self._lifted.add(name)
                    self._take(tokens.start, tokens.stop)

    def _read_ratings(self) -> None:
        words = self._words
        for _, pattern in self._language._ratings:
            for match in pattern.finditer(words.joined):
                told = next(group for group in match.groups() if group)
                stars = float(self._language._stars.get(told, told))
                tokens = words.tokens_in(match.start(), match.end())
                if 0 < stars <= _MOST_STARS and self._is_free(tokens.start, tokens.stop):
                    self._rating = stars if self._rating is None else self._rating
                    self._take(tokens.start, tokens.stop)

    def _read_prices(self) -> list[PricePhrase]:
        off = self._numbers_of_offers()
        prices = self._language._prices.find(self._words, frozenset(self._taken | off), self._territory)
        for price in prices:
            self._take(price.first, price.end)
        return prices

    def _numbers_of_offers(self) -> set[int]:
        found: set[int] = set()
        for at in range(len(self._words.texts)):
            match = self._language._closed.match(self._words, at)
            if match and match[1].startswith("offer."):
                found.update(range(at, at + match[0]))
        return found

    def _scan(self) -> None:
        """Read sort, offers, refusals and what is taken back, token by token, the longest phrase first."""
        words, at = self._words, 0
        while at < len(words.texts):
            if at in self._taken:
                at += 1
                continue
            stop = next((index for index in range(at, len(words.texts)) if index in self._taken), None)
            match = self._language._closed.match(words, at, stop)
            back = self._language._remove.match(words, at, stop)
            if back and (match is None or back[0] >= match[0]):
                at = self._take_back(at, back[0])
            elif match is None:
                at += 1
            elif match[1] in ("refuse", "refuse.known"):
                at = self._refuse(at, match[0], known=match[1] == "refuse.known")
            else:
                at = self._say(match[1], at, at + match[0])

    def _say(self, label: str, first: int, end: int) -> int:
        kind, _, value = label.partition(".")
        if kind == "name":
            self._names.update(range(first, end))
            return end
        if kind == "drop":
            self._dropped.update(range(first, end))
        if kind == "sort":
            is_order = self._sort == "rating" and value.startswith("price_")  # "well rated, cheapest first"
            self._sort = value if self._sort == "relevance" or is_order else self._sort
        elif kind == "offer":
            self._offers.add(value)
        return self._take(first, end)

    def _take_back(self, first: int, length: int) -> int:
        """Take "quita lo de impermeable", "es muss nicht blau sein": the rest names what is taken back."""
        words = self._words
        at = first + length
        after = self._language._closed.match(words, at)
        if after and after[1].startswith(("sort.", "offer.")):
            self._lifted.add("sort" if after[1].startswith("sort.") else after[1].partition(".")[2])
            return self._take(first, at + after[0])
        end = at
        while end < len(words.texts) and words.texts[end] not in BREAKS and end not in self._taken:
            end += 1
        match = self._language._remove_end.match(words, end - 1)
        stop = end - match[0] if match and end - match[0] > at else end
        self._removed += [words.texts[index] for index in range(at, stop)]
        return self._take(first, end)

    def _refuse(self, first: int, length: int, *, known: bool) -> int:
        words = self._words
        refused = self._language._refusals.read(words, first, length, self._taken, known=known)
        if refused is None:
            return first + length
        self._refusals.append(
            Refusal(tuple(words.span(*value) for value in refused.values), words.span(refused.first, refused.end))
        )
        for start, end in refused.values:
            facet = self._language.facets.facet_at(words, start) or "feature"
            self._refused.append(Value("line" if facet == "line" else facet, start, end))
        return self._take(refused.first, refused.end)

    def _ends(self) -> tuple[bool, bool]:
        """Take courtesy and turns at the end: "por favor", "lieber", "à la place"."""
        words, end, turns, asks = self._words, len(self._words.texts), False, False
        while end > 0:
            if end - 1 in self._taken or words.texts[end - 1] in _LEFT_OUT:
                asks |= words.texts[end - 1] == "?"
                end -= 1
            elif match := self._language._turn_end.match(words, end - 1):
                turns |= match[1] == "turn.end"
                self._take(end - match[0], end)
                end -= match[0]
            else:
                break
        return turns, asks

    def _starts(self) -> tuple[bool, int]:
        """Skip "hola, busco un", "y", "mejor en": return whether a turn is among them, and the first token after."""
        words, at, turns = self._words, 0, False
        start = 0
        while at < len(words.texts):
            text = words.texts[at]
            match = self._language._lead.match(words, at)
            is_free = match and (self._taken - self._dropped).isdisjoint(range(at, at + match[0]))
            if (at in self._taken and not (is_free and match and match[1] == "lead")) or text in _LEFT_OUT:
                at += 1
                continue
            if match and is_free and not self._names.intersection(range(at, at + match[0])):
                turns |= match[1] == "turn"
                at += match[0]
                start = at
                if words.texts[at - 1] in self._language.prepositions and match[1] == "turn":
                    start = at - 1  # of "y con cajones", the "con" belongs to what is wanted
                    break
            elif courtesy := self._language._courtesy.match(words, at):
                self._take(at, at + courtesy[0])
                at += courtesy[0]
                start = at
            elif text in self._language._articles and at + 1 < len(words.texts):
                at += 1
                start = at
            else:
                break
        return turns, start

    def _kept(self, start: int, named: set[int]) -> list[int]:
        """Return the tokens to search for, without what only led to phrases that were taken."""
        words = self._words
        runs: list[list[int]] = [[]]
        for index in range(start, len(words.texts)):
            if index in self._taken:
                runs.append([])
            else:
                runs[-1].append(index)
        kept: list[int] = []
        for run in runs:
            kept += self._trimmed(run, is_first=not kept, named=named)
        return kept

    def _trimmed(self, run: list[int], *, is_first: bool, named: set[int]) -> list[int]:
        texts = self._words.texts
        language = self._language
        run = [index for index in run if not self._is_loose(index)]
        while run and (texts[run[-1]] in language._trim_end or texts[run[-1]] in language._articles):
            if run[-1] in named:
                break
            run.pop()
        is_led = is_first and bool(run) and run[0] - 1 in self._taken
        small = (
            language._articles | language.prepositions if is_led else language._articles if is_first else frozenset()
        )
        while run and (texts[run[0]] in language._trim_start or texts[run[0]] in small):
            if run[0] in named:
                break
            run.pop(0)
        while is_first and len(run) > 1:
            match = language._leads.match(self._words, run[0])
            if match is None or match[0] >= len(run) or run[match[0] - 1] - run[0] != match[0] - 1:
                break
            run = run[match[0] :]
            while run and (texts[run[0]] in language._trim_start or texts[run[0]] in language._articles):
                run.pop(0)
        return run

    def _is_loose(self, index: int) -> bool:
        """Tell whether a token is a mark that belongs to no word."""
        words = self._words
        if words.texts[index] not in _LEFT_OUT:
            return False
        glued = words.texts[index] in "-'\"”″" and index > 0 and words.touches(index - 1)
        return not (glued and (words.touches(index) or words.texts[index - 1][:1].isdigit()))

    def _amount_alone(self, prices: list[PricePhrase]) -> tuple[float, str | None] | None:
        words = self._words
        found = self._language.amounts.find(words, frozenset(), self._territory)
        if len(found) != 1:
            return None
        (amount,) = found
        rest = [*words.texts[: amount.first], *words.texts[amount.end :]]
        if any(text.isalnum() and text not in self._language._restating for text in rest):
            return None
        del prices
        return amount.value, amount.currency
