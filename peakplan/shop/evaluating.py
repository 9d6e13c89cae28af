"""`peakplan shop evaluate`: what searches find with raw words, with plans, and with what was learnt of the shop."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ir_measures
from peakplan_client.mapping import CatalogueMapping

from peakplan.shop.finding import Catalogue
from peakplan.shop.intervals import interval
from peakplan.shop.judgements import Judgements
from peakplan.shop.planning import plans_by_model, plans_by_reader
from peakplan.shop.sources import SourceError
from service.api.models import MAX_TEXT_CHARACTERS
from service.planner.plan import Plan
from service.planner.question import Question
from service.planner.shop.folder import Lexicon, ShopFolder

MEASURES: Final = ("nDCG@10", "R@100", "Judged@10")
DEPTH: Final = 100  # products that a search may find
RAW: Final = "raw words"
_SHOWN: Final = 3  # products of a question
Run = dict[str, list[str]]  # product ids, best first, by question


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores by way of searching, measure and question, and each question's words and right products."""

    scores: dict[str, dict[str, dict[str, float]]]
    questions: dict[str, str]
    missed: dict[str, list[str]]
    first: dict[str, list[str]]
    model: str | None
    notes: list[str]

    @property
    def worst(self) -> list[str]:
        """The questions, those of which the last way finds least first, and among them those of which raw words do."""
        measure = next(iter(self.scores[RAW]))
        last = list(self.scores)[-1]
        own, raw = self.scores[last][measure], self.scores[RAW][measure]
        return sorted(self.questions, key=lambda each: (own[each], own[each] - raw[each]))

    def summary(self) -> dict[str, Any]:
        """Return the whole as JSON: means with intervals, then each question."""
        ways = {
            way: {measure: _summed(by, self.scores[RAW][measure]) for measure, by in measures.items()}
            for way, measures in self.scores.items()
        }
        questions = [
            {"question": self.questions[each], "missed": self.missed[each], "found_first": self.first[each]}
            | {
                "scores": {
                    way: {name: round(by[each], 4) for name, by in of.items()} for way, of in self.scores.items()
                }
            }
            for each in self.worst
        ]
        return {"questions": len(self.questions), "model": self.model, "ways": ways, "notes": self.notes,
                "worst_first": questions}  # fmt: skip


def _summed(scores: Mapping[str, float], raw: Mapping[str, float]) -> dict[str, Any]:
    values = list(scores.values())
    differences = [scores[each] - raw[each] for each in scores]

    def told(each: Sequence[float]) -> dict[str, Any]:
        low, high = interval(each)
        return {"mean": round(sum(each) / len(each), 4), "interval": [round(low, 4), round(high, 4)]}

    return {**told(values), "difference": told(differences)}


def evaluate(
    judgements: Judgements,
    source: Path,
    folder: Path,
    scratch: Path,
    *,
    model_dir: Path,
    with_model: bool = True,
    measures: Sequence[str] = MEASURES,
    table: str | None = None,
) -> Evaluation:
    """Search a catalogue for every question in every way. Raises SourceError, MappingError, ShopFolderError."""
    wanted = [_measure(name) for name in measures]
    shop = ShopFolder.load(folder)
    questions, notes = _plannable(judgements)
    mapping = CatalogueMapping.load(folder / "mapping.yaml")
    with Catalogue.of(source, mapping, shop.summary, scratch, table) as catalogue:
        notes += _unknown(judgements, catalogue.ids(), questions)
        ways, model, more = _ways(list(questions.values()), catalogue, shop.lexicon, model_dir, with_model)
        runs: dict[str, Run] = {RAW: {each: catalogue.raw(asked.text, DEPTH) for each, asked in questions.items()}}
        for way, (plans, through) in ways.items():
            runs[way] = {
                each: catalogue.planned(plan, asked.text, through, DEPTH)
                for (each, asked), plan in zip(questions.items(), plans, strict=True)
            }
        missed, first = _examples(judgements, runs[list(runs)[-1]], catalogue)
    scores = {way: _scored(run, judgements, wanted) for way, run in runs.items()}
    words = {each: judgements.questions[each].text for each in questions}
    return Evaluation(scores, words, missed, first, model, [*judgements.notes, *notes, *more])


Ways = dict[str, tuple[list[Plan], CatalogueMapping]]  # the plans of every question, and the mapping they go through


def _ways(
    questions: Sequence[Question], catalogue: Catalogue, lexicon: Lexicon, model_dir: Path, with_model: bool
) -> tuple[Ways, str | None, list[str]]:
    """Return the plans by way, those that know least first, the model's id and notes."""
    bare, learnt = catalogue.bare_mapping, catalogue.mapping
    reader, shop = "reader", "with the shop folder"
    ways = {
        reader: (plans_by_reader(questions, model_dir), bare),
        f"{reader} {shop}": (plans_by_reader(questions, model_dir, lexicon), learnt),
    }
    if not with_model:
        return ways, None, []
    made = plans_by_model(questions, model_dir, (None, lexicon))
    notes = [f"the model ended no plan for {made.by_reader} questions: the reader planned these"] * bool(made.by_reader)
    alone, in_shop = made.plans
    order = ("reader", "model", "reader with the shop folder", "model with the shop folder")
    ways |= {"model": (alone, bare), f"model {shop}": (in_shop, learnt)}
    return {way: ways[way] for way in order}, made.model_id, notes


def _measure(name: str) -> Any:
    try:
        return ir_measures.parse_measure(name)
    except (NameError, ValueError, SyntaxError, TypeError) as error:
        raise SourceError(f"--measure {name}: is none of ir-measures' (such as nDCG@10, R@100, RR@10)") from error


