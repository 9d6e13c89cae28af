"""Learn when the model's plan is better than the rules': `python -m training.worth --work WORK --model MODEL`.

Questions are planned both ways. Cases of our own (`data/worth_cases.jsonl`: writers who had read the contract of plans
alone) say of each plan whether it passes, and the labels of the questions that the model learnt from what they know of
it. From what rules read in a question a network learns whether the model alone gets it right (`worth_network.py`).
What rules may plan by choice is then bounded on questions that it has not learnt from (`worth_bound.py`). The same
seed gives the same bytes.
"""

import argparse
import json
import random
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from service.engines.torch.engine import load
from service.planner.completion import plan_from_draft, plan_from_text
from service.planner.fallback.making.plans import plan_by_rule
from service.planner.fallback.reading.conversation import Conversation
from service.planner.plan import Plan
from service.planner.plan_text import PlanTextError
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary, shipped_vocabulary
from service.planner.worth.differing import differ
from service.planner.worth.features import NAMES, Reading, numbers
from service.planner.worth.scorer import Bound, Scorer, Worth
from service.settings import Settings
from training.data import asked, conversations
from training.data.cases import WORTH_CASES, Case, checker, passes, read_cases
from training.data.examples import Example
from training.data.rows import Split
from training.processes import run_processes
from training.settings import WorthSettings
from training.worth_bound import FEWEST, LOST, RISK, Compared, calibrated, write
from training.worth_network import learn

OWN_WEIGHT = 0.1  # of a question that the model has learnt from, beside a case: the model knows it too well
Texts = dict[str, str | None]  # what the model writes, by the lines of the conversation
Judged = Example | Case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="keeps the model's plans of the questions")
    parser.add_argument("--model", type=Path, required=True, help="model folder that gets worth.json")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="beside which the cases' check lies")
    parser.add_argument("--processes", type=int, default=Settings().replica_count, help="one core each")
    given = parser.parse_args()
    learn_worth(given.model, Settings().cache_dir, given.data, given.work, given.processes, WorthSettings())


def learn_worth(model: Path, cache: Path, data: Path, work: Path, processes: int, settings: WorthSettings) -> None:
    """Write the worth of questions into a model folder, with a bound from held-out sentences of ours.

    `data` is the folder of public data, beside which lies the program that says what assertions of cases mean.
    """
    before = Scorer.load(settings.start) if settings.start else None
    vocabulary = Vocabulary.load(model)

    def compared(judged: Sequence[Judged], check: Path | None = None) -> list[Compared]:
        texts = model_texts([one_of(one) for one in judged], model, cache, work, processes)
        return compare(judged, texts, vocabulary, check)

    if before is not None:
        learnt = before.worth
    else:
        others = [one.question() for one in (*turns("train"), *asked.examples("train"))]
        learnt = fit(
            compared(*_cases(data, settings.cases)),
            compared(questions("train", settings)),
            [numbers(Reading(Conversation(other), vocabulary)) for other in others[: settings.others]],
        )
    write(calibrated(learnt, compared(questions("dev", settings))), model)


def _cases(data: Path, most: int) -> tuple[list[Case], Path]:
    """Return the cases, and the program that says what their assertions mean; without it there are none."""
    check = data.parent / "behaviour" / "check.py"
    if not check.is_file():
        print(f"{check} is not there: the worth of questions is learnt without {WORTH_CASES.name}", flush=True)
        return [], check
    cases = read_cases(WORTH_CASES)
    return random.Random(3).sample(cases, min(len(cases), most)), check


def recalibrate(model: Path, rows: Sequence[Example], cache: Path, work: Path, processes: int) -> str:
    """Bound what rules may plan by rows that the model has not learnt from; return what came of it, as a sentence.

    The network stays: what it learnt from says which questions rules read badly, and the rows say how often that costs
    this shop a better plan. Too few rows bound nothing, and change nothing. A row counts if it says what a plan is for.
    """
    scorer = Scorer.load(model)
    telling = [row for row in rows if row.knows_intent or row.knows_facets]
    if scorer is None or len(telling) < FEWEST:
        return (
            f"{len(telling)} held-out rows are too few to say what rules may plan by choice ({FEWEST} with an intent "
            "or facets would be the fewest): what our own questions say stays."
        )
    compared = compare(
        telling,
        model_texts([one_of(row) for row in telling], model, cache, work, processes),
        Vocabulary.load(model),
    )
    worth = calibrated(scorer.worth, compared)
    write(worth, model)
    return (
        f"With routing `always` rules may plan {worth.bound.by_rule:.0%} of questions like your {len(telling)} "
        f"held-out rows, and with {1 - RISK:.0%} confidence {LOST:.0%} fewer of them at most are planned well."
    )


def turns(split: Split) -> list[Example]:
    """Return every turn of the conversations that writers labelled."""
    return list(chain.from_iterable(conversations.examples(split)))


def questions(split: Split, settings: WorthSettings) -> list[Example]:
    """Draw questions of ours: turns of conversations, and sentences whose intent alone is known."""
    found: list[Example] = []
    for examples, most, seed in (
        (turns(split), settings.conversations, 1),
        (asked.examples(split), settings.asked, 2),
    ):
        found += random.Random(seed).sample(examples, min(len(examples), most))
    return found


def one_of(judged: Judged) -> Question:
    """Return the question of an example or of a case."""
    return judged.question if isinstance(judged, Case) else judged.question()


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


def compare(
    judged: Sequence[Judged], texts: Texts, vocabulary: Vocabulary, check: Path | None = None
) -> list[Compared]:
    """Plan each question both ways; a question whose text is no whole plan has no plan by the model.

    `check` says what assertions of cases mean. Raises FileNotFoundError where cases are given and it is not there.
    """
    holds = checker(check) if check is not None and judged else None
    found = []
    for one in judged:
        question = one_of(one)
        conversation, text = Conversation(question), texts[_key(question)]
        try:
            by_model = None if text is None else plan_from_text(text, question, vocabulary)
        except PlanTextError:
            by_model = None
        by_rule = plan_by_rule(conversation, vocabulary)
        if isinstance(one, Case):
            assert holds is not None
            right = passes(by_model, one, holds), passes(by_rule, one, holds)
        else:
            right = by_model is not None and is_right(by_model, one), is_right(by_rule, one)
        differs = by_model is not None and differ(by_model, by_rule)
        work = len(question.words) + len((text or "").split())
        found.append(Compared(numbers(Reading(conversation, vocabulary)), *right, differs=differs, work=work))
    return found


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


def fit(cases: Sequence[Compared], own: Sequence[Compared] = (), others: Sequence[tuple[int, ...]] = ()) -> Worth:
    """Learn the network; nothing is bounded yet.

    From `cases`, from `own` questions, which the model has learnt from and which count less, and from the numbers of
    `others`, of which nothing is known but what trees that learnt from the first two answer for them.
    """
    known = [*cases, *own]
    weights = [1.0] * len(cases) + [OWN_WEIGHT] * len(own)
    rows, lost = [one.numbers for one in known], [one.lost for one in known]
    return Worth(
        numbers=NAMES,
        network=learn(rows, lost, weights, others),
        bound=Bound(worth=0, lost=LOST, risk=RISK, questions=0, by_rule=0),
        differs=(),
    )


if __name__ == "__main__":
    main()
