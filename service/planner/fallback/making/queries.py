"""The search queries of a plan, made of the question's words: none is decoded.

The first is strict, the next corrects its spelling, and the last is wider and keeps only what names the thing. Each of
several things has its own.
"""

from collections.abc import Iterable, Iterator, Sequence

from service.planner.fallback.reading.en.data import PHRASES
from service.planner.fallback.reading.en.lists import (
    COLORS,
    COMPARING,
    FUNCTION_WORDS,
    JOINS,
    QUESTION_VERBS,
    UNSEARCHED,
)
from service.planner.fallback.reading.en.trimming import without
from service.planner.plan import MAX_QUERIES
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.spelling import correct, is_known
from service.planner.spelling import words as word_list
from service.planner.vocabulary import NAMING_FACETS, QUESTIONS

_ARTICLES = ("a", "an", "the", "some", "my", "our", "your")
_LINKS = ("of", "for", "with")
_PARTING = JOINS | COMPARING | QUESTION_VERBS | PHRASES.words("word.parting")  # what several things end at
_MARKS = ",.?!;:()\"'"
_MOST_ASKED_WORDS = 8


def distinct(queries: Iterable[str], most: int = MAX_QUERIES) -> list[str]:
    """Return the first queries that say something, each once."""
    return list(dict.fromkeys(query for query in queries if query.strip()))[:most]


def content_query(question: Question) -> list[str]:
    """Return the newest utterance's words that carry meaning; all of them where none does."""
    words = question.own_words
    content = [word for word in words if word.text not in FUNCTION_WORDS]
    return distinct([" ".join(word.text for word in content or words)])


class Queries:
    """Writes the queries of a plan about products."""

    def __init__(
        self,
        question: Question,
        draft: PlanDraft,
        spans: list[FacetSpan],
        first: int,
        cut: frozenset[int],
        standing: Sequence[int],
    ) -> None:
        """Take the plan's `spans`, the `first` utterance in force, and words to leave out, `cut`: no part of a thing.

        The model's own spans, in `draft`, say what is named and yet replaced. `standing` are words of before that no
        span has and that still tell what is wanted.
        """
        self._question = question
        self._words = question.words
        self._draft = draft
        self._spans = spans
        self._first = first
        self._standing = standing
        self._cut = cut
        self._named = {index for span in draft.spans for index in span.indices} | cut
        self._newest = len(question.utterances) - 1

    def of_part(self, spans: list[FacetSpan]) -> list[str]:
        """Return the queries of one of several things, which has these spans."""
        strict = self._kept(spans, self._continued(spans))
        return distinct([strict, correct(strict)])

    def _continued(self, spans: Iterable[FacetSpan]) -> Iterator[int]:
        """Yield words right after what names one of several things, and after its "of" or "for": a "ream of a4"."""
        links = (
            ("of",) if self._draft.intent == "compare_products" else _LINKS
        )  # "a or b for reading": both are for that
        for span in spans:
            index, is_link = span.last + 1, False
            while span.part and index < len(self._words) and self._adjoins(index - 1) and index not in self._named:
                text = self._words[index].text
                is_link = text in links or (is_link and text in _ARTICLES)
                if not is_link and (text in UNSEARCHED or text in _PARTING):
                    break
                if not is_link:
                    yield index
                index += 1

    def of_question(self) -> list[str]:
        """Return the queries of a question about one thing."""
        wanted = [span for span in self._spans if not span.refused]
        names = [span for span in wanted if span.facet in NAMING_FACETS]
        is_alone = not self._newest
        if self._draft.mode == "keyword" and is_alone:
            strict = self._rest(self._newest)
        elif names:
            strict = self._kept(wanted, (*self._numbers(), *self._modifiers(names), *self._standing))
        else:
            strict = " ".join(filter(None, map(self._content, range(self._first, self._newest + 1))))
        strict = strict or self._kept(wanted) or self._question.text.lower()
        queries = [strict, correct(strict), correct(self._kept(names))]
        if names and is_alone and self._draft.intent in QUESTIONS:
            queries.insert(0, self._asked())
        return distinct(queries)

    def _numbers(self) -> Iterator[int]:
        """Yield words with a number that no span names: "toys for a 3 year old" are for that age."""
        words = self._words
        gone = self._cut if self._first == self._newest else range(len(words))
        for index, word in enumerate(words):
            if index not in gone and word.text[0].isdigit() and word.utterance == self._newest:
                end = index + 1
                while end < min(len(words), index + 3) and end not in gone and words[end].text not in FUNCTION_WORDS:
                    end += 1
                yield from range(index, end)

    def _modifiers(self, names: Iterable[FacetSpan]) -> Iterator[int]:
        """Yield words right before a thing's name that no span has: the "standing" of a desk.

        After a history, only those that name no facet: another may have replaced them.
        """
        for span in names:
            index = span.first - 1
            while index >= 0 and index not in self._named and self._adjoins(index):
                text = self._words[index].text
                if text in UNSEARCHED or not text.isalpha() or (self._newest and not _tells_kind(text)):
                    break
                yield index
                index -= 1

    def _adjoins(self, index: int) -> bool:
        """Tell whether a word and the next stand in one utterance, with no mark between them."""
        word, after = self._words[index : index + 2]
        return word.utterance == after.utterance and after.start - word.end == 1

    def _asked(self) -> str:
        """Return the words that a short question is about; nothing of a long one, which tells a story."""
        words = self._content(self._newest).split()
        return " ".join(words) if len(words) <= _MOST_ASKED_WORDS else ""

    def _content(self, utterance: int) -> str:
        words = (word.strip(_MARKS) for word in self._rest(utterance).split())
        return " ".join(word for word in words if word and word not in UNSEARCHED)

    def _rest(self, utterance: int) -> str:
        """Return an utterance without the words to leave out, as a person would type what remains."""
        words = (self._words[index] for index in sorted(self._cut))
        spans = [(word.start, word.end) for word in words if word.utterance == utterance]
        return without(self._question.utterances[utterance], spans).lower()

    def _kept(self, spans: Iterable[FacetSpan], others: Iterable[int] = ()) -> str:
        """Return the words of wanted spans, none of which is refused, and other words of the question with them."""
        spelled = self._question.spelled
        spans = [span for span in spans if not span.refused]
        near = {0, *(span.part for span in spans)}
        refused = {spelled(span.indices) for span in self._spans if span.refused and span.part in near}
        wanted = [span for span in spans if spelled(span.indices) not in refused] or spans
        return spelled((*(index for span in wanted for index in span.indices), *others))


def _tells_kind(text: str) -> bool:
    """Tell whether a word rather says what kind of thing something is than names a facet: the "garden" of a hose."""
    is_attribute = text in COLORS or word_list().facets.get(text) not in (None, "type", "theme")
    return is_known(text) and not is_attribute
