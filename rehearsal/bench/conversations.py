"""How far plans are from what writers labelled, turn by turn, and how often a plan does harm.

    python -m rehearsal.bench.conversations ROWS… [--model FOLDER] [--reader] [--worst FILE] [--no-doubt]
    python -m rehearsal.bench.conversations --figure       # model and reader, into docs/figures/conversations.json

ROWS are files in the notation of `training.data.notation`, or JSON lines of conversations. Labels name the values; a
plan is judged by the words that it searches for, filters by and refuses, so that another cut of the same words counts
as right.
"""

import argparse
import gzip
import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rehearsal.bench.machine import describe_machine, write_figure
from service.engines.protocol import PromptTooLongError
from service.planner.completion import plan_from_draft
from service.planner.plan_text import PlanTextError, parse
from service.planner.planner import read_plan, settled_text
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.vocabulary import Vocabulary
from service.settings import Settings
from service.settings.choices import SHIPPED_MODEL
from training.data import notation
from training.data.conversations import scored_rows
from training.data.notation import Conversation


def text_key(task: PlanTask) -> str:
    """Return a digest of all that a model sees of a question."""
    return hashlib.sha256(f"{task.prompt}\x1e{task.grammar}".encode()).hexdigest()[:20]


def generator(model_dir: Path, *, doubts: bool = True) -> Callable[[PlanTask], str]:
    """Return what writes the text of a plan as the service has it, or without `doubts` what the model writes.

    PyTorch and the model are loaded for the first question that needs them.
    """
    loaded: list[Any] = []
    reader = Reader.of_model(model_dir)

    def generate(task: PlanTask) -> str:
        if not loaded:
            from service.engines.torch_engine import load

            settings = Settings(model_dir=model_dir)
            loaded.append((load(settings.engine_config), settings.strategy))
        model, strategy = loaded[0]
        drafted = PlanTask(task.question, task.vocabulary, reader=reader)
        result = model.generate(drafted.request(strategy))
        text: str = result.text
        if not doubts:
            return text
        return settled_text(text, result.unsure_words, drafted)

    return generate


# Of fresh writers, on which nothing was trained or tuned; each row names its set: a test, and its language where
# that is not English.
ROWS: Final = Path(__file__).with_name("rows.jsonl.gz")
FIGURE: Final = Path("docs/figures/conversations.json")
PRODUCTS: Final = frozenset(("find_product", "compare_products", "advise", "ask_product"))
MOST_HISTORY: Final = 8
_MOST_STALE = 2  # words of facets that no label wants
_LEAST_WANTED, _LEAST_REFUSED = 0.8, 0.6  # shares of the labelled words
_NEAR = 0.011
Json = dict[str, Any]
Planning = Callable[[PlanTask], Json]


def words(text: str) -> set[str]:
    """Return the words of a text, folded, without marks."""
    return set(re.findall(r"[^\W_]+", text.lower().replace("’", "'")))


def _words_of(sides: Sequence[Json], key: str, facet: str | None = None) -> set[str]:
    """Return the words of one side of a plan and its parts; of one facet where that is named."""
    return {
        word
        for side in sides
        for name, values in (side.get(key) or {}).items()
        for value in values
        if facet in (None, name)
        for word in words(value)
    }


@dataclass(frozen=True, slots=True)
class Said:
    """The words of a plan, and of what was labelled."""

    wanted: set[str]
    refused: set[str]
    things: set[str]
    queries: set[str]
    excluded: set[str]
    facets: set[str]
    top_facets: set[str]

    @classmethod
    def of(cls, label: Json, plan: Json) -> "Said":
        labelled, planned = [label, *(label.get("parts") or [])], [plan, *(plan.get("parts") or [])]
        return cls(
            _words_of(labelled, "wanted"),
            _words_of(labelled, "refused"),
            _words_of(labelled, "wanted", "type"),
            {word for side in planned for query in side.get("queries") or [] for word in words(query)},
            _words_of(planned, "exclude"),
            _words_of(planned, "facets"),
            _words_of([plan], "facets"),
        )


