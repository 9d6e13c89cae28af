"""The table of docs/figures/kinds.json, for `benchmarks.readme`."""

from typing import Any

_ROWS = {
    "named": "the question names a thing: the first kind is right",
    "unnamed": "it names none: the first kind is right",
}
_TITLES = {"by_model": "the model's plan", "by_rules": "the rules' plan"}


def render_kinds(figure: dict[str, Any]) -> str:
    """Return how often the first kind is right and wrong, and what searches find with kinds and without them."""
    planners = [name for name in _TITLES if name in figure]
    rows = [
        f"| | questions | {' | '.join(_TITLES[name] for name in planners)} |",
        "|---|---:|" + "---:|" * len(planners),
    ]
    for kind, title in _ROWS.items():
        cells = [_share(figure[name]["first"][kind]["right"]) for name in planners]
        rows.append(f"| {title} | {figure[planners[0]]['first'][kind]['questions']} | {' | '.join(cells)} |")
    for kind, title in (("named", "a wrong one is first, thing named"), ("unnamed", "a wrong one is first, none named"),
                        ("none", "a kind for what is about no product")):  # fmt: skip
        cells = [_share(figure[name]["first"][kind]["wrong"]) for name in planners]
        rows.append(f"| {title} | {figure[planners[0]]['first'][kind]['questions']} | {' | '.join(cells)} |")
    for half, title in (("test", "held-out questions"), ("dev", "questions used for tuning"), ("vague", "vague ones")):
        cells = [_change(figure[name]["search"][half]) for name in planners]
        count = figure[planners[0]]["search"][half]["questions"]
        rows.append(f"| nDCG@10 with kinds, {title} of the retrieval benchmark | {count} | {' | '.join(cells)} |")
    told = (
        f"<sub>`{figure['command']}`: the sample catalogue, learnt anew ({figure['categories']} categories); in "
        "brackets 95% intervals by a bootstrap over questions, of nDCG@10 that of the difference from the same plans "
        f"without kinds. Naming kinds takes {figure['microseconds']:.0f} µs a plan in a shop of {figure['many']:,} "
        "categories.</sub>"
    )
    return "\n".join([*rows, "", told])


def _share(found: dict[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['share']:.3f} [{low:.3f}, {high:.3f}]"


def _change(found: dict[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['with']:.3f} ({found['difference']:+.3f} [{low:+.3f}, {high:+.3f}])"
