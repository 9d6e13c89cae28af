"""Rows of one's own to train on: JSON lines with any subset of labels, checked before anything is trained.

docs/own-data.md has a row of each kind. What a row does not say is context and no target; values stand in the words of
its question or history, as the shopper wrote them. No row says prices, ratings, needs, sorts or offers: the model that
a run begins with writes them into the rows (`own_data.with_context`), so that they are marked as before.
"""

import hashlib
import pickle
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from service.planner.plan import MAX_PARTS, Mode
from service.planner.plan_text import FacetSpan, PlanDraft, parse, render
from service.planner.question import Question, clean
from service.planner.vocabulary import DEFAULT_INTENT, Vocabulary
from training.data import conversations, written
from training.data.examples import Example
from training.data.mix import Dialogue, facet_values, product_example, written_examples
from training.data.rows import held_out, looks_conversational

ORIGIN, OURS = "own", "ours"
MOST_PROBLEMS = 20  # that a message lists
_UNTAUGHT = ("price", "rating", "need", "sort", "offers", "queries", "currency")

Text = Annotated[str, StringConstraints(min_length=1, max_length=512)]
Values = dict[str, Annotated[list[Text], Field(min_length=1)]]


class RowsError(ValueError):
    """Raised for rows that cannot be trained on; each line of the message is a place, a field and a reason."""