def judge(label: Json, plan: Json) -> Iterator[tuple[str, bool]]:
    """Yield (field, whether it is right) for each field that a label has an opinion on."""
    intent, got = label["intent"], plan["intent"]
    yield "intent", got == intent or {got, intent} <= {"find_product", "advise"}
    if intent not in PRODUCTS:
        return
    said = Said.of(label, plan)
    yield "searches", bool(said.queries)
    if said.things:
        yield "the thing stands", said.things <= said.queries
    if said.wanted:
        if label.get("wanted"):
            yield "nothing stale", len(said.top_facets - said.wanted) <= _MOST_STALE
        held = len(said.wanted & (said.queries | said.facets))
        yield "wanted stands", held >= _LEAST_WANTED * len(said.wanted)
    if said.refused:
        yield "refused is excluded", len(said.refused & said.excluded) >= _LEAST_REFUSED * len(said.refused)
        yield "refused leaves queries", not (said.refused - said.wanted) & said.queries
    yield "nothing else excluded", not said.excluded - said.refused
    yield "nothing wanted excluded", not said.excluded & (said.wanted - said.refused)
    if not label.get("parts"):
        bounds = [(label.get("price") or {}, plan.get("price") or {}, side) for side in ("min", "max")]
        yield "price", all(_same(wanted.get(side), got.get(side)) for wanted, got, side in bounds)
        yield "sort", (plan.get("sort") or "relevance") == (label.get("sort") or "relevance")
        yield "offers", set(plan.get("offers") or []) == set(label.get("offers") or [])
    yield "parts", len(plan.get("parts") or []) == len(label.get("parts") or [])


def harms(label: Json, plan: Json) -> Iterator[str]:
    """Yield the ways in which a plan is worse than none."""
    if label["intent"] not in PRODUCTS:
        return
    if plan["intent"] not in PRODUCTS:
        yield "turned away"
        return
    said = Said.of(label, plan)
    if said.excluded - said.refused:
        yield "refuses what nobody refused"
    if said.things and not said.things & said.queries:
        yield "loses the thing"
    priced = [side.get("price") or {} for side in (label, *(label.get("parts") or []))]
    if not any(priced) and any((plan.get("price") or {}).get(side) is not None for side in ("min", "max")):
        yield "filters by a price that nobody said"


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _NEAR * max(1.0, abs(other))


def _wilson(right: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Return the 95% interval of a share (Wilson, 1927)."""
    share, weight = right / of, z * z / of
    middle, half = share + weight / 2, z * math.sqrt(share * (1 - share) / of + weight / (4 * of))
    return (middle - half) / (1 + weight), (middle + half) / (1 + weight)


def committed() -> dict[str, list[Conversation]]:
    """Return the conversations of ROWS by their set."""
    lines: dict[str, list[str]] = defaultdict(list)
    for line in gzip.decompress(ROWS.read_bytes()).decode().splitlines():
        lines[json.loads(line)["set"]].append(line)
    return {name: scored_rows("\n".join(each)) for name, each in lines.items()}


def read(path: Path) -> list[Conversation]:
    """Read a file of rows in either layout. Raises ValueError for a fault."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")
    if ".jsonl" in path.suffixes:
        return scored_rows(text)
    kept, faults = notation.read_text(text, path.name)
    if faults:
        raise ValueError(faults[0])
    return kept


class Tally:
    """Counts by kind of turn: "first" and "later"."""

    def __init__(self) -> None:
        self.turns: Counter[str] = Counter()
        self.whole: Counter[str] = Counter()
        self.asked: dict[str, Counter[str]] = defaultdict(Counter)
        self.right: dict[str, Counter[str]] = defaultdict(Counter)
        self.harmed: Counter[str] = Counter()
        self.harms: Counter[str] = Counter()

    def add(self, kind: str, label: Json, plan: Json) -> list[str]:
        """Count one turn; return the fields that are wrong."""
        results, harm = dict(judge(label, plan)), list(harms(label, plan))
        self.turns[kind] += 1
        self.whole[kind] += all(results.values())
        self.asked[kind].update(list(results))
        self.right[kind].update(field for field, right in results.items() if right)
        self.harmed[kind] += bool(harm)
        self.harms.update(harm)
        return [field for field, right in results.items() if not right]

    def figure(self) -> Json:
        """Return shares with their 95% intervals."""
        figure: Json = {}
        for kind, turns in self.turns.items():
            low, high = _wilson(self.whole[kind], turns)
            fields = {field: round(self.right[kind][field] / n, 4) for field, n in self.asked[kind].items()}
            figure[kind] = {
                "turns": turns,
                "whole": round(self.whole[kind] / turns, 4),
                "interval": [round(low, 4), round(high, 4)],
                "harm": round(self.harmed[kind] / turns, 4),
                "fields": fields,
            }
        return figure | {"harms": dict(self.harms)}


