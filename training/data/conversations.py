"""Conversations whose plans people of no rule labelled, as examples: the whole wish after each turn, word by word.

Writers label values as they were said (`notation`); plan text needs to know where. A value keeps the place where it was
said when it came into the wish, so that a turn's plan text is that of the turn before with what changed.
"""

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from service.planner.amounts import read_amounts
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from training.data import notation
from training.data.examples import Example
from training.data.notation import Conversation, Turn, plain
from training.data.rows import Split, looks_conversational

FOLDER: Final = Path(__file__).with_name("conversations")
DEV_WRITERS: Final = ("m", "n")  # of whose rows training sees nothing
_HEADING: Final = re.compile(r"^# writer (\S+)$", re.MULTILINE)
_AROUND: Final = 0.2  # "around 50" is 40 to 60
_CLOSE: Final = 0.011
_EDGES: Final = re.compile(r"^\W+|\W+$")
_LEAST_NEED: Final = 2  # words of a need that other spans leave


class UnplacedError(ValueError):
    """Raised where a label cannot be written as plan text; the message says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: utterance of the whole conversation, first and last word of it."""

    utterance: int
    first: int
    last: int


@cache
def conversations(split: Split, folder: Path = FOLDER) -> list[tuple[str, Conversation]]:
    """Return (writer, conversation) of every committed row of a split. Raises ValueError for a file with a fault."""
    written: dict[str, list[Conversation]] = defaultdict(list)
    for path in sorted(folder.glob("*.gz")):
        for writer, rows in _by_writer(path):
            if (writer in DEV_WRITERS) == (split == "dev"):  # reading the others' rows takes seconds
                named = f"{path.name}, writer {writer}"
                kept, faults = (scored_rows(rows), []) if ".jsonl" in path.name else notation.read_text(rows, named)
                if faults:
                    raise ValueError(faults[0])
                written[writer] += kept
    return [(writer, conversation) for writer in sorted(written) for conversation in written[writer]]


