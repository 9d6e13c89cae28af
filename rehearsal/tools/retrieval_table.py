"""The table of docs/figures/retrieval.json, for `rehearsal.tools.readme`."""

from typing import Any

_SCORES = {"recall@10": "recall@10", "ndcg@10": "nDCG@10"}


def render_retrieval(figure: dict[str, Any]) -> str:
    """Return what the raw words find, and the plans of the model and of the rules, by half and by class."""
    planners = {name: figure[name] for name in ("model", "rules") if name in figure}
    titles = {"model": "the model's plan", "rules": "the rule fallback's"}
    rows = [
        f"| | questions | measure | raw words | {' | '.join(titles[name] for name in planners)} |",
        "|---|---:|---|---:|" + "---:|" * len(planners),
    ]
    any_planner = next(iter(planners.values()))
    halves = {"unseen": "by writers who saw the catalogue alone", "test": "held out", "dev": "used for tuning"}
    for half, title in halves.items():
        for score, label in _SCORES.items():
            cells = [_with_interval(planner[half][score]) for planner in planners.values()]
            start = f"{title} | {any_planner[half]['questions']}" if label == "recall@10" else " | "
            rows.append(f"| {start} | {label} | {any_planner[half][score]['raw']:.3f} | {' | '.join(cells)} |")
    for kind, scores in any_planner["classes"].items():
        cells = [f"{planner['classes'][kind]['ndcg@10']['plan']:.3f}" for planner in planners.values()]
        raw, where = scores["ndcg@10"]["raw"], "" if kind.endswith("unseen") else ", both halves"
        rows.append(f"| {kind}{where} | {scores['questions']} | nDCG@10 | {raw:.3f} | {' | '.join(cells)} |")
    told = "the difference from the raw words with its 95% confidence interval, by a paired bootstrap over questions"
    model = f", {figure['model']['id']}" if "model" in figure else ""
    more = [
        f" The model's plans find {found['difference']:+.3f} more nDCG@10 than the rules' "
        f"({found['interval'][0]:+.3f} to {found['interval'][1]:+.3f}) for those {halves[half]}."
        for half, found in figure.get("model_over_rules", {}).items()
    ]
    return "\n".join([*rows, "", f"<sub>`{figure['command']}`: in brackets {told}{model}.{''.join(more)}</sub>"])


def _with_interval(scores: dict[str, Any]) -> str:
    low, high = scores["interval"]
    return f"{scores['plan']:.3f} ({scores['difference']:+.3f}, {low:+.3f} to {high:+.3f})"