def measure(conversations: Sequence[Conversation], plan: Planning, vocabulary: Vocabulary) -> tuple[Json, list[Json]]:
    """Plan every turn; return the figure, and what is wrong with each turn that is not right."""
    tally, wrong = Tally(), []
    for conversation in conversations:
        says = [turn.say for turn in conversation.turns]
        for at, turn in enumerate(conversation.turns):
            history = says[max(0, at - MOST_HISTORY) : at]
            task = PlanTask(Question.parse(turn.say, history, conversation.locale), vocabulary)
            made = plan(task)
            fields = tally.add("later" if at else "first", turn.plan, made)
            if fields:
                wrong.append({"history": history, "say": turn.say, "wrong": fields, "label": turn.plan, "plan": made})
    return tally.figure(), wrong


def by_model(model: Path, vocabulary: Vocabulary, *, doubts: bool = True) -> Planning:
    """Return what plans with a model folder, in this process."""
    generate, stand_in = generator(model, doubts=doubts), by_reader(model, vocabulary)

    def plan(task: PlanTask) -> Json:
        try:
            draft = parse(generate(task), task.question, vocabulary)
        except (PlanTextError, PromptTooLongError):  # cut short, or not begun: the reader answers
            return stand_in(task)
        return plan_from_draft(draft, task.question, vocabulary).model_dump(mode="json")

    return plan


def by_reader(model: Path, vocabulary: Vocabulary) -> Planning:
    """Return what plans with the reader of a model folder."""
    reader = Reader.of_model(model)
    return lambda task: read_plan(PlanTask(task.question, vocabulary, reader=reader)).model_dump(mode="json")


def measure_sets(model: Path, vocabulary: Vocabulary) -> None:
    """Write how far plans of model and reader are from each set of labels."""
    planners = {"model": by_model(model, vocabulary), "reader": by_reader(model, vocabulary)}
    sets: Json = {}
    for name, rows in committed().items():
        sets[name] = {who: measure(rows, plan, vocabulary)[0] for who, plan in planners.items()}
    figure = {"command": "make eval", "machine": describe_machine(), "sets": sets}
    write_figure(FIGURE, figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="*")
    parser.add_argument("--figure", action="store_true", help="write the figure of the committed rows")
    parser.add_argument("--model", type=Path, default=SHIPPED_MODEL, help="model folder")
    parser.add_argument("--no-doubt", action="store_true", help="keep the filters that model and reader doubt")
    parser.add_argument("--reader", action="store_true", help="plan with the reader alone")
    parser.add_argument("--worst", type=Path, help="write every turn that is not right into this file")
    parser.add_argument("--most", type=int, help="conversations of each file at most")
    arguments = parser.parse_args()
    vocabulary = Vocabulary.load(arguments.model)
    if arguments.figure:
        measure_sets(arguments.model, vocabulary)
        return
    if arguments.reader:
        plan = by_reader(arguments.model, vocabulary)
    else:
        plan = by_model(arguments.model, vocabulary, doubts=not arguments.no_doubt)
    every: list[Json] = []
    for path in arguments.rows:
        figure, wrong = measure(read(path)[: arguments.most], plan, vocabulary)
        print(path.name, json.dumps(figure))
        every += wrong
    if arguments.worst:
        lines = (json.dumps(row, ensure_ascii=False) for row in every)
        arguments.worst.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
