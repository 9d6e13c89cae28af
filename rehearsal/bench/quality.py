"""Quality on dev questions that training never saw: `make eval` writes docs/figures/quality.json.

Plans come from the same replicas, grammar and decoding as in service. Definitions:
  span F1        micro F1 over (facet, text) pairs of QueryNER's dev queries
  intent         share of questions with the right intent; "keyword" over bare keyword questions alone
  out of scope   recall over out-of-scope questions; false alarms over all others, and over wishes and questions
                 about products in conversations alone
  price          share of questions with both bounds right (None included)
  vertical       over all synthetic questions whose leaf category training did not have
  corrected      share of questions with one typing slip of which some query has the word that was meant
  asked          intents of our own dev sentences that have nothing else (training/data/asked.txt)
  conversations  share of the turns of conversations that training never saw, first and later ones, of whose plan
                 every field is right but mode, vertical, sources and queries
  behaviour      share of the open behaviour cases that pass, where the file is there
  writer_2_cases   the same of each set in cases/written.jsonl, whose writers saw neither those cases nor the planner
  scope          intents of cases/scope.tsv, by another such writer; a line has "shop", "out", "support" or "chat", the
                 intents that would be right, and the text
"""

import argparse
import asyncio
import importlib.util
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rehearsal.bench.machine import describe_machine, write_figure
from service.api.app import replica_pool, settings_reader, settings_vocabulary
from service.planner.completion import plan_from_draft
from service.planner.plan import Plan
from service.planner.plan_text import FacetSpan
from service.planner.planner import Planner, read_plan
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings import Settings
from training.data.examples import Example
from training.data.mix import SUPPORT_INTENTS, dev_sets

FIGURE = Path("docs/figures/quality.json")
WRITTEN_CASES = Path(__file__).with_name("cases") / "written.jsonl"
SAMPLES = {"queryner": 866, "price": 300, "taxonomy": 400, "clinc": 400, "asked": 400, "conversation": 400}
DEFAULT_SAMPLE = 150
MORE_LEAVES = "more leaves"  # the taxonomy rows outside the sample, used only for verticals, which need every row
ASKED, CONVERSATION = "asked", "conversation"
SCOPE_QUESTIONS = WRITTEN_CASES.with_name("scope.tsv")
Holds = Callable[[dict[str, Any], list[Any]], bool]


@dataclass(frozen=True, slots=True)
class Case:
    """One case: a question after its history, its class, and the assertions that all must hold."""

    kind: str
    question: Question
    assertions: tuple[list[Any], ...]


