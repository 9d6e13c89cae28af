"""Who is turned away, and who is let in: questions of another writer's, of which the intents that are fair are known.

`cases/scope.tsv` has a line each: "shop", "out", "support" or "chat", the intents that would be right, and the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from service.planner.plan import Plan
from service.planner.question import Question

SCOPE_QUESTIONS = Path(__file__).with_name("cases") / "scope.tsv"
_OUT = "out_of_scope"


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
    turned_away = share("shop", [asked.group == "shop" and intent == _OUT for asked, intent in given])
    return {"questions": len(questions), **right, "shop_out_of_scope": turned_away}
