"""The tables of figures about the quality of plans."""

import json
from pathlib import Path
from typing import Any

from rehearsal.bench.serving_tables import provenance

FIGURES = Path("docs/figures")
OTHER_WRITERS = {  # who had not seen the planner; rehearsal/bench/cases/README.md has what each set said at first sight
    "writer_2_cases": "cases by a second writer",
    "writer_3_cases": "cases by a third writer",
    "writer_4_cases": "cases by a fourth writer",
    "writer_5_cases": "cases by a fifth writer",
    "writer_6_cases": "cases by a sixth writer, half of them follow-ups",
    "writer_7_cases": "cases by a seventh writer",
    "writer_8_cases": "cases by an eighth writer",
    "writer_9_cases": "cases by a ninth writer",
    "writer_10_cases": "cases by a tenth writer, in the shares of a shop's traffic",
    "writer_11_cases": "cases by an eleventh writer, prices and refusals alone",
    "spanish_cases": "Spanish cases by another writer",
    "german_cases": "German cases by another writer",
    "french_cases": "French cases by another writer",
}
_SCOPE = {
    "shop_out_of_scope": "another writer's shopping questions misjudged as out of scope",
    "out": "the same writer's out-of-scope recall",
    "support": "the same writer's support intents",
}
_LABELS = {
    "intent": "intent accuracy, all origins",
    "out_of_scope_recall": "out-of-scope recall",
    "shopping_out_of_scope": "product searches and questions misjudged as out of scope",
    "price_exact": "price bounds exact",
    "vertical": "vertical accuracy, unseen leaf categories",
    "valid_plans": "valid plans",
    "invented_facet_values": "facet values not found in the question",
}
_MORE_LABELS = {
    "out_of_scope_false_alarms": "out-of-scope false alarms",
    "first_source": "correct first source, product questions",
    "corrected": "misspelt words corrected in a query",
}


def render_quality(figure: dict[str, Any]) -> str:
    """Return the quality of the model's plans, with the rule fallback beside it."""
    model, rules = figure["model"], figure["rules"]
    rows = ["| on questions never trained on | model | rule fallback |", "|---|---:|---:|"]
    if "behaviour" in model:
        passed = model["behaviour"]["passed"], rules["behaviour"]["passed"]
        rows.append(f"| **behaviour cases passed**, of {model['behaviour']['cases']} | {passed[0]} | {passed[1]} |")
    sets = [name for name in OTHER_WRITERS if name in model]
    if sets:
        cases = sum(model[name]["cases"] for name in sets)
        first = "[less at first sight](rehearsal/bench/cases/README.md)"
        rows.append(
            f"| **cases by {len(sets)} other writers passed**, of {cases:,} ({first}) "
            f"| {_pooled(model, sets)} | {_pooled(rules, sets)} |"
        )
    if "scope" in model:
        rows += [f"| {label} | {model['scope'][key]} | {rules['scope'][key]} |" for key, label in _SCOPE.items()]
    if "asked" in model:
        asked = model["asked"]["intent"], rules["asked"]["intent"]
        rows.append(f"| intent accuracy on sentences not worded like the training texts | {asked[0]} | {asked[1]} |")
    rows.append(f"| QueryNER span F1 | {model['span_f1']['queryner']} | {rules['span_f1']['queryner']} |")
    rows += [f"| {label} | {model[key]} | {rules[key]} |" for key, label in _LABELS.items()]
    return "\n".join([*rows, "", provenance(figure, f"{model['questions']} questions")])


def _pooled(scores: dict[str, Any], sets: list[str]) -> float:
    """Return the share of all cases of several sets that pass."""
    passed = sum(round(scores[name]["passed"] * scores[name]["cases"]) for name in sets)
    return float(round(passed / sum(scores[name]["cases"] for name in sets), 4))


def render_precision(figure: dict[str, Any]) -> str:
    """Return the quality in each precision of the model's numbers, side by side."""
    labels = {
        "behaviour": "behaviour cases passed",
        **{name: f"{label} passed" for name, label in OTHER_WRITERS.items()},
        "span_f1": "QueryNER span F1",
        **_LABELS,
        **_MORE_LABELS,
        "same_as_reference": f"the same plan as in {figure['reference']}",
    }
    found = figure["precisions"]
    rows = [f"| | {' | '.join(found)} |", "|---|" + "---:|" * len(found)]
    for key, label in labels.items():
        if all(key in scores for scores in found.values()):
            rows.append(f"| {label} | {' | '.join(str(scores[key]) for scores in found.values())} |")
    return "\n".join([*rows, "", provenance(figure, f"{figure['questions']} questions")])


def behaviour_classes() -> str:
    """Return what README.md has no room for, and behaviour cases by class."""
    figure = json.loads((FIGURES / "quality.json").read_text(encoding="utf-8"))
    model, rules = figure["model"], figure["rules"]
    sets = [(label, name) for name, label in OTHER_WRITERS.items() if name in model]
    more = ["| | model | rules |", "|---|---:|---:|"]
    more += [
        f"| {label}, of {model[name]['cases']} | {model[name]['passed']} | {rules[name]['passed']} |"
        for label, name in sets
    ]
    more += [f"| {label} | {model[key]} | {rules[key]} |" for key, label in _MORE_LABELS.items() if key in model]
    more += [
        f"| {turns} of conversations, every field right | {share} | {rules['conversations'][turns]} |"
        for turns, share in model.get("conversations", {}).items()
    ]
    rows = ["| class of the open cases | model | rules |", "|---|---:|---:|"]
    if "behaviour" in model:
        by_rule = rules["behaviour"]["by_class"]
        rows += [f"| {kind} | {passed} | {by_rule[kind]} |" for kind, passed in model["behaviour"]["by_class"].items()]
    return "\n".join([*more, "", *rows, "", provenance(figure, f"{model['questions']} questions")])
