"""Bound what the reader may plan by choice: `python -m training.worth --work WORK --model MODEL`.

Questions that neither reader nor model has learnt from are planned by both, and their labels say who is right. The
questions of which the reader is surest are its own (`Reading.worth`), as many as lose next to nothing.
"""

import argparse
import itertools
import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from service.engines.torch_engine import load
from service.planner.completion import plan_from_draft, plan_from_text
from service.planner.plan import Plan
from service.planner.plan_text import PlanTextError
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.reader.reading import CARD, Bound, Choices, Reader, write_card
from service.planner.vocabulary import Vocabulary, shipped_vocabulary
from service.settings import Settings
from service.weights.seal import seal_again
from training.data import conversations
from training.data.examples import Example
from training.data.written import asked_examples
from training.export import RECORD, sha256
from training.settings import WorthSettings
from training.tuned import run_processes

Texts = dict[str, str | None]  # what the model writes, by the lines of the conversation
LOST, RISK = 0.01, 0.1  # what the bound promises
STEPS = 100  # of more and more questions by the reader, each tested until one fails
SEED = 7
_MOST_BET = 0.75  # of what it takes to be ruined by one question
_GROUPS = 10  # of questions by worth, each with its share of texts that differ


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="keeps the model's plans of the questions")
    parser.add_argument("--model", type=Path, required=True, help="model folder whose reader.json gets the bound")
    parser.add_argument("--processes", type=int, default=Settings().replica_count, help="one core each")
    given = parser.parse_args()
    bound_reader(given.model, Settings().cache_dir, given.work, given.processes, WorthSettings())


@dataclass(frozen=True, slots=True)
class Compared:
    """A question read by model and reader: its worth, who was right, whether the texts differ, and the model's work."""

    worth: float
    by_model: bool
    by_reader: bool
    differs: bool
    work: float = 1.0  # in any unit: seconds where they were measured, else the words that it read and wrote

    @property
    def loss(self) -> int:
        """What the reader's plan loses: 1, 0, or -1 where it has what the model's plan has not."""
        return int(self.by_model) - int(self.by_reader)


def bound_reader(model: Path, cache: Path, work: Path, processes: int, settings: WorthSettings) -> None:
    """Write into a model folder what its reader may plan, by questions of ours that nothing was trained on."""
    write(bounded(Reader.load(model).choices, compared(questions(settings), model, cache, work, processes)), model)


def rebound(model: Path, rows: Sequence[Example], cache: Path, work: Path, processes: int) -> str:
    """Bound it by rows that nothing has learnt from; return what came of it, as a sentence.

    Too few rows bound nothing, and change nothing. A row counts if it says what a plan is for.
    """
    telling = [row for row in rows if row.knows_intent or row.knows_facets]
    if len(telling) < FEWEST:
        return (
            f"{len(telling)} held-out rows are too few to say what the reader may plan by choice ({FEWEST} with an "
            "intent or facets would be the fewest): what our own questions say stays."
        )
    choices = bounded(Reader.load(model).choices, compared(telling, model, cache, work, processes))
    write(choices, model)
    assert choices.bound is not None
    return (
        f"With routing `always` the reader may plan {choices.bound.by_reader:.0%} of questions like your "
        f"{len(telling)} held-out rows, and with {1 - RISK:.0%} confidence {LOST:.0%} fewer of them at most are "
        "planned well."
    )


def questions(settings: WorthSettings) -> list[Example]:
    """Draw questions of ours: turns of conversations, and sentences whose intent alone is known."""
    turns = list(chain.from_iterable(conversations.examples("dev")))
    found: list[Example] = []
    for examples, most, seed in ((turns, settings.conversations, 1), (asked_examples("dev"), settings.asked, 2)):
        found += random.Random(seed).sample(examples, min(len(examples), most))
    return found


def compared(examples: Sequence[Example], model: Path, cache: Path, work: Path, processes: int) -> list[Compared]:
    """Plan each question both ways; a question whose text is no whole plan has no plan by the model."""
    texts = model_texts([example.question() for example in examples], model, cache, work, processes)
    reader, vocabulary = Reader.load(model), Vocabulary.load(model)
    found = []
    for example in examples:
        question = example.question()
        reading, text = reader.read(question, vocabulary), texts[_key(question)]
        try:
            by_model = None if text is None else plan_from_text(text, question, vocabulary)
        except PlanTextError:
            by_model = None
        by_reader = plan_from_draft(reading.draft, question, vocabulary)
        found.append(
            Compared(
                reading.worth,
                by_model is not None and is_right(by_model, example),
                is_right(by_reader, example),
                (text or "").split() != [word for word, _ in reading.words],
                len(question.words) + len((text or "").split()),
            )
        )
    return found


def model_texts(asked_for: Sequence[Question], model: Path, cache: Path, work: Path, processes: int) -> Texts:
    """Return what the model, as it serves, writes for each question; what a work folder has is not asked for again."""
    work.mkdir(parents=True, exist_ok=True)
    texts = _read_texts(work)
    missing = [question for question in asked_for if _key(question) not in texts]
    if missing:
        run_processes(_write_texts, processes, missing, model, cache, work)
    return _read_texts(work)


def _write_texts(rank: int, count: int, asked_for: Sequence[Question], folder: Path, cache: Path, work: Path) -> None:
    settings = Settings(model_dir=folder, cache_dir=cache)
    model, vocabulary = load(settings.engine_config), Vocabulary.load(folder)
    with (work / f"worth-{rank}.jsonl").open("a", encoding="utf-8") as file:
        for question in asked_for[rank::count]:
            result = model.generate(PlanTask(question, vocabulary).request(settings.strategy))
            text = result.text if result.stop_reason == "finished" else None
            file.write(json.dumps([_key(question), text]) + "\n")
            file.flush()


