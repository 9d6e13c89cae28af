"""Quality on dev questions that training never saw: `make eval` writes docs/figures/quality.json.

Plans come from the same replicas, grammar and decoding as in service. Definitions:
  span F1        micro F1 over (facet, text) pairs of QueryNER's dev queries
  intent         share of questions with the right intent; "keyword" over bare keyword questions alone
  out of scope   recall over out-of-scope questions; false alarms over all others
  price          share of questions with both bounds right (None included)
  vertical       over all synthetic questions whose leaf category training did not have
"""

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from service.api.app import replica_pool
from service.engines.protocol import Engine
from service.planner.fallback import fallback_plan
from service.planner.plan import Plan
from service.planner.plan_text import FacetSpan
from service.planner.planner import Planner
from service.planner.queries import search_queries
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary
from service.settings import Settings
from training.data.examples import Example
from training.data.mix import dev_sets

FIGURE = Path("docs/figures/quality.json")
SAMPLES = {"queryner": 866, "price": 300, "taxonomy": 400, "clinc": 400}
DEFAULT_SAMPLE = 150
MORE_LEAVES = "more leaves"  # the taxonomy rows outside the sample, used only for verticals, which need every row


@dataclass(frozen=True, slots=True)
class Judged:
    """A dev example and its plan; None where no valid plan came."""

    origin: str
    example: Example
    question: Question
    plan: Plan | None


async def plan_all(
    engine: Engine, vocabulary: Vocabulary, sets: dict[str, list[Example]], workers: int
) -> list[Judged]:
    """Plan every example; an invalid plan is recorded as None, never skipped."""
    planner = Planner(engine, vocabulary)
    queue = [(origin, example) for origin, examples in sets.items() for example in examples]
    judged: list[Judged] = []
    remaining = iter(queue)

    async def work() -> None:
        for origin, example in remaining:
            question = example.question()
            try:
                plan: Plan | None = (await planner.plan_with_model(planner.task(question))).plan
            except (RuntimeError, ValueError) as error:
                print(f"no plan for {example.query!r}: {error}", file=sys.stderr)
                plan = None
            judged.append(Judged(origin, example, question, plan))

    await asyncio.gather(*(work() for _ in range(workers)))
    return judged


def scores(judged: Sequence[Judged]) -> dict[str, Any]:
    """Compute every figure from plans and gold."""
    every = judged
    judged = [j for j in every if j.origin != MORE_LEAVES]
    by_origin = {
        origin: [j for j in judged if j.origin == origin] for origin in dict.fromkeys(j.origin for j in judged)
    }
    keywords = [j for j in judged if j.example.draft.mode == "keyword" and not j.example.history]
    out = [j for j in judged if j.example.draft.intent == "out_of_scope"]
    scope = [j for j in judged if j.example.draft.intent != "out_of_scope"]
    priced = [j for j in judged if j.origin in ("price", "taxonomy")]
    labelled = {
        origin: by_origin[origin]
        for origin in ("queryner", "sentence", "price", "follow_up", "slip")
        if origin in by_origin
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
        "price_exact": _share(_price_is_exact(j) for j in priced),
        "vertical": _share(
            j.plan is not None and j.plan.vertical == j.example.draft.vertical
            for j in every
            if j.origin in ("taxonomy", MORE_LEAVES)
        ),
        "first_source": _share(_first_source_is_right(j) for j in by_origin.get("pqa", [])),
        "corrected": _share(_is_corrected(j) for j in by_origin.get("slip", []) if j.example.draft.correction),
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
    draft = item.example.draft
    return item.plan is not None and (item.plan.price.min, item.plan.price.max) == (draft.price_min, draft.price_max)


def _first_source_is_right(item: Judged) -> bool:
    return item.plan is not None and item.plan.sources[:1] != [] and item.plan.sources[0] in item.example.draft.sources


def _is_corrected(item: Judged) -> bool:
    wanted = search_queries(item.example.draft, item.question)[1]
    return item.plan is not None and wanted in item.plan.queries


def _share(outcomes: Any) -> float | None:
    counted = list(outcomes)
    return round(sum(counted) / len(counted), 4) if counted else None


def rules_scores(vocabulary: Vocabulary, sets: dict[str, list[Example]]) -> dict[str, Any]:
    """Score the rule fallback on the same questions: the plans that shoppers get when no replica is free."""
    judged = []
    for origin, examples in sets.items():
        for example in examples:
            question = example.question()
            judged.append(Judged(origin, example, question, fallback_plan(question, vocabulary)))
    return scores(judged)


async def evaluate(data: Path, model_dir: Path, samples: dict[str, int]) -> dict[str, Any]:
    """Plan the dev questions with the model and with the rules; return the figure."""
    every = dev_sets(data)
    # Drawn at random: the rows of some origins are sorted by intent.
    sets = {
        origin: random.Random(origin).sample(examples, min(samples.get(origin, DEFAULT_SAMPLE), len(examples)))
        for origin, examples in every.items()
    }
    if samples is SAMPLES:
        drawn = {id(example) for example in sets["taxonomy"]}
        sets[MORE_LEAVES] = [example for example in every["taxonomy"] if id(example) not in drawn]
    settings, vocabulary = Settings(model_dir=model_dir), Vocabulary.load(model_dir)
    pool = replica_pool(settings)
    await pool.start()
    try:
        judged = await plan_all(pool, vocabulary, sets, settings.replica_count)
    finally:
        await pool.close()
    return {
        "command": "make eval",
        "machine": describe_machine(),
        "model": {"id": pool.model_id, **scores(judged)},
        "rules": rules_scores(vocabulary, sets),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the dev rows (../shared/data)")
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--output", type=Path, default=FIGURE)
    parser.add_argument("--sample", type=int, help="questions an origin at most, for a quick look")
    arguments = parser.parse_args()
    samples = SAMPLES if arguments.sample is None else dict.fromkeys(dev_sets(arguments.data), arguments.sample)
    figure = asyncio.run(evaluate(arguments.data, arguments.model, samples))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(figure["model"], indent=1))


if __name__ == "__main__":
    main()
