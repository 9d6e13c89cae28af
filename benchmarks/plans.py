"""Plans of some 5,000 dev questions and all cases, written to a file and compared: did a change of code change a plan?

    python -m benchmarks.plans --write before.jsonl        # with the model and by rule; minutes
    python -m benchmarks.plans --write after.jsonl --earlier before.jsonl
    python -m benchmarks.plans --compare before.jsonl after.jsonl

The model runs in this process. What it writes follows from its prompt and grammar alone, so `--earlier` takes the texts
of a file for questions whose prompt and grammar are the same, and the second run takes seconds. It asks the questions
of that file.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.model_texts import generator, text_key
from benchmarks.quality import OWN_CASES
from benchmarks.questions import DATA
from benchmarks.scope import read_scope_questions
from service.planner.completion import plan_from_text
from service.planner.fallback.making.plans import plan_by_rule
from service.planner.plan_text import PlanTextError
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary
from service.settings.choices import SHIPPED_MODEL
from training.data.cases import read_cases
from training.data.mix import dev_sets

DEV_QUESTIONS = 5000
_SHOWN = 20  # differences of a kind
Row = dict[str, Any]
Asked = tuple[str, list[str], str]  # a query, its history, its locale


def questions(data: Path, most: int = DEV_QUESTIONS) -> list[Asked]:
    """Return dev questions, at most so many of all origins together, and the cases."""
    dev = [example.question() for examples in dev_sets(data).values() for example in examples]
    files = [data.parent / "behaviour" / "cases.jsonl", *OWN_CASES.values()]
    cases = [case.question for path in files if path.is_file() for case in read_cases(path)]
    cases += [asked.question for asked in read_scope_questions()]
    chosen = random.Random(1).sample(dev, min(most, len(dev)))
    found = {(question.text, question.utterances[:-1], question.locale): None for question in [*chosen, *cases]}
    return [(query, list(history), locale) for query, history, locale in found]


def rows(
    asked: Sequence[Asked],
    vocabulary: Vocabulary,
    generate: Callable[[PlanTask], str],
    known: dict[str, str],
) -> Iterator[Row]:
    """Yield a row a question: the model's text, and the plans of that text and of the rules.

    `known` are texts by `text_key`; `generate` writes the others.
    """
    for query, history, locale in asked:
        task = PlanTask(Question.parse(query, history, locale), vocabulary)
        key = text_key(task)
        text = known[key] if key in known else generate(task)
        try:
            plan = plan_from_text(text, task.question, vocabulary).model_dump(mode="json")
        except PlanTextError as error:  # of a text cut short
            plan = {"error": str(error)}
        rules = plan_by_rule(task.conversation, vocabulary).model_dump(mode="json")
        question = {"query": query, "history": history, "locale": locale}
        yield question | {"key": key, "text": text, "model": plan, "rules": rules}


def read_rows(path: Path) -> list[Row]:
    """Read a file that `--write` wrote."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def differences(before: Sequence[Row], after: Sequence[Row]) -> dict[str, list[tuple[Row, Row]]]:
    """Return the rows that differ, by what differs; a `key` stands for the prompt and grammar."""
    found: dict[str, list[tuple[Row, Row]]] = {name: [] for name in ("key", "text", "model", "rules")}
    then, now = ({(row["locale"], row["query"], *row["history"]): row for row in some} for some in (before, after))
    found["questions"] = [(then.get(asked, {}), now.get(asked, {})) for asked in then.keys() ^ now.keys()]
    for asked in (asked for asked in then if asked in now):
        for name in ("key", "text", "model", "rules"):
            if then[asked][name] != now[asked][name]:
                found[name].append((then[asked], now[asked]))
    return found


def _changed(before: Any, after: Any) -> str:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return f"{before!r} -> {after!r}"
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return "; ".join(f"{name}: {before.get(name)!r} -> {after.get(name)!r}" for name in names)


def _write(arguments: argparse.Namespace) -> None:
    earlier = read_rows(arguments.earlier) if arguments.earlier else []
    known = {row["key"]: row["text"] for row in earlier}
    vocabulary = Vocabulary.load(arguments.model)
    asked = [(row["query"], row["history"], row["locale"]) for row in earlier]
    asked = asked or questions(arguments.data, arguments.questions)
    arguments.write.parent.mkdir(parents=True, exist_ok=True)
    with arguments.write.open("w", encoding="utf-8") as file:
        for row in rows(asked, vocabulary, generator(arguments.model), known):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{arguments.write}: the plans of {len(asked)} questions")


def _compare(before: Path, after: Path) -> int:
    found = differences(read_rows(before), read_rows(after))
    for name, pairs in found.items():
        print(f"{name}: {len(pairs)} differ")
        for one, other in pairs[:_SHOWN]:
            row = one or other
            print(f"  {' / '.join([*row['history'], row['query']])}\n    {_changed(one.get(name), other.get(name))}")
    return int(any(found.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", type=Path, metavar="FILE", help="write the plans of this code")
    what.add_argument("--compare", type=Path, nargs=2, metavar="FILE", help="say which plans differ; 1 where some do")
    parser.add_argument("--earlier", type=Path, metavar="FILE", help="ask its questions; its texts stand")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the dev rows")
    parser.add_argument("--model", type=Path, default=SHIPPED_MODEL, help="model folder")
    parser.add_argument("--questions", type=int, default=DEV_QUESTIONS, help="dev questions at most")
    arguments = parser.parse_args()
    if arguments.write:
        _write(arguments)
    else:
        sys.exit(_compare(*arguments.compare))


if __name__ == "__main__":
    main()
