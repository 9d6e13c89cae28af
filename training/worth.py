"""Learn when the model's plan is better than the rules': `python -m training.worth --work WORK --model MODEL`.

Questions of ours are planned both ways, and each plan is compared with what their labels know. Boosted trees
(Friedman, 2001) learn from what rules read in a question whether the model alone gets it right; the serving side
(`service/planner/worth`) needs their numbers only. What rules may plan by choice is then bounded on questions that no
tree has seen (`worth_bound.py`). The same seed gives the same bytes.
"""

import argparse
import json
import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from sklearn.ensemble import GradientBoostingClassifier

from service.decoding.tree import MedusaTree
from service.planner.making.plans import plan_by_rule, plan_from_text
from service.planner.plan import Plan
from service.planner.plan_text import PlanTextError
from service.planner.reading.conversation import Conversation
from service.planner.vocabulary import Vocabulary
from service.planner.worth.differing import differ
from service.planner.worth.features import NAMES, Reading, numbers
from service.planner.worth.scorer import DEPTH, Bound, Scorer, Tree, Worth
from service.settings import Settings
from training.data import asked, behaviour_examples
from training.data.examples import Example
from training.data.rows import Split
from training.processes import run_processes
from training.settings import WorthSettings
from training.tuned import TunedModel
from training.worth_bound import FEWEST, LOST, RISK, Compared, calibrated, write

ROUNDS, RATE = 70, 0.1
SEED = 7
Texts = dict[str, str | None]  # what the model writes, by the lines of the conversation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="keeps the model's plans of the questions")
    parser.add_argument("--model", type=Path, required=True, help="model folder that gets worth.json")
    parser.add_argument("--processes", type=int, default=Settings().replica_count, help="one core each")
    given = parser.parse_args()
    learn_worth(given.model, Settings().cache_dir, given.work, given.processes, WorthSettings())


def learn_worth(model: Path, cache: Path, work: Path, processes: int, settings: WorthSettings) -> None:
    """Write the worth of questions into a model folder, with a bound from held-out sentences of ours."""
    before = Scorer.load(settings.start) if settings.start else None
    splits: tuple[Split, ...] = ("dev",) if before else get_args(Split)
    drawn = {split: questions(split, settings) for split in splits}
    texts = model_texts([example for examples in drawn.values() for example in examples], model, cache, work, processes)
    vocabulary = Vocabulary.load(model)
    learnt = before.worth if before else fit(compare(drawn["train"], texts, vocabulary))
    write(calibrated(learnt, compare(drawn["dev"], texts, vocabulary)), model)


def recalibrate(model: Path, rows: Sequence[Example], cache: Path, work: Path, processes: int) -> str:
    """Bound what rules may plan by rows that the model has not learnt from; return what came of it, as a sentence.

    The trees stay: what they learn from says which questions rules read badly, and the rows say how often that costs
    this shop a better plan. Too few rows bound nothing, and change nothing. A row counts if it says what a plan is for.
    """
    scorer = Scorer.load(model)
    telling = [row for row in rows if row.knows_intent or row.knows_facets]
    if scorer is None or len(telling) < FEWEST:
        return (
            f"{len(telling)} held-out rows are too few to say what rules may plan by choice ({FEWEST} with an intent "
            "or facets would be the fewest): what our own questions say stays."
        )
    compared = compare(telling, model_texts(telling, model, cache, work, processes), Vocabulary.load(model))
    worth = calibrated(scorer.worth, compared)
    write(worth, model)
    return (
        f"With routing `always` rules may plan {worth.bound.by_rule:.0%} of questions like your {len(telling)} "
        f"held-out rows, and with {1 - RISK:.0%} confidence lose a better plan for {LOST:.0%} of them at most."
    )


def questions(split: Split, settings: WorthSettings) -> list[Example]:
    """Draw questions of ours: of every class, and sentences whose intent alone is known."""
    found: list[Example] = []
    for examples, most, seed in (
        (behaviour_examples.examples(split), settings.behaviour, 1),
        (asked.examples(split), settings.asked, 2),
    ):
        found += random.Random(seed).sample(examples, min(len(examples), most))
    return found


def model_texts(examples: Sequence[Example], model: Path, cache: Path, work: Path, processes: int) -> Texts:
    """Return what the model writes for each question; what a work folder has is not asked for again."""
    work.mkdir(parents=True, exist_ok=True)
    texts = _read_texts(work)
    missing = [example for example in examples if _key(example) not in texts]
    if missing:
        run_processes(_write_texts, processes, missing, model, cache, work)
    return _read_texts(work)


