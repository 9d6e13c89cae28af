"""What the closed phrases of a conversation say together: later ones replace, add to or lift earlier ones.

A language's reader reads one utterance. Here each word of the question learns what became of it, so that the plan can
tell what is still to be searched for.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import cached_property

from service.planner.fallback.reading.en import lists
from service.planner.fallback.reading.en.asides import split
from service.planner.fallback.reading.en.lists import denies
from service.planner.fallback.reading.en.reader import ENGLISH
from service.planner.fallback.reading.en.trimming import unsaid
from service.planner.fallback.reading.en.turns import Turn, read_turn
from service.planner.fallback.reading.phrases import OFFERS, Phrases, Refusal, SpokenPrice
from service.planner.fallback.reading.reader import Reader
from service.planner.fallback.reading.readers import reader_of
from service.planner.question import Question
from service.planner.spelling import begin_conversation


@dataclass(frozen=True, slots=True)
class Refused:
    """Refused words: a phrase of an utterance, and the indices of `Question.words` in each of its values."""

    words: range
    values: tuple[range, ...]


@dataclass(slots=True)
class DialogueState:
    """What stands after the newest utterance. `prices` have the position at which each was said."""

    price: SpokenPrice = field(default_factory=lambda: SpokenPrice(None, None, None, (0, 0)))
    prices: list[tuple[tuple[int, int], SpokenPrice]] = field(default_factory=list)
    rating: float | None = None
    sort: str = "relevance"
    offers: tuple[str, ...] = ()


class Conversation:
    """The closed phrases of every utterance of a question, read once by the reader of its language."""

    def __init__(self, question: Question) -> None:
        """Take a question; `self.question` is what is read of it, without what is no part of its wish."""
        begin_conversation()
        question, self.is_no_wish = split(question)
        self.question = question
        self.reader: Reader = reader_of(question)
        # Drafted by a model or by rules; plans in other languages are made of what their reader says.
        self.is_english: bool = self.reader is ENGLISH

    @cached_property
    def phrases(self) -> list[Phrases]:
        """What each utterance says; a plan that is about no product asks nobody."""
        return [self.reader.phrases(text, self.question.locale) for text in self.question.utterances]

    @cached_property
    def refusals(self) -> list[Refused]:
        """What is refused in any utterance."""
        refusals = [self._refused(at, refusal) for at, said in enumerate(self.phrases) for refusal in said.refused]
        return [refusal for refusal in refusals if refusal.values]  # past the last word are none

    @cached_property
    def turn(self) -> Turn:
        """What the newest utterance changes of those before it; nothing where there are none."""
        return read_turn(self.question.text, self.phrases[-1]) if len(self.question.utterances) > 1 else Turn()

    @cached_property
    def asked(self) -> tuple[str, ...]:
        """The utterances as a model reads them: of a wish without a history, only what no closed phrase says."""
        text = self.question.text
        if not self.is_english or len(self.question.utterances) > 1 or lists.QUESTION.search(text.lower()):
            return self.question.utterances
        refusals = {refusal.span for refusal in self.phrases[0].refused}
        return (unsaid(text, [span for span in self.phrases[0].spans if span not in refusals]),)

    @cached_property
    def taken(self) -> frozenset[int]:
        """Indices of words that belong to a price, rating, sort or offer."""
        found: set[int] = set()
        for utterance, said in enumerate(self.phrases):
            refusals = {refusal.span for refusal in said.refused}
            for span in said.spans:
                if span not in refusals:
                    found.update(self.words_in(utterance, span))
        return frozenset(found)

    @cached_property
    def names(self) -> frozenset[int]:
        """Indices of words in names that only look like closed phrases: no refusal is in "not your mother's"."""
        return frozenset(
            index
            for utterance, said in enumerate(self.phrases)
            for span in said.names
            for index in self.words_in(utterance, span)
        )

    def is_denied(self, first: int, last: int) -> bool:
        """Tell whether anything can refuse words `first` to `last`: what a model says to be refused may be wanted.

        A word of denial must stand before them in their utterance, in a later one, or after them where it refuses
        nothing else: in "off-white, not sheer" nothing does, nor in "no, the black one".
        """
        own = self.question.words[first].utterance
        return any(
            first <= index <= last
            or (not is_answer and (utterance > own or (utterance == own and refuses_from <= last)))
            for index, utterance, refuses_from, is_answer in self._denials
        )

    @cached_property
    def _denials(self) -> list[tuple[int, int, int, bool]]:
        """Words of denial: index, utterance, from which word on one refuses (-1: nothing), whether it only answers."""
        refuses_from: dict[int, int] = {}
        for refusal in self.refusals:
            for index in refusal.words:
                refuses_from[index] = max(refusal.words.start, refuses_from.get(index, -1))
        cues = {refusal.words.start for refusal in self.refusals}  # misspelt ones, too: "wihout"
        return [
            (index, word.utterance, refuses_from.get(index, -1), self._is_answer(index))
            for index, word in enumerate(self.question.words)
            if denies(word.text) or index in cues
        ]

    def _is_answer(self, index: int) -> bool:
        """Tell whether a word is the "no" of "no, the black one"."""
        word = self.question.words[index]
        is_first = index == 0 or self.question.words[index - 1].utterance < word.utterance
        after = self.question.utterances[word.utterance][word.end : word.end + 1]
        return is_first and word.utterance > 0 and word.text in lists.ANSWERS and after in (",", ".", "!")

    def words_in(self, utterance: int, span: tuple[int, int]) -> range:
        """Return the indices of the words that a span of an utterance touches."""
        offset, starts, ends = self._places[utterance]
        first, end = bisect_right(ends, span[0]), bisect_left(starts, span[1])
        return range(offset + first, offset + end) if first < end else range(0)

    @cached_property
    def _places(self) -> list[tuple[int, list[int], list[int]]]:
        """Of each utterance the index of its first word, and where its words start and end."""
        places: list[tuple[int, list[int], list[int]]] = [(0, [], []) for _ in self.question.utterances]
        for index, word in enumerate(self.question.words):
            if not places[word.utterance][1]:
                places[word.utterance] = (index, [], [])
            places[word.utterance][1].append(word.start)
            places[word.utterance][2].append(word.end)
        return places

    def _refused(self, utterance: int, refusal: Refusal) -> Refused:
        values = (self.words_in(utterance, value) for value in refusal.values)
        return Refused(self.words_in(utterance, refusal.span), tuple(value for value in values if value))

    def standing(self, first: int) -> DialogueState:
        """Return what the utterances from `first` on say together."""
        stands = DialogueState()
        for utterance in range(first, len(self.phrases)):
            said = self.phrases[utterance]
            _lift(stands, said)
            self._reprice(stands, said, utterance)
            stands.rating = stands.rating if said.rating_min is None else said.rating_min
            stands.sort = stands.sort if said.sort == "relevance" else said.sort
            stands.offers = tuple(offer for offer in OFFERS if offer in (*stands.offers, *said.offers))
        return stands

    @staticmethod
    def _reprice(stands: DialogueState, said: Phrases, utterance: int) -> None:
        if said.prices:
            currency = said.currency or stands.price.currency
            stands.price = SpokenPrice(said.price_min, said.price_max, currency, (0, 0))
            stands.prices += [((utterance, price.span[0]), price) for price in said.prices]


def _lift(stands: DialogueState, said: Phrases) -> None:
    if "price" in said.lifted:
        stands.price, stands.prices = SpokenPrice(None, None, None, (0, 0)), []
    if "sort" in said.lifted:
        stands.sort = "relevance"
    stands.offers = tuple(offer for offer in stands.offers if offer not in said.lifted)
