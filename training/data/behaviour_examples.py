"""The questions of `behaviour.py` as training examples: the values of their plans are found again in their words."""

from collections.abc import Iterator
from functools import cache

from service.planner.plan_text import FacetSpan, PlanDraft, PlanTextError, parse, render
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary
from training.data.behaviour import Row, rows
from training.data.behaviour_plans import VOCABULARY, Plan
from training.data.examples import Example
from training.data.rows import Split


@cache
def examples(split: Split) -> list[Example]:
    """Return every row of a split that plan text can say."""
    return [made for row in rows() if row.split == split and (made := example(row)) is not None]


class UnsayableError(ValueError):
    """Raised for a plan that plan text cannot say of its question; the message begins with the field."""


def example(row: Row) -> Example | None:
    """Return the example of a row; None where plan text cannot say its plan, as when two things alternate."""
    question, plan = Question.parse(row.question, row.history), row.plan
    try:
        draft = draft_of(plan, question, VOCABULARY, foreign=row.kind == "language")
    except UnsayableError:
        return None
    price = (plan["price"]["min"], plan["price"]["max"])
    origin = f"behaviour_{row.kind}"
    return Example(row.question, draft, row.history, knows_vertical=True, price=price, expected=plan, origin=origin)


def draft_of(plan: Plan, question: Question, vocabulary: Vocabulary, *, foreign: bool = False) -> PlanDraft:
    """Return the draft of a plan, whose values are found again in the question's words. Raises UnsayableError."""
    draft = PlanDraft(plan["mode"], plan["intent"], list(plan["sources"]))
    if vocabulary.intents[plan["intent"]].products:
        draft.foreign, draft.vertical = foreign, plan["vertical"]
        draft.spans = _spans(plan, question)
    try:
        said = parse(render(draft, question, vocabulary), question, vocabulary)
    except PlanTextError as error:
        raise UnsayableError(f"facets: {error}") from error
    if [span.part for span in said.spans] != [span.part for span in draft.spans]:
        raise UnsayableError("parts: their values alternate in the question; each has to stand in one piece")
    draft.spans = said.spans  # of words that were said twice, the same ones
    return draft


def _spans(plan: Plan, question: Question) -> list[FacetSpan]:
    """Return the spans of a plan's values in the order of the question. Raises UnsayableError."""
    found: list[FacetSpan] = []
    taken: set[int] = set()
    wanted = [(part, *value) for part, item in enumerate(plan["parts"], 1) for value in _own_values(item, plan)]
    wanted += [(0, *value) for value in _values(plan)]
    for part, facet, value, refused in wanted:
        words = [word.text for word in Question.parse(value).words]
        first = _find(question, words, taken, newest=not plan["parts"])
        if first is None or not words:
            place = f"{f'parts.{part - 1}.' if part else ''}{'exclude' if refused else 'facets'}.{facet}"
            raise UnsayableError(f"{place}: {value!r} stands nowhere in the question's words, or only in another value")
        last = first + len(words) - 1
        taken.update(range(first, last + 1))
        found.append(FacetSpan(facet, first, last, refused, part))
    return sorted(found, key=lambda span: span.first)


def _values(item: Plan) -> Iterator[tuple[str, str, bool]]:
    for name in ("facets", "exclude"):
        for facet, values in item[name].items():
            yield from ((facet, value, name == "exclude") for value in values)


def _own_values(part: Plan, plan: Plan) -> Iterator[tuple[str, str, bool]]:
    """Yield the values of a part that do not hold for all of them."""
    shared = set(_values(plan))
    yield from (value for value in _values(part) if value not in shared)


def _find(question: Question, value: list[str], taken: set[int], *, newest: bool) -> int | None:
    """Return where a value stands among words that no other has taken, in the newest utterance that has it."""
    texts = [word.text for word in question.words]
    places = [
        first
        for first in range(len(texts) - len(value) + 1)
        if texts[first : first + len(value)] == value
        and not taken.intersection(range(first, first + len(value)))
        and question.words[first].utterance == question.words[first + len(value) - 1].utterance
    ]
    if not places:
        return None
    utterance = (max if newest else min)(question.words[first].utterance for first in places)
    return next(first for first in places if question.words[first].utterance == utterance)