def _write_texts(rank: int, count: int, examples: Sequence[Example], folder: Path, cache: Path, work: Path) -> None:
    model = TunedModel(folder, cache)
    assert model.heads is not None
    tree = MedusaTree.from_choices(json.loads((folder / "medusa_tree.json").read_text()), model.heads.num_heads)
    with (work / f"worth-{rank}.jsonl").open("a", encoding="utf-8") as file:
        for example in examples[rank::count]:
            plan = model.medusa(example.question(), tree)
            text = model.text(plan.tokens) if plan.stop_reason == "finished" else None
            file.write(json.dumps([_key(example), text]) + "\n")
            file.flush()


def _read_texts(work: Path) -> Texts:
    lines = [line for path in sorted(work.glob("worth-*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    return dict(json.loads(line) for line in lines)


def _key(example: Example) -> str:
    return "\n".join((*example.history, example.query))


def compare(examples: Sequence[Example], texts: Texts, vocabulary: Vocabulary) -> list[Compared]:
    """Plan each question both ways; a question whose text is no whole plan has no plan by the model."""
    found = []
    for example in examples:
        conversation, text = Conversation(example.question()), texts[_key(example)]
        try:
            by_model = None if text is None else plan_from_text(text, conversation, vocabulary)
        except PlanTextError:
            by_model = None
        by_rule = plan_by_rule(conversation, vocabulary)
        right = by_model is not None and is_right(by_model, example), is_right(by_rule, example)
        differs = by_model is not None and differ(by_model, by_rule)
        work = len(example.question().words) + len((text or "").split())
        found.append(Compared(numbers(Reading(conversation, vocabulary)), *right, differs=differs, work=work))
    return found


def is_right(plan: Plan, example: Example) -> bool:
    """Tell whether a plan has what is known of its question, as far as a shop would notice.

    Which facet a word belongs to, the vertical and later queries are left out: nobody counts them as wrong.
    """
    if example.knows_intent and plan.intent != example.draft.intent:
        return False
    if example.expected is not None:
        return _is_as_expected(plan.model_dump(mode="json"), example.expected)
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


def fit(compared: Sequence[Compared]) -> Worth:
    """Learn the trees; nothing is bounded yet."""
    lost = [one.lost for one in compared]
    if len(set(lost)) < 2:  # a model that is never better, or always: nothing tells its questions apart
        return _learnt((sum(lost) + 0.5) / (len(lost) + 1), ())
    rows = np.array([one.numbers for one in compared], dtype=np.float32)
    trees = GradientBoostingClassifier(
        n_estimators=ROUNDS,
        max_depth=DEPTH,
        learning_rate=RATE,
        subsample=0.7,
        min_samples_leaf=10,
        random_state=SEED,
    ).fit(rows, lost)
    return _learnt(sum(lost) / len(lost), tuple(_tree(found.tree_) for found in trees.estimators_[:, 0]))


def _learnt(share: float, trees: tuple[Tree, ...]) -> Worth:
    """Return trees over the `share` of questions that rules lose; nothing is bounded yet."""
    return Worth(
        numbers=NAMES,
        start=round(math.log(share / (1 - share)), 5),
        trees=trees,
        bound=Bound(worth=0, lost=LOST, risk=RISK, questions=0, by_rule=0),
        differs=(),
    )


def _tree(found: Any) -> Tree:
    """Return a tree of scikit-learn as a complete one: a leaf above the last row is all leaves below it."""
    number, over = [0] * (2**DEPTH - 1), [0] * (2**DEPTH - 1)
    leaf = [0.0] * 2**DEPTH
    todo = [(0, 0)]
    while todo:
        at, node = todo.pop()
        left, right = found.children_left[node], found.children_right[node]
        if at >= len(over):
            leaf[at - len(over)] = round(RATE * float(found.value[node][0][0]), 4)
            continue
        if left >= 0:
            number[at], over[at] = int(found.feature[node]), math.floor(found.threshold[node])
        todo += [(2 * at + 1, left if left >= 0 else node), (2 * at + 2, right if left >= 0 else node)]
    return Tree(number=tuple(number), over=tuple(over), leaf=tuple(leaf))


if __name__ == "__main__":
    main()
