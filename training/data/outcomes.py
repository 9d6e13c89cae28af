"""`peakplan outcomes-to-rows`: a log of served plans and what came of them, as rows for `make finetune`.

A product that was chosen confirms what it is itself: its vertical, and those of the plan's facets that it has. It says
nothing of words that the plan left out, and little of a product's rank; docs/own-data.md has what is learnt from it.
"""

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.api.outcome_log import MOST_OUTCOMES
from service.planner.vocabulary import Vocabulary, VocabularyError
from service.settings.choices import SHIPPED_MODEL
from training.data.own_rows import OwnRow, RowsError, own_example

Record = dict[str, Any]
WEIGHTS = {"click": 1, "cart": 3, "purchase": 5}  # how much one outcome says beside others of the same question


@dataclass(slots=True)
class Conversion:
    """The rows, and why plans gave none."""

    rows: list[Record] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="peakplan outcomes-to-rows", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logs", type=Path, nargs="+", help="files of PEAKPLAN_OUTCOMES_DIR, of one host or many")
    parser.add_argument("--output", type=Path, required=True, help="rows to write; there must be no such file yet")
    parser.add_argument("--questions", type=Path, help="JSON lines of request_id, question, history, if kept elsewhere")
    parser.add_argument(
        "--model", type=Path, default=SHIPPED_MODEL, help="model folder whose vocabulary the rows speak"
    )
    parser.add_argument(
        "--least", type=int, default=1, help="weight that a question needs: click 1, cart 3, purchase 5"
    )
    parser.add_argument("--json", action="store_true", help="print what was made as one line of JSON")
    given = parser.parse_args()
    try:
        vocabulary = Vocabulary.load(given.model)
        records = [record for path in given.logs for record in read_records(path)]
        questions = read_records(given.questions) if given.questions else ()
        made = convert(records, vocabulary, given.least, {row["request_id"]: row for row in questions})
        write_rows(made.rows, given.output)
    except (RowsError, VocabularyError) as error:
        sys.exit(f"error: {error}")
    if given.json:
        print(json.dumps({"output": str(given.output), "rows": len(made.rows), "left_out": dict(made.left_out)}))
        return
    print(f"{given.output}: {len(made.rows)} rows")
    for reason, count in made.left_out.most_common():
        print(f"{count} plans left out: {reason}")


def read_records(path: Path) -> Iterator[Record]:
    """Yield the lines of a file. Raises RowsError, which names the line."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # a shopper's words may have other ends of lines
    except (OSError, UnicodeDecodeError) as error:
        raise RowsError(f"{path}: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            record["request_id"]
        except (ValueError, KeyError, TypeError) as error:
            raise RowsError(f"{path}:{number}: is no JSON object with a request_id") from error
        yield record


def write_rows(rows: Sequence[Record], path: Path) -> None:
    """Write a file that appears whole. Raises RowsError where there is one already."""
    if path.exists():
        raise RowsError(f"{path} exists already: remove it, or name another")
    made = path.with_name(f".{path.name}.made")
    made.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    made.rename(path)


def convert(
    records: Sequence[Record], vocabulary: Vocabulary, least: int = 1, questions: Mapping[str, Record] | None = None
) -> Conversion:
    """Return a row for every question whose outcomes confirm something."""
    chosen: dict[str, list[Record]] = defaultdict(list)  # by the plan's request id
    for record in records:
        if record.get("record") == "outcome" and record.get("outcome") in WEIGHTS:
            chosen[record["request_id"]].append(record)
    made = Conversion()
    asked: dict[tuple[str, ...], list[tuple[Record, Record]]] = defaultdict(list)
    for plan in (record for record in records if record.get("record") == "plan"):
        words = plan if "question" in plan else (questions or {}).get(plan["request_id"], {})
        outcomes = _own(plan, chosen[plan["request_id"]])
        if not outcomes:
            made.left_out["nothing was chosen"] += 1
        elif plan["intent"] not in vocabulary.intents or not vocabulary.intents[plan["intent"]].products:
            made.left_out["a product was chosen, and the plan is not about products"] += 1
        elif "question" not in words:
            made.left_out["its words were not kept (PEAKPLAN_OUTCOMES_TEXT, or --questions)"] += 1
        else:
            key = (*words.get("history", ()), words["question"])
            asked[key] += [(plan, outcome) for outcome in outcomes]
    for (*history, question), choices in asked.items():
        if sum(WEIGHTS[outcome["outcome"]] for _, outcome in choices) < least:
            made.left_out["chosen too seldom (--least)"] += len(choices)
            continue
        row = {"question": question, "history": history, **confirmed(choices, vocabulary)}
        try:
            own_example(OwnRow.model_validate(row), vocabulary)
        except ValueError as error:  # words that the prompt cuts off, a vocabulary that has changed
            made.left_out[str(error).splitlines()[0]] += 1
        else:
            made.rows.append(row)
    return made


def _own(plan: Record, outcomes: Sequence[Record]) -> list[Record]:
    """Return the outcomes that the plan's own caller reported, so many as one plan may have.

    The service writes the caller into every line; a shop's own file has none, and is trusted.
    """
    return [each for each in outcomes if each.get("caller", plan.get("caller")) == plan.get("caller")][:MOST_OUTCOMES]


def confirmed(choices: Sequence[tuple[Record, Record]], vocabulary: Vocabulary) -> Record:
    """Return the labels that (plan, outcome) pairs of one question confirm: always an intent, perhaps more."""
    plan = choices[-1][0]
    labels: Record = {"intent": plan["intent"], "mode": plan["mode"]}
    verticals: Counter[str] = Counter()
    for _, outcome in choices:
        if (vertical := outcome["product"].get("vertical")) in vocabulary.verticals:
            verticals[vertical] += WEIGHTS[outcome["outcome"]]
    if verticals and verticals.total() < 2 * verticals.most_common(1)[0][1]:  # more than half of what was chosen
        labels["vertical"] = verticals.most_common(1)[0][0]
    wanted = plan.get("facets", {})
    if isinstance(wanted, dict) and wanted and not plan.get("parts") and _all_agree(plan, choices):
        labels |= {"facets": wanted, "exclude": plan.get("exclude", {})}
    return labels


def _all_agree(plan: Record, choices: Sequence[tuple[Record, Record]]) -> bool:
    """Tell whether each chosen product has every wanted value, and no refused one."""
    products = [outcome["product"].get("facets", {}) for _, outcome in choices]
    has_wanted = all(
        _has(product.get(facet, ()), value)
        for product in products
        for facet, values in plan["facets"].items()
        for value in values
    )
    refused = [(facet, value) for facet, values in plan.get("exclude", {}).items() for value in values]
    return has_wanted and not any(
        _has(product.get(facet, ()), value) for product in products for facet, value in refused
    )


def _has(values: Sequence[str], wanted: str) -> bool:
    """Tell whether a value of a product holds all words of a shopper's: "Running Shoes" has "running shoe"."""
    words = _words(wanted)
    return any(words <= _words(value) for value in values)


def _words(text: str) -> frozenset[str]:
    return frozenset(re.sub(r"(?<=\w\w)s$", "", word) for word in re.findall(r"\w+", text.lower()))


if __name__ == "__main__":
    main()