def read_cases(given: Path | str) -> list[Case]:
    """Return the cases of a file, a JSON object a line, or of a set of cases/written.jsonl by its name.

    Raises FileNotFoundError where neither is there.
    """
    path = Path(given)
    if path.is_file():
        return [_case(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if str(given) not in (sets := written_cases()):
        raise FileNotFoundError(f"{given} is no file, and no set of {WRITTEN_CASES}")
    return sets[str(given)]


def written_cases() -> dict[str, list[Case]]:
    """Return the cases of cases/written.jsonl by their set."""
    sets: dict[str, list[Case]] = {}
    for line in WRITTEN_CASES.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        sets.setdefault(row["set"], []).append(_case(row))
    return sets


def _case(row: dict[str, Any]) -> Case:
    question = Question.parse(row["query"], row.get("history", ()), row.get("locale"))
    return Case(row["class"], question, tuple(row["expect"]))


def checker(path: Path) -> Holds:
    """Return `holds` of the `check.py` beside the cases, which says what assertions mean. Raises FileNotFoundError."""
    program = path.with_name("check.py")
    spec = importlib.util.spec_from_file_location("behaviour_check", program)
    if spec is None or spec.loader is None or not program.is_file():
        raise FileNotFoundError(f"{program} is not there; it says what the assertions of {path.name} mean")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    holds: Holds = module.holds
    return holds


def passes(plan: Plan | None, case: Case, holds: Holds) -> bool:
    """Tell whether all assertions of a case hold for a plan; for no plan none does."""
    return plan is not None and all(holds(plan.model_dump(mode="json"), wanted) for wanted in case.assertions)


@dataclass(frozen=True, slots=True)
class Judged:
    """A dev example and its plan; None where no valid plan came."""

    origin: str
    example: Example
    question: Question
    plan: Plan | None


async def plan_all(planner: Planner, questions: Sequence[Question], workers: int) -> list[Plan | None]:
    """Plan every question; an invalid plan is None, never skipped."""
    plans: list[Plan | None] = [None] * len(questions)
    remaining = iter(enumerate(questions))

    async def work() -> None:
        for index, question in remaining:
            try:
                plans[index] = (await planner.plan_with_model(planner.task(question))).plan
            except (RuntimeError, ValueError) as error:
                print(f"no plan for {question.text!r}: {error}", file=sys.stderr)

    await asyncio.gather(*(work() for _ in range(workers)))
    return plans


def scores(judged: Sequence[Judged]) -> dict[str, Any]:
    """Compute every figure from plans and gold."""
    every = judged
    judged = [j for j in every if j.origin not in (MORE_LEAVES, ASKED, CONVERSATION)]
    turns = [j for j in every if j.origin == CONVERSATION]
    intents = shipped_vocabulary().intents
    wishes = [j for j in turns if intents[j.example.draft.intent].products]
    by_origin = {
        origin: [j for j in judged if j.origin == origin] for origin in dict.fromkeys(j.origin for j in judged)
    }
    keywords = [j for j in judged if j.example.draft.mode == "keyword" and not j.example.history]
    out = [j for j in judged if j.example.draft.intent == "out_of_scope"]
    scope = [j for j in judged if j.example.draft.intent != "out_of_scope"]
    priced = [j for j in judged if j.origin in ("price", "taxonomy")]
    labelled = {
        origin: by_origin[origin] for origin in ("queryner", "sentence", "price", "slip") if origin in by_origin
    }
    return {
        "questions": len(every),
        "valid_plans": _share(j.plan is not None for j in every),
        "invented_facet_values": sum(_invented(j) for j in every),
        "span_f1": {origin: round(span_f1(rows), 4) for origin, rows in labelled.items()},
        "intent": _share(_intent(j) == j.example.draft.intent for j in judged),
        "intent_keyword": _share(_intent(j) == j.example.draft.intent for j in keywords),
        "intent_by_origin": {
            o: _share(_intent(j) == j.example.draft.intent for j in rows) for o, rows in by_origin.items()
        },
        "mode": _share(j.plan is not None and j.plan.mode == j.example.draft.mode for j in judged),
        "out_of_scope_recall": _share(_intent(j) == "out_of_scope" for j in out),
        "out_of_scope_false_alarms": _share(_intent(j) == "out_of_scope" for j in scope),
        "shopping_out_of_scope": _share(_intent(j) == "out_of_scope" for j in wishes),
        "asked": _asked_scores([j for j in every if j.origin == ASKED]),
        "price_exact": _share(_price_is_exact(j) for j in priced),
        "vertical": _share(
            j.plan is not None and j.plan.vertical == j.example.draft.vertical
            for j in every
            if j.origin in ("taxonomy", MORE_LEAVES)
        ),
        "first_source": _share(_first_source_is_right(j) for j in by_origin.get("pqa", [])),
        "corrected": _share(_is_corrected(j) for j in by_origin.get("slip", []) if j.example.slip),
        "conversations": {
            name: _share(_is_as_labelled(j) for j in turns if bool(j.example.history) == is_later)
            for name, is_later in (("first turns", False), ("later turns", True))
        },
    }


def _asked_scores(judged: Sequence[Judged]) -> dict[str, float | None]:
    intents = shipped_vocabulary().intents
    products = [j for j in judged if intents[j.example.draft.intent].products]
    support = [j for j in judged if j.example.draft.intent in SUPPORT_INTENTS]
    out = [j for j in judged if j.example.draft.intent == "out_of_scope"]
    return {
        "intent": _share(_intent(j) == j.example.draft.intent for j in judged),
        "support_intent": _share(_intent(j) == j.example.draft.intent for j in support),
        "out_of_scope_recall": _share(_intent(j) == "out_of_scope" for j in out),
        "shopping_out_of_scope": _share(_intent(j) == "out_of_scope" for j in products),
    }


def span_f1(judged: Sequence[Judged]) -> float:
    """Return micro F1 over (facet, lower-case text) pairs; a pair named twice counts twice."""
    hits = wanted = given = 0
    for item in judged:
        gold = Counter(_gold_pairs(item))
        found = Counter(
            (facet, value.lower())
            for facet, values in (item.plan.facets if item.plan else {}).items()
            for value in values
        )
        hits += sum((gold & found).values())
        wanted += sum(gold.values())
        given += sum(found.values())
    return 2 * hits / max(1, wanted + given)


def _gold_pairs(item: Judged) -> set[tuple[str, str]]:
    def text(span: FacetSpan) -> str:
        return item.question.surface(span.first, span.last).lower()

    return {(span.facet, text(span)) for span in item.example.draft.spans}


def _intent(item: Judged) -> str | None:
    return item.plan.intent if item.plan else None


def _invented(item: Judged) -> int:
    texts = "\n".join(item.question.utterances)
    values = [value for values in item.plan.facets.values() for value in values] if item.plan else []
    return sum(value not in texts for value in values)


def _price_is_exact(item: Judged) -> bool:
    return item.plan is not None and (item.plan.price.min, item.plan.price.max) == item.example.price


def _first_source_is_right(item: Judged) -> bool:
    return item.plan is not None and item.plan.sources[:1] != [] and item.plan.sources[0] in item.example.draft.sources


def _is_corrected(item: Judged) -> bool:
    meant = item.example.slip[1] if item.example.slip else ""
    return item.plan is not None and any(meant in query.split() for query in item.plan.queries)


def _is_as_labelled(item: Judged) -> bool:
    """Tell whether all that a shop filters and sorts by is right."""
    if item.plan is None:
        return False
    wanted = plan_from_draft(item.example.draft, item.question, shipped_vocabulary())
    return _compared(item.plan.model_dump(mode="json")) == _compared(wanted.model_dump(mode="json"))


def _compared(plan: dict[str, Any]) -> dict[str, Any]:
    compared = {name: plan[name] for name in ("intent", "price", "rating", "sort")}
    compared["offers"] = sorted(plan["offers"])
    compared["things"] = [
        {name: _values(thing[name]) for name in ("facets", "exclude")} | {"price": thing["price"]}
        for thing in (plan, *plan["parts"])
    ]
    return compared


def _values(facets: dict[str, list[str]]) -> list[tuple[str, str]]:
    return sorted((facet, value.lower()) for facet, values in facets.items() for value in values)


def _share(outcomes: Any) -> float | None:
    counted = list(outcomes)
    return round(sum(counted) / len(counted), 4) if counted else None


def dev_questions(data: Path, most: int | None = None) -> dict[str, list[Example]]:
    """Return dev examples by origin, at most so many of each; drawn at random, as the rows of some are sorted."""
    every = dev_sets(data)
    sets = {}
    for origin, examples in every.items():
        usual = SAMPLES.get(origin, DEFAULT_SAMPLE)
        sets[origin] = random.Random(origin).sample(examples, min(usual if most is None else most, len(examples)))
    if most is None:
        drawn = {id(example) for example in sets["taxonomy"]}
        sets[MORE_LEAVES] = [example for example in every["taxonomy"] if id(example) not in drawn]
    return sets


def behaviour_scores(cases: Sequence[Case], plans: Sequence[Plan | None], holds: Holds) -> dict[str, Any]:
    """Return the share of cases that pass, and how many of each class."""
    passed: Counter[str] = Counter()
    for case, plan in zip(cases, plans, strict=True):
        passed[case.kind] += passes(plan, case, holds)
    tried = Counter(case.kind for case in cases)
    return {
        "cases": len(cases),
        "passed": round(passed.total() / len(cases), 4),
        "by_class": {kind: f"{passed[kind]}/{tried[kind]}" for kind in sorted(tried)},
    }


@dataclass(frozen=True, slots=True)
class ScopeQuestion:
    """A question, the group that it belongs to, and the intents that a plan of it may have."""

    group: str
    intents: frozenset[str]
    question: Question


def read_scope_questions(path: Path = SCOPE_QUESTIONS) -> list[ScopeQuestion]:
    """Read the questions. Raises ValueError with the line that has not three columns."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        columns = line.split("\t")
        if len(columns) != 3:
            raise ValueError(f"{path.name}:{number}: {len(columns)} columns where there should be three")
        group, intents, text = columns
        found.append(ScopeQuestion(group, frozenset(intents.split("|")), Question.parse(text)))
    return found


def scope_scores(questions: Sequence[ScopeQuestion], plans: Sequence[Plan | None]) -> dict[str, int | float]:
    """Return how many there are, the share of each group with a fair intent, and the shoppers turned away."""
    given = [(asked, plan.intent if plan else None) for asked, plan in zip(questions, plans, strict=True)]

    def share(group: str, outcomes: Sequence[bool]) -> float:
        return round(sum(outcomes) / max(1, sum(asked.group == group for asked, _ in given)), 4)

    groups = dict.fromkeys(asked.group for asked in questions)
    right = {g: share(g, [asked.group == g and intent in asked.intents for asked, intent in given]) for g in groups}
    turned_away = share("shop", [asked.group == "shop" and intent == "out_of_scope" for asked, intent in given])
    return {"questions": len(questions), **right, "shop_out_of_scope": turned_away}


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked: dev examples by origin, questions of scope, and behaviour cases where they are at hand."""

    sets: dict[str, list[Example]]
    scope: list[ScopeQuestion]
    cases: dict[str, list[Case]]  # by the name of their figure
    cases_path: Path

    def questions(self) -> list[Question]:
        """Return the questions of all, those of scope and the cases last."""
        others = [asked.question for asked in self.scope]
        others += [case.question for cases in self.cases.values() for case in cases]
        return [example.question() for examples in self.sets.values() for example in examples] + others

    def scores(self, plans: Sequence[Plan | None]) -> dict[str, Any]:
        """Score the plans of `questions()`."""
        pairs = [(origin, example) for origin, examples in self.sets.items() for example in examples]
        judged = [
            Judged(origin, example, example.question(), plan)
            for (origin, example), plan in zip(pairs, plans[: len(pairs)], strict=True)
        ]
        found = scores(judged)
        first = len(pairs) + len(self.scope)
        found["scope"] = scope_scores(self.scope, plans[len(pairs) : first])
        for name, cases in self.cases.items():
            found[name] = behaviour_scores(cases, plans[first : first + len(cases)], checker(self.cases_path))
            first += len(cases)
        return found


async def model_plans(settings: Settings, questions: Sequence[Question]) -> tuple[str, list[Plan | None]]:
    """Return the identifier of the settings' model, and its plans; an invalid plan is None."""
    pool = replica_pool(settings)
    await pool.start()
    try:
        planner = Planner(pool, settings_vocabulary(settings))
        return pool.model_id, await plan_all(planner, questions, settings.replica_count)
    finally:
        await pool.close()


def asked_questions(data: Path, cases: Path | None = None, sample: int | None = None) -> Asked:
    """Read the dev rows, at most `sample` of an origin, and the behaviour cases where the file is there."""
    cases = cases or data.parent / "behaviour" / "cases.jsonl"
    read: dict[str, list[Case]] = {}
    if cases.is_file():  # whose program judges all
        read = {"behaviour": read_cases(cases)} | {f"{name}_cases": each for name, each in written_cases().items()}
    return Asked(dev_questions(data, sample), read_scope_questions(), read, cases)


async def evaluate(asked: Asked, model_dir: Path) -> dict[str, Any]:
    """Plan the questions with the model and with the reader; return the figure."""
    settings, questions = Settings(model_dir=model_dir), asked.questions()
    vocabulary, reader = settings_vocabulary(settings), settings_reader(settings)
    model_id, plans = await model_plans(settings, questions)
    return {
        "command": "make eval",
        "machine": describe_machine(),
        "model": {"id": model_id, **asked.scores(plans)},
        "reader": asked.scores([read_plan(PlanTask(question, vocabulary, reader=reader)) for question in questions]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="peakplan eval", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the dev rows (../shared/data)")
    parser.add_argument("--cases", type=Path, help="behaviour cases (../behaviour/cases.jsonl beside the data)")
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--output", type=Path, default=FIGURE)
    parser.add_argument("--sample", type=int, help="questions an origin at most, for a quick look")
    parser.add_argument("--json", action="store_true", help="print the whole figure as one line of JSON")
    arguments = parser.parse_args()
    asked = asked_questions(arguments.data, arguments.cases, arguments.sample)
    figure = asyncio.run(evaluate(asked, arguments.model))
    write_figure(arguments.output, figure)
    print(json.dumps(figure) if arguments.json else json.dumps(figure["model"], indent=1))


if __name__ == "__main__":
    main()