class _Labels(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    facets: Values = Field(default_factory=dict)
    exclude: Values = Field(default_factory=dict)


class OwnRow(_Labels):
    """A question and what is known of its plan. A label that is left out is unknown; an empty one says "none"."""

    question: Text
    history: list[Text] = Field(default_factory=list, max_length=8)
    intent: str | None = None
    mode: Mode | None = None
    parts: Annotated[list[_Labels], Field(min_length=2, max_length=MAX_PARTS)] = Field(default_factory=list)
    vertical: str | None = None
    sources: list[str] = Field(default_factory=list)
    foreign: Literal[True] | None = None

    @property
    def key(self) -> str:
        """The words that identify the row."""
        return " | ".join(map(clean, (*self.history, self.question))).lower()

    def knows(self, *labels: str) -> bool:
        """Tell whether any of the labels is given."""
        return not self.model_fields_set.isdisjoint(labels)


@dataclass(frozen=True, slots=True)
class OwnRows:
    """The rows of a file; a tenth, by a hash of the words, is held out to measure with.

    `repeated` are the lines that say again what an earlier one says.
    """

    train: list[Example]
    dev: list[Example]
    repeated: list[int] = field(default_factory=list)


def read_own_rows(path: Path, vocabulary: Vocabulary) -> OwnRows:
    """Read and check every row. Raises RowsError, which names line, field and reason of all that is wrong."""
    problems: list[str] = []
    rows: dict[str, tuple[int, OwnRow]] = {}
    found = OwnRows([], [])
    for number, line in _lines(path):
        try:
            row = _row(line)
            made = own_example(row, vocabulary)
            before, same = rows.setdefault(row.key, (number, row))
            if same != row:
                raise RowsError(f"question: line {before} has the same one with other labels")
        except RowsError as error:
            problems.append(f"{path}:{number}: {error}")
            continue
        if before != number:
            found.repeated.append(number)
        else:
            (found.dev if held_out(row.key) else found.train).append(made)
    if problems:
        more = [f"and {len(problems) - MOST_PROBLEMS} more"] if len(problems) > MOST_PROBLEMS else []
        raise RowsError("\n".join([*problems[:MOST_PROBLEMS], *more]))
    if not found.train:
        raise RowsError(f"{path}: no row to train on; docs/own-data.md has one of each kind")
    return found


def own_example(row: OwnRow, vocabulary: Vocabulary) -> Example:
    """Return the example of a row. Raises RowsError with field and reason.

    Where its vertical is known and its facets are not, its spans still have to be filled in, as context.
    """
    _check_known(row, vocabulary)
    intent = row.intent or DEFAULT_INTENT
    fixed = vocabulary.intents[intent].sources
    draft = _draft(row, PlanDraft(row.mode or _mode(row.question), intent, row.sources), vocabulary)
    return Example(
        row.question,
        draft,
        tuple(row.history),
        knows_intent=row.intent is not None,
        knows_sources=fixed is not None or row.knows("sources"),
        knows_facets=row.knows("facets", "exclude", "parts", "foreign"),
        knows_vertical=row.knows("vertical", "foreign"),
        origin=ORIGIN,
    )


def _mode(text: str) -> Mode:
    return "conversational" if looks_conversational(text) else "keyword"


def _draft(row: OwnRow, draft: PlanDraft, vocabulary: Vocabulary) -> PlanDraft:
    """Return the draft of a row whose values stand in the words of its question. Raises RowsError."""
    question = Question.parse(row.question, row.history)
    if vocabulary.intents[draft.intent].products:
        draft.foreign, draft.vertical = bool(row.foreign), row.vertical
        draft.spans = _spans(row, question)
    return parse(render(draft, question, vocabulary), question, vocabulary)  # of words said twice, those that it reads


def _spans(row: OwnRow, question: Question) -> list[FacetSpan]:
    """Return the spans of a row's values. Raises RowsError for one that stands nowhere."""
    shared, found, taken = list(_values(row)), list[FacetSpan](), set[int]()
    wanted = [(part, *own) for part, item in enumerate(row.parts, 1) for own in _values(item) if own not in shared]
    for part, facet, value, refused in [*wanted, *((0, *own) for own in shared)]:
        words = [word.text for word in Question.parse(value).words]
        first = _find(question, words, taken, newest=not row.parts)
        if first is None or not words:
            place = f"{f'parts.{part - 1}.' if part else ''}{'exclude' if refused else 'facets'}.{facet}"
            raise RowsError(f"{place}: {value!r} stands nowhere in the question's words, or only in another value")
        found.append(FacetSpan(facet, first, first + len(words) - 1, refused, part))
        taken.update(found[-1].indices)
    return found


def _values(labels: _Labels) -> Iterator[tuple[str, str, bool]]:
    for named, refused in ((labels.facets, False), (labels.exclude, True)):
        yield from ((facet, value, refused) for facet, values in named.items() for value in values)


def _find(question: Question, value: list[str], taken: set[int], *, newest: bool) -> int | None:
    """Return where a value stands among words that no other has taken, in the newest utterance that has it."""
    words = question.words
    places = [
        first
        for first in range(len(words) - len(value) + 1)
        if [word.text for word in words[first : first + len(value)]] == value
        and taken.isdisjoint(range(first, first + len(value)))
        and words[first].utterance == words[first + len(value) - 1].utterance
    ]
    utterances = [words[first].utterance for first in places]
    return places[utterances.index((max if newest else min)(utterances))] if places else None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"is not UTF-8: {error.reason}"
        raise RowsError(f"{path}: {reason}") from error
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line


def _row(line: str) -> OwnRow:
    try:
        return OwnRow.model_validate_json(line)
    except ValidationError as error:
        raise RowsError("; ".join(map(_reason, error.errors(include_url=False)))) from error


def _reason(problem: Any) -> str:
    field = ".".join(map(str, problem["loc"])) or "row"
    if problem["type"] == "extra_forbidden":
        name = str(problem["loc"][-1])
        if name in _UNTAUGHT:
            return f"{field}: is no label that a row can have; leave it out"
        return f"{field}: is no label; the labels are {', '.join(OwnRow.model_fields)}"
    return f"{field}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"


def _check_known(row: OwnRow, vocabulary: Vocabulary) -> None:
    """Raise RowsError unless the labels are of the vocabulary and go together."""
    _require(bool(clean(row.question)), "question", "has no visible character")
    labels = OwnRow.model_fields.keys() - {"question", "history"}
    _require(row.knows(*labels), "row", f"has no label; there are {', '.join(sorted(labels))}")
    _one_of(row.intent, vocabulary.intents, "intent")
    _one_of(row.vertical, vocabulary.verticals, "vertical")
    _require(row.intent is not None or row.mode is None, "mode", "needs an intent: one word of plan text says both")
    intent = vocabulary.intents[row.intent or DEFAULT_INTENT]
    about_products = ("facets", "exclude", "parts", "vertical", "foreign")
    for label in about_products:
        _require(intent.products or not row.knows(label), label, f"{row.intent!r} is not about products and has none")
    if row.foreign:
        _require(not row.knows(*about_products[:-1]), "foreign", "such a question has neither facets nor a vertical")
    if row.knows("sources"):
        named = row.intent or DEFAULT_INTENT
        _require(intent.sources is None, "sources", f"are no choice for {named!r}; leave them out")
        for source in row.sources:
            _one_of(source, list(vocabulary.source_of_word.values()), "sources")
        _require(0 < len(row.sources) == len(set(row.sources)), "sources", "needs one or more, each once")
    for place, labelled in [("", row), *((f"parts.{at}.", part) for at, part in enumerate(row.parts))]:
        for facet in (*labelled.facets, *labelled.exclude):
            _one_of(facet, vocabulary.facets, f"{place}{'facets' if facet in labelled.facets else 'exclude'}")


def _one_of(value: str | None, known: Sequence[str] | dict[str, Any], field: str) -> None:
    _require(value is None or value in known, field, f"{value!r} is not in the vocabulary: {', '.join(known)}")


def _require(holds: bool, field: str, otherwise: str) -> None:
    if not holds:
        raise RowsError(f"{field}: {otherwise}")


class OwnMix:
    """Own rows, and material of ours beside them, so that what the model knew is rehearsed (Robins, 1995).

    `path` holds the examples to train on and those held out, as `save` wrote them; its digest tells runs apart.
    """

    def __init__(self, path: Path, digest: str, rehearsed: int) -> None:
        del digest
        self._rehearsed = rehearsed
        self._own: OwnRows = pickle.loads(path.read_bytes())
        self._queries, self._products = written.labelled_queries(), written.product_names()
        self._values = facet_values(self._queries)

    @staticmethod
    def save(rows: OwnRows, path: Path) -> str:
        """Write examples for `path`; return their digest."""
        path.write_bytes(pickle.dumps(rows))
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def epoch(self, rng: random.Random) -> list[Dialogue]:
        """Draw every own row, and as many questions of ours as are to be rehearsed: half of them in conversations."""
        dialogues, fifth, turns = conversations.examples("train"), self._rehearsed // 5, 0
        drawn: list[Dialogue] = [(example,) for example in self._own.train]
        for dialogue in rng.sample(dialogues, len(dialogues)):
            if turns + len(dialogue) <= self._rehearsed // 2:
                drawn.append(dialogue)
                turns += len(dialogue)
        ours = [*written_examples(rng.sample(self._queries, min(fifth, len(self._queries))), rng)]
        ours += [product_example(*rng.choice(self._products), self._values, rng) for _ in range(fifth)]
        drawn += [(example,) for example in ours]
        rng.shuffle(drawn)
        return drawn

    def dev(self) -> dict[str, list[Example]]:
        return {ORIGIN: self._own.dev, OURS: list(chain.from_iterable(conversations.examples("dev")))}
