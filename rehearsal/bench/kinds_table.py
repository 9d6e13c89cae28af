"""The table of docs/figures/kinds.json, for `rehearsal.tools.readme`."""

from itertools import product
from typing import Any

_ROWS = (
    ("named", "right", "the question names a thing: the first kind is right"),
    ("unnamed", "right", "it names none: the first kind is right"),
    ("named", "wrong", "a wrong one is first, thing named"),
    ("unnamed", "wrong", "a wrong one is first, none named"),
    ("none", "wrong", "a kind for what is about no product"),
    ("absent", "wrong", "a kind for a thing that the shop has not got"),
    ("unmet", "wrong", "a kind for a need that nothing in the shop meets"),
)
_SETS = {  # thresholds were fitted to the first to fourth
    "fifth": "fifth questions",
    "sixth": "sixth questions",
}
_TITLES = {"by_model": "the model's plan", "by_rules": "the rules' plan"}


def render_kinds(figure: dict[str, Any]) -> str:
    """Return how often the first kind is right and wrong, and what searches find with kinds and without them."""
    planners = [name for name in _TITLES if name in figure]
    rows = [
        f"| | questions | {' | '.join(_TITLES[name] for name in planners)} |",
        "|---|---:|" + "---:|" * len(planners),
    ]
    for of, (kind, what, title) in product(_SETS, _ROWS):
        if kind in figure[planners[0]][of]:
            cells = [_share(figure[name][of][kind][what]) for name in planners]
            count = figure[planners[0]][of][kind]["questions"]
            rows.append(f"| {_SETS[of]}: {title} | {count} | {' | '.join(cells)} |")
    for kind, title in (("named", "a thing is named"), ("unnamed", "none is named")):
        found = figure["left_out"][kind]
        cells = [_share(found) if name == "by_rules" else "" for name in planners]
        row = f"| the shop without the one department that has what is right, {title}: a kind all the same"
        rows.append(f"{row} | {found['questions']} | {' | '.join(cells)} |")
    halves = {
        "unseen": "unseen questions",
        "vague, unseen": "vague ones of these",
        "test": "held-out questions",
        "dev": "questions used for tuning",
        "vague": "vague ones",
        "sorts": "sorts",
    }
    for half, title in halves.items():
        cells = [_change(figure[name]["search"][half]) for name in planners]
        count = figure[planners[0]]["search"][half]["questions"]
        rows.append(f"| nDCG@10 with kinds, {title} of the retrieval benchmark | {count} | {' | '.join(cells)} |")
    told = (
        f"<sub>`{figure['command']}`: the sample catalogue, learnt anew ({figure['categories']} categories); in "
        "brackets 95% intervals by a bootstrap over questions, of nDCG@10 that of the difference from the same plans "
        f"without kinds. Naming kinds takes {figure['microseconds']:.0f} µs a plan in a shop of {figure['many']:,} "
        f"categories, {figure['microseconds_need']:.0f} µs where no thing is named.</sub>"
    )
    return "\n".join([*rows, "", told])


def _share(found: dict[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['share']:.3f} [{low:.3f}, {high:.3f}]"


def _change(found: dict[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['with']:.3f} ({found['difference']:+.3f} [{low:+.3f}, {high:+.3f}])"