def _plannable(judgements: Judgements) -> tuple[dict[str, Question], list[str]]:
    """Return the questions as the planner takes them; one that the service refuses is left out."""
    found = {
        name: Question.parse(asked.text, list(asked.history))
        for name, asked in judgements.questions.items()
        if 0 < len(asked.text.strip()) <= MAX_TEXT_CHARACTERS
    }
    left = len(judgements.questions) - len(found)
    if not found:
        raise SourceError(f"the planner takes none of these questions: each has 1 to {MAX_TEXT_CHARACTERS} characters")
    return found, [f"{left} questions are left out: the service would refuse them"] if left else []


def _unknown(judgements: Judgements, ids: frozenset[str], questions: Iterable[str]) -> list[str]:
    right = {product for each in questions for product, grade in judgements.grades[each].items() if grade > 0}
    if not right & ids:
        example = sorted(right)[0]
        raise SourceError(f"no judged product is in the catalogue: is {example!r} an id of another field or catalogue?")
    absent = len(right - ids)
    return [f"{absent} of {len(right)} right products are not in the catalogue: no search finds them"] if absent else []


def _scored(run: Run, judgements: Judgements, measures: Sequence[Any]) -> dict[str, dict[str, float]]:
    """Return the score of every question by measure: 0 where nothing was found."""
    scores: dict[str, dict[str, float]] = {str(each): dict.fromkeys(run, 0.0) for each in measures}
    grades = {each: judgements.grades[each] for each in run}
    ranked = {each: {id_: float(-rank) for rank, id_ in enumerate(found)} for each, found in run.items() if found}
    for metric in ir_measures.iter_calc(measures, grades, ranked):
        scores[str(metric.measure)][metric.query_id] = metric.value
    return scores


def _examples(judgements: Judgements, run: Run, catalogue: Catalogue) -> tuple[Run, Run]:
    """Return titles by question: of right products that the first ten lack, and of what came first."""
    missed, first = {}, {}
    for each, found in run.items():
        best = sorted(judgements.grades[each].items(), key=lambda item: -item[1])
        lacking = [id_ for id_, grade in best if grade > 0 and id_ not in found[:10]][:_SHOWN]
        titles = catalogue.titles([*lacking, *found[:_SHOWN]])
        missed[each] = [titles.get(id_, f"{id_} (not in the catalogue)") for id_ in lacking]
        first[each] = [titles[id_] for id_ in found[:_SHOWN]]
    return missed, first


_STYLE: Final = """body{font:16px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color:#123}
table{border-collapse:collapse;width:100%}td,th{padding:.3rem .8rem;border-bottom:1px solid #cbd2d9;text-align:left;
vertical-align:top}td.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.less{color:#c92a2a}.wide{overflow-x:auto}small{color:#52606d}td:first-child{min-width:12rem}
@media (prefers-color-scheme:dark){body{background:#1f2933;color:#f5f7fa}.less{color:#ff8787}
small{color:#cbd2d9}}"""
_MOST_ROWS: Final = 500  # questions of the page; evaluation.json has all
_NOTE: Final = (
    "95% intervals by a bootstrap over questions; in brackets the difference from the raw words. Judged@10 is the "
    "share of the first ten that anybody judged: where it is low, scores say little."
)


def table(found: dict[str, Any]) -> str:
    """Return the figures of `Evaluation.summary` for a terminal."""
    rows = [("", *next(iter(found["ways"].values())))]
    for way, scores in found["ways"].items():
        rows.append((way, *(_told(score, way) for score in scores.values())))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def _told(score: dict[str, Any], way: str) -> str:
    low, high = score["interval"]
    text = f"{score['mean']:.3f} [{low:.3f}, {high:.3f}]"
    if way == RAW:
        return text
    low, high = score["difference"]["interval"]
    return f"{text} ({score['difference']['mean']:+.3f} [{low:+.3f}, {high:+.3f}])"


def render(found: Evaluation, title: str) -> str:
    """Return the page: one file, no scripts."""
    summary = found.summary()
    ways = summary["ways"]
    measures = list(ways[RAW])
    head = "".join(f"<th>{html.escape(name)}" for name in measures)
    rows = "".join(
        f"<tr><td>{html.escape(way)}"
        + "".join(f"<td class=n>{_told(scores[name], way).replace(' (', '<br>(')}" for name in measures)
        for way, scores in ways.items()
    )
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in summary["notes"])
    shown = summary["worst_first"][:_MOST_ROWS]
    questions = "".join(_row(each, measures[0]) for each in shown)
    more = f"<p>{len(summary['worst_first']) - len(shown)} more are in evaluation.json.</p>"
    model = f", model {html.escape(found.model)}" if found.model else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>What searches of {html.escape(title)} find</title><style>{_STYLE}</style>"
        f"<h1>What searches of {html.escape(title)} find</h1><p>{summary['questions']:,} judged questions{model}.</p>"
        f"<div class=wide><table><tr><th>{head}{rows}</table></div>"
        f"<p><small>{_NOTE}</small></p>"
        f"<ul>{notes}</ul><h2>Worst questions first</h2><div class=wide><table><tr><th>question"
        + "".join(f"<th>{html.escape(way)}" for way in ways)
        + f"<th>right, and not among the first ten<th>found first{questions}</table></div>"
        + (more if len(shown) < len(summary["worst_first"]) else "")
        + "</html>"
    )


def _row(each: dict[str, Any], measure: str) -> str:
    raw = each["scores"][RAW][measure]
    cells = "".join(
        f"<td class='n{' less' if scores[measure] < raw - 1e-9 else ''}'>{scores[measure]:.2f}"
        for scores in each["scores"].values()
    )
    lists = "".join(f"<td>{'<br>'.join(map(html.escape, each[name]))}" for name in ("missed", "found_first"))
    return f"<tr><td>{html.escape(each['question'])}{cells}{lists}"
