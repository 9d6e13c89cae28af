"""A model's own plans of new queries, without the facets that are more likely wrong than right.

Greedy decoding gives every word its likeliest facet, however unlikely. F1 is highest when every facet below half of the
best F1 in probability is left out (Lipton et al., 2014, arXiv 1402.1892), but engines beside ours report no
probabilities. So the model learns from such plans to omit by itself what it would be unsure of, and decoding stays
greedy.
"""

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from service.planner.plan_text import FacetSpan, PlanTextError, parse, render
from service.planner.question import Question
from service.planner.vocabulary import FACET_WORDS
from training.data import augment
from training.data.examples import Example
from training.data.mix import Mix
from training.processes import run_processes
from training.tuned import GreedyPlan, TunedModel


@dataclass(frozen=True, slots=True)
class OwnPlans:
    """How many recombined queries are planned, and the probability that a facet needs to be kept."""

    queries: int = 7600
    p_min: float = 0.45


@dataclass(frozen=True, slots=True)
class Author:
    """The author of the plans: a model folder and the cache with its base."""

    model_dir: Path
    cache: Path


def write_own_plans(own: OwnPlans, author: Author, mix: Mix, output: Path, *, seed: int, processes: int) -> Path:
    """Write JSON lines of query and plan text; existing ones are kept."""
    if not output.is_file():
        queries = list(_recombined(mix, own.queries, random.Random(f"{seed}/own")))
        parts = [output.with_suffix(f".{rank}") for rank in range(processes)]
        run_processes(_write_part, processes, own, author, queries, parts)
        output.write_text("".join(part.read_text(encoding="utf-8") for part in parts), encoding="utf-8")
        for part in parts:
            part.unlink()
    return output


def read_own_plans(path: Path) -> list[Example]:
    """Read the plans as examples; of their verticals only the position, at the end, is known."""
    examples = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        draft = parse(row["plan"], Question.parse(row["query"]))
        examples.append(Example(row["query"], replace(draft, vertical=None), origin="own"))
    return examples


def _recombined(mix: Mix, count: int, rng: random.Random) -> Iterator[str]:
    """Yield labelled queries with other values; unchanged ones were trained on and would look too certain."""
    for index in range(count):
        if index % len(mix.queries) == 0:
            order = rng.sample(mix.queries, len(mix.queries))
        query = augment.with_other_values(order[index % len(mix.queries)], mix.values, rng)
        roll = rng.random()
        if roll < 0.78:
            yield augment.keyword(query).query
        else:
            yield (augment.sentence(query, rng) if roll < 0.9 else augment.with_price(query, rng)).query


def _write_part(
    rank: int, processes: int, own: OwnPlans, author: Author, queries: Sequence[str], parts: Sequence[Path]
) -> None:
    model = TunedModel(author.model_dir, author.cache)
    with parts[rank].open("w", encoding="utf-8") as file:
        for query in queries[rank::processes]:
            question = Question.parse(query)
            plan = model.greedy(question)
            text = plan and confident_text(model, question, plan, own.p_min)
            if text:
                file.write(json.dumps({"query": query, "plan": text}) + "\n")


def confident_text(model: TunedModel, question: Question, plan: GreedyPlan, p_min: float) -> str | None:
    """Return a plan's text without facets below a probability; None where its tokens do not match its words."""
    try:
        draft = parse(model.text(plan.tokens), question)
        kept = [span for span, probability in _spans(model, question, plan, draft.spans) if probability >= p_min]
    except (PlanTextError, ValueError):
        return None
    return render(replace(draft, spans=kept), question)


def _spans(
    model: TunedModel, question: Question, plan: GreedyPlan, spans: Sequence[FacetSpan]
) -> Iterator[tuple[FacetSpan, float]]:
    """Yield each facet with the probability of its name, words and end. Raises ValueError where one is not found."""
    pieces, position = [model.text([token]) for token in plan.tokens], 0
    for span in spans:
        words = [word.text for word in question.words[span.first : span.last + 1]]
        first, end = _find("".join(f" {word}" for word in (FACET_WORDS[span.facet], *words)), pieces, position)
        probability = math.prod(model.probability(plan, index) for index in range(first, end))
        if span.last + 1 < len(question.words):
            longer = model.tokens(f" {question.words[span.last + 1].text}")[0]
            probability *= 1 - model.probability(plan, end, longer)
        yield span, probability
        position = end


def _find(text: str, pieces: Sequence[str], start: int) -> tuple[int, int]:
    """Return where the pieces from `start` on first join to a text: the first index and the one after the last."""
    for first in range(start, len(pieces)):
        joined = ""
        for end in range(first, len(pieces)):
            joined += pieces[end]
            if joined == text:
                return first, end + 1
            if not text.startswith(joined):
                break
    raise ValueError(f"{text!r} is not what the tokens from {start} on say")