def _by_writer(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (writer, rows) of a file. JSON lines name their writer; in the notation a heading does."""
    text = gzip.decompress(path.read_bytes()).decode()
    if ".jsonl" in path.name:
        for writer, lines in groupby(text.splitlines(), lambda line: str(json.loads(line)["writer"])):
            yield writer, "\n".join(lines)
        return
    _, *sections = _HEADING.split(text)
    yield from zip(sections[::2], sections[1::2], strict=True)


def scored_rows(text: str) -> list[Conversation]:
    """Read JSON lines in the layout that the conversations' scorer reads."""
    found = []
    for line in text.splitlines():
        if line.strip():
            row = json.loads(line)
            turns = [Turn(turn["say"], turn["plan"], turn.get("vertical")) for turn in row["turns"]]
            found.append(Conversation(row.get("who", ""), row.get("shop", ""), row.get("locale") or "", turns))
    return found


def examples_of(conversation: Conversation, origin: str = "conversation") -> Iterator[Example | UnplacedError]:
    """Yield an example for each turn, or why its label cannot be one."""
    placed: dict[tuple[str, str], Place] = {}
    price: dict[str, Place] = {}
    for at, turn in enumerate(conversation.turns):
        try:
            example, placed, price = _Placing(conversation, at, placed, price).example()
            yield replace(example, origin=origin)
        except UnplacedError as error:
            yield UnplacedError(f"{turn.say[:60]!r}: {error}")


class _Placing:
    """Finds where the values of one turn's label were said."""

    def __init__(
        self, conversation: Conversation, at: int, placed: dict[tuple[str, str], Place], price: dict[str, Place]
    ) -> None:
        self._turn = conversation.turns[at]
        self._locale = conversation.locale
        says = [turn.say for turn in conversation.turns[: at + 1]]
        self._history = tuple(says[:-1][-8:])
        self._question = Question.parse(says[-1], self._history)
        self._skipped = at + 1 - len(self._question.utterances)  # earlier ones that a question does not keep
        self._newest = at
        self._before, self._price_before = placed, price
        self._placed: dict[tuple[str, str], Place] = {}
        self._price: dict[str, Place] = {}
        self._taken: set[int] = set()
        self._texts = [_EDGES.sub("", word.text.replace("’", "'")) or word.text for word in self._question.words]
        starts: dict[int, int] = {}
        for index, word in enumerate(self._question.words):
            starts.setdefault(word.utterance, index)
        self._starts = starts

    def example(self) -> tuple[Example, dict[tuple[str, str], Place], dict[str, Place]]:
        """Return the example and where everything stands. Raises UnplacedError."""
        turn, plan = self._turn, with_shared(self._turn.plan)
        intent = shipped_vocabulary().intents[plan["intent"]]
        is_sentence = self._newest > 0 or looks_conversational(turn.say)
        draft = PlanDraft("conversational" if is_sentence else "keyword", plan["intent"])
        draft.sources = list(intent.sources or (("reviews", "qa") if turn.opinion else ("catalog",)))
        self._spans_of(plan, draft, 0)
        for number, part in enumerate(plan.get("parts", ()), 1):
            self._spans_of(part, draft, number)
        if "rating" in plan:
            draft.marks.append(self._span("rating", plan["rating"]["words"], 0))
        if "need" in plan:
            draft.marks += self._need(plan["need"])
        draft.sort, draft.offers = plan.get("sort", "relevance"), list(plan.get("offers", ()))
        draft.vertical = None if turn.vertical == "none" else turn.vertical
        placed, price = self._placed, self._price
        if not intent.products:  # the wish stands, unsaid
            draft = PlanDraft(draft.mode, draft.intent, draft.sources)
            placed, price = self._before | placed, self._price_before | price
        example = Example(
            turn.say, draft, self._history, knows_mode=False, knows_closing=True,
            knows_vertical=turn.vertical is not None,
            knows_sources=intent.sources is not None or turn.opinion is not None, locale=self._locale,
            expected=turn.plan,
        )  # fmt: skip
        return example, placed, price

    def _spans_of(self, wish: dict[str, Any], draft: PlanDraft, part: int) -> None:
        for side in ("wanted", "refused"):
            for facet, values in (wish.get(side) or {}).items():
                for value in values:
                    draft.spans.append(self._span(facet, value, part, refused=side == "refused"))
        if wish.get("price"):
            draft.marks += self._price_marks(wish["price"], part)

    def _span(self, facet: str, value: str, part: int, *, refused: bool = False) -> FacetSpan:
        key = (facet, plain(value))
        first, length = self._find(value, self._before.get(key))
        self._taken.update(range(first, first + length))
        self._placed[key] = self._place(first, length)
        return FacetSpan(facet, first, first + length - 1, refused, part)

    def _find(self, value: str, before: Place | None) -> tuple[int, int]:
        """Return first word and number of words of a value: where it stood before, or where it was said last."""
        if before is not None and (first := self._index(before)) is not None:
            length = before.last - before.first + 1
            if self._taken.isdisjoint(range(first, first + length)):
                return first, length
        wanted = [_EDGES.sub("", word) or word for word in plain(value).split()]
        for first in range(len(self._texts) - len(wanted), -1, -1):
            last = first + len(wanted) - 1
            if self._texts[first : last + 1] != wanted or not self._taken.isdisjoint(range(first, last + 1)):
                continue
            if self._question.words[first].utterance == self._question.words[last].utterance:
                return first, len(wanted)
        raise UnplacedError(f"{value!r} is no run of free words")

    def _index(self, place: Place) -> int | None:
        start = self._starts.get(place.utterance - self._skipped)
        return None if start is None else start + place.first

    def _place(self, first: int, length: int) -> Place:
        utterance = self._question.words[first].utterance
        start = first - self._starts[utterance]
        return Place(utterance + self._skipped, start, start + length - 1)

    def _price_marks(self, price: dict[str, Any], part: int) -> Iterator[FacetSpan]:
        """Yield one mark, or two where each bound was said for itself."""
        low, high = price.get("min"), price.get("max")
        marks = {mark: price["words"] for mark in _marks_of(price["words"], low, high, self._locale)}
        if not marks:
            raise UnplacedError(f"{price['words']!r} does not say {low} to {high}")
        for mark, words in marks.items():
            place = self._before.get((mark, plain(words)))
            first, length = self._find(words, place)
            self._taken.update(range(first, first + length))
            self._placed[mark, plain(words)] = self._place(first, length)
            self._price[f"{mark}/{part}"] = self._placed[mark, plain(words)]
            yield FacetSpan(mark, first, first + length - 1, part=part)
        missing = "max" if "min" in marks and high is not None else "min" if "max" in marks and low is not None else ""
        if missing:
            place = self._price_before.get(f"{missing}/{part}")
            first_word = None if place is None else self._index(place)
            if place is None or first_word is None:
                raise UnplacedError(f"where was the {missing} of {price} said?")
            self._price[f"{missing}/{part}"] = place
            self._taken.update(range(first_word, first_word + place.last - place.first + 1))
            yield FacetSpan(missing, first_word, first_word + place.last - place.first, part=part)

    def _need(self, value: str) -> list[FacetSpan]:
        """Return the longest run of a need's words that no other span has."""
        taken, self._taken = self._taken, set()
        first, length = self._find(value, self._before.get(("need", plain(value))))
        self._taken = taken
        self._placed["need", plain(value)] = self._place(first, length)
        runs: list[list[int]] = [[]]
        for index in range(first, first + length):
            if index in taken:
                runs.append([])
            else:
                runs[-1].append(index)
        longest = max(runs, key=len)
        if len(longest) < _LEAST_NEED:
            return []
        self._taken.update(longest)
        return [FacetSpan("need", longest[0], longest[-1])]


def with_shared(plan: dict[str, Any]) -> dict[str, Any]:
    """Return a plan in which what every part wants, refuses or may cost is said once, for all of them."""
    first, *others = plan.get("parts") or [{}]
    if not others:
        return plan
    shared: dict[str, Any] = deepcopy(plan)
    parts = shared["parts"]
    for side in ("wanted", "refused"):
        for facet, values in (first.get(side) or {}).items():
            for value in values:
                if all(value in (part.get(side) or {}).get(facet, ()) for part in others):
                    for part in parts:
                        part[side][facet].remove(value)
                    shared.setdefault(side, {}).setdefault(facet, []).append(value)
    if first.get("price") and all(part.get("price") == first["price"] for part in others):
        shared["price"] = first["price"]
        for part in parts:
            del part["price"]
    return shared


def _marks_of(words: str, low: float | None, high: float | None, locale: str) -> Sequence[str]:
    """Return the mark under which these words say the bounds, at least one of them; none where they do not."""
    values = [amount.value for amount in read_amounts(words, locale)]
    said = {bound: any(_near(value, bound) for value in values) for bound in (low, high) if bound is not None}
    if low is not None and high is not None:
        if len(values) > 1 and all(said.values()):
            return ("range",)
        if any(_near(low, value * (1 - _AROUND)) and _near(high, value * (1 + _AROUND)) for value in values):
            return ("about",)
        return ("max",) if values and _near(values[-1], high) else ("min",) if values and _near(values[-1], low) else ()
    bound, mark = (high, "max") if high is not None else (low, "min")
    return (mark,) if bound is not None and values and _near(values[-1], bound) else ()


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= _CLOSE * max(1.0, abs(other))


def dialogues(conversation: Conversation, origin: str) -> Iterator[tuple[Example, ...]]:
    """Yield the turns that can be written as plan text; a turn that forgets the oldest begins anew."""
    run: list[Example] = []
    for turn in examples_of(conversation, origin):
        if not isinstance(turn, Example):
            continue
        if run and not render_prompt(turn.question()).startswith(render_prompt(run[-1].question())):
            yield tuple(run)
            run = []
        run.append(turn)
    if run:
        yield tuple(run)


@cache
def examples(split: Split) -> list[tuple[Example, ...]]:
    """Return the conversations of a split, as far as they can be written as plan text."""
    return [
        dialogue
        for writer, conversation in conversations(split)
        for dialogue in dialogues(conversation, f"writer_{writer}")
    ]
