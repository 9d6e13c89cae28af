"""Sixty shopper questions and the shipped model's plans: docs/figures/gallery.json, shown in docs/gallery.md.

`--check` fails where the weights, the questions or a prompt have changed since, or where today's planner makes another
plan of what the model wrote. It takes no model: the texts that the model wrote are kept beside the plans, and
`make test-all` asks the model itself.

The questions (rehearsal/tools/gallery_questions.jsonl) were written before any plan of them was seen, none was
exchanged since, and nothing is tuned to them: they show what a shop gets, failures included. Three judges
(gallery_judgements.jsonl), who saw the contract, the questions and the plans alone, called each plan usable, partly
usable or wrong. A verdict is of the plan that was judged, and is not shown beside another one. The page shows every
plan that most judges faulted and the first of the others.
"""

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rehearsal.bench.conversations import generator, text_key
from rehearsal.tools.first_answer import broken_lines, weights_digest
from service.planner.completion import plan_from_text
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary, shipped_vocabulary
from service.settings.choices import SHIPPED_MODEL

FIGURE = Path("docs/figures/gallery.json")
QUESTIONS = Path(__file__).with_name("gallery_questions.jsonl")
JUDGEMENTS = Path(__file__).with_name("gallery_judgements.jsonl")
USABLE, PARTLY, WRONG = "usable", "partly", "wrong"
SHOWN = 4  # of the plans without a fault
Asked = dict[str, Any]  # {"query": str, "history": [str]}, as POST /plan takes it


@dataclass(frozen=True)
class Judgement:
    """What each judge said of one plan, and why, where one judge or more found a fault."""

    plan: str  # its digest
    verdicts: tuple[str, ...]
    why: str

    @property
    def majority(self) -> str:
        """What most judges said; partly where no two agree."""
        said, judges = Counter(self.verdicts).most_common(1)[0]
        return said if 2 * judges > len(self.verdicts) else PARTLY


def digest(plan: Mapping[str, Any]) -> str:
    """Return what tells whether two plans are one."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:16]


def judgements(path: Path = JUDGEMENTS) -> dict[str, Judgement]:
    """Return every judgement by the digest of its plan."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["plan"]: Judgement(row["plan"], tuple(row["verdicts"]), row["why"]) for row in rows}


def summary(plans: Sequence[Mapping[str, Any]], judged: Mapping[str, Judgement]) -> str:
    """Return how many of the plans are usable, partly usable and wrong by the majority of the judges."""
    known = [judged[key] for plan in plans if (key := digest(plan)) in judged]
    counts = Counter(each.majority for each in known)
    told = f"By the majority of three judges {counts[USABLE]} of {len(known)} plans are usable as they are, "
    told += f"{counts[PARTLY]} partly, and {counts[WRONG]} wrong."
    since = len(plans) - len(known)
    return told + (f" {since} are other plans than those that were judged." if since else "")


def remark(plan: Mapping[str, Any], judged: Mapping[str, Judgement]) -> str:
    """Return what most judges found wrong with a plan; nothing of one that is usable or was not judged."""
    found = judged.get(digest(plan))
    if found is None or found.majority == USABLE:
        return ""
    return f"*Judged {'partly usable' if found.majority == PARTLY else found.majority}:* {found.why}"


def questions() -> list[Asked]:
    """Return the questions, in the order of the gallery."""
    return [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]


def measure(generate: Callable[[PlanTask], str], vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the plan of every question, the text that the model wrote for it, and which weights the model had."""
    rows = []
    for asked in questions():
        task = _task(asked, vocabulary)
        text = generate(task)
        rows.append({**asked, "key": text_key(task), "text": text, "plan": _plan(text, task, vocabulary)})
    return {"weights": weights_digest(), "rows": rows}


def what_is_stale(figure: dict[str, Any], asked: Sequence[Asked], vocabulary: Vocabulary) -> str | None:
    """Return why the gallery is none of today's, or None."""
    rows = figure["rows"]
    if [_asked(row) for row in rows] != [_asked(each) for each in asked]:
        return "it answers other questions"
    if figure["weights"] != weights_digest():
        return "the model has changed since"
    for row in rows:
        task = _task(row, vocabulary)
        if text_key(task) != row["key"]:
            return f"the model is now given another prompt or grammar for {row['query']!r}"
        if _plan(row["text"], task, vocabulary) != row["plan"]:
            return f"the planner makes another plan of what the model wrote for {row['query']!r}"
    return None


def render(figure: dict[str, Any]) -> str:
    """Return the plans with a fault, what it is, and the first without; a plan's empty fields are left out."""
    judged, rows = judgements(), list(enumerate(figure["rows"], 1))
    first = [number for number, row in rows if not remark(row["plan"], judged)][:SHOWN]
    shown = ("\n".join(_shown(*each, judged)) for each in rows if each[0] in first or remark(each[1]["plan"], judged))
    return "\n\n".join([summary([row["plan"] for row in figure["rows"]], judged), *shown])


def _shown(number: int, row: dict[str, Any], judged: Mapping[str, Judgement]) -> Iterator[str]:
    yield f"**{number}. {row['query']}**"
    if earlier := row.get("history"):
        yield f"(after: {'; '.join(earlier)})"
    yield ""
    yield "```json"
    yield from broken_lines(json.dumps(_said(row["plan"]), ensure_ascii=False, separators=(",", ":")))
    yield "```"
    if told := remark(row["plan"], judged):
        yield f"\n{told}"


def _said(plan: dict[str, Any]) -> dict[str, Any]:
    """Return what a plan says: mode, intent and whatever is not empty, in its parts too."""
    said: dict[str, Any] = _without_empty(plan)
    return {name: value for name, value in said.items() if (name, value) != ("sort", "relevance")}


def _without_empty(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_empty(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = ((name, _without_empty(each)) for name, each in value.items())
    return {name: each for name, each in kept if each not in (None, "", [], {})}


def _asked(row: Asked) -> tuple[str, list[str]]:
    return row["query"], row.get("history", [])


def _task(row: Asked, vocabulary: Vocabulary) -> PlanTask:
    return PlanTask(Question.parse(*_asked(row)), vocabulary)


def _plan(text: str, task: PlanTask, vocabulary: Vocabulary) -> dict[str, Any]:
    return plan_from_text(text, task.question, vocabulary).model_dump(mode="json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the gallery is stale")
    if not parser.parse_args().check:
        figure = measure(generator(SHIPPED_MODEL), shipped_vocabulary())
        FIGURE.write_text(json.dumps(figure, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return
    figure = json.loads(FIGURE.read_text(encoding="utf-8"))
    if (reason := what_is_stale(figure, questions(), shipped_vocabulary())) is not None:
        sys.exit(f"docs/gallery.md is stale: {reason}. Run `peakplan tools gallery`.")


if __name__ == "__main__":
    main()