def _read_texts(work: Path) -> Texts:
    lines = [line for path in sorted(work.glob("worth-*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    return dict(json.loads(line) for line in lines)


def _key(question: Question) -> str:
    return "\n".join((question.locale, *question.utterances))


def is_right(plan: Plan, example: Example) -> bool:
    """Tell whether a plan has what is known of its question, as far as a shop would notice.

    Which facet a word belongs to, the vertical and later queries are left out: nobody counts them as wrong.
    """
    if example.knows_intent and plan.intent != example.draft.intent:
        return False
    if example.expected is not None:
        wanted = plan_from_draft(example.draft, example.question(), shipped_vocabulary())
        return _is_as_expected(plan.model_dump(mode="json"), wanted.model_dump(mode="json"))
    if not example.knows_facets:
        return True
    words = example.question().words
    named = {words[i].text for s in example.draft.spans if s.facet == "type" and not s.refused for i in s.indices}
    return named <= _words(plan.queries)


def _is_as_expected(plan: dict[str, Any], expected: dict[str, Any]) -> bool:
    if any(plan[name] != expected[name] for name in ("price", "rating", "sort")):
        return False
    if sorted(plan["offers"]) != sorted(expected["offers"]) or _refused(plan) != _refused(expected):
        return False
    if len(plan["parts"]) != len(expected["parts"]) or bool(plan["queries"]) != bool(expected["queries"]):
        return False
    given, wanted = (plan["parts"] or [plan]), (expected["parts"] or [expected])
    return all(
        _words(w["facets"].get("type", ())) <= _words(g["queries"][:1]) for g, w in zip(given, wanted, strict=True)
    )


def _refused(plan: dict[str, Any]) -> list[str]:
    things = (plan, *plan["parts"])
    return sorted(value.lower() for thing in things for values in thing["exclude"].values() for value in values)


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in text.lower().split()}


def is_bounded(losses: Sequence[int], lost: float, risk: float) -> bool:
    """Tell whether losses, each from -1 to 1, say that their mean is `lost` at most, but for `risk`.

    Somebody bets against a larger mean, question by question, on how losses have spread so far; who multiplies the
    stake by 1 / risk at any time is believed (Waudby-Smith and Ramdas, 2023, doi:10.1093/jrsssb/qkad009).
    """
    stake, total, square = 1.0, 0.0, 0.25
    for count, loss in enumerate(losses, 1):
        spread = square / count
        bet = min(math.sqrt(2 * math.log(1 / risk) / (len(losses) * spread)), _MOST_BET / (1 - lost))
        stake *= 1 + bet * (lost - loss)
        if stake >= 1 / risk:
            return True
        total += loss
        square += (loss - total / (count + 1)) ** 2
    return False


# Questions: with fewer the bound allows nothing, whatever they say.
FEWEST = next(n for n in itertools.count(1) if is_bounded([0] * n, LOST, RISK))


def bounded(choices: Choices, found: Sequence[Compared], lost: float = LOST, risk: float = RISK) -> Choices:
    """Return a reader's card with the most that it may plan while at most the share `lost` is lost, but for `risk`.

    Learn then Test with a fixed sequence: more and more questions by the reader, the least worth first, until a test
    can no longer reject that more is lost: questions that the model alone plans well, less those that the reader alone
    does. None of the questions may be one learnt from.
    """
    ranked = sorted(found, key=lambda one: one.worth)
    by_chance = random.Random(SEED).sample(found, len(found))  # a bet must not know what comes next
    most = 0.0
    for step in range(1, STEPS):
        least = ranked[len(ranked) * step // STEPS].worth if ranked else 0.0
        if not is_bounded([one.loss if one.worth < least else 0 for one in by_chance], lost, risk):
            break
        most = least
    most = math.floor(most * 1e6) / 1e6  # rounded up, it might allow questions that no test has seen, even all of them
    spared = [one.work for one in found if one.worth < most]
    bound = Bound(
        worth=most,
        lost=lost,
        risk=risk,
        questions=len(found),
        by_reader=round(len(spared) / max(len(found), 1), 4),
        work=round(1 - sum(spared) / max(sum(one.work for one in found), 1e-9), 4),
    )
    return choices.model_copy(update={"bound": bound, "differs": _differing(ranked)})


def _differing(ranked: Sequence[Compared]) -> tuple[tuple[float, float], ...]:
    """Return (worth at most, share of texts that differ) of equally large groups, the last up to 1."""
    ends = [round(len(ranked) * (group + 1) / _GROUPS) for group in range(_GROUPS)]
    groups = [ranked[start:end] for start, end in pairwise([0, *ends]) if end > start]
    most = [round(group[-1].worth, 6) for group in groups[:-1]] + [1.0]
    shares = [round(sum(one.differs for one in group) / len(group), 4) for group in groups]
    return tuple(zip(most, shares, strict=True)) if ranked else ()


def write(choices: Choices, model: Path) -> None:
    """Write reader.json, and its digest into the folder's record of parts and its seal, where it has them."""
    write_card(choices, model)
    record = model / RECORD
    if record.is_file() and CARD in (made := json.loads(record.read_text(encoding="utf-8")))["parts"]:
        made["parts"][CARD] = sha256(model / CARD)
        record.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    seal_again(model)


if __name__ == "__main__":
    main()
