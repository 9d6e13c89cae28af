"""`peakplan shop evaluate`: what searches find with raw words, with plans, and with what was learnt of the shop."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ir_measures
from peakplan_client.mapping import CatalogueMapping

from peakplan.shop.finding import Catalogue
from peakplan.shop.intervals import interval
from peakplan.shop.judgements import Judgements
from peakplan.shop.planning import plans_by_model, plans_by_rule
from peakplan.shop.sources import SourceError
from service.api.models import MAX_TEXT_CHARACTERS
from service.planner.plan import Plan
from service.planner.question import Question
from service.planner.shop.folder import ShopFolder
from service.planner.shop.lexicon import Lexicon
from service.planner.vocabulary import Vocabulary

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
        ways = _ways(list(questions.values()), catalogue, shop.lexicon, model_dir, with_model)
        runs: dict[str, Run] = {RAW: {each: catalogue.raw(asked.text, DEPTH) for each, asked in questions.items()}}
        for way, (plans, through) in ways.plans.items():
            runs[way] = {
                each: catalogue.planned(plan, asked.text, through, DEPTH)
                for (each, asked), plan in zip(questions.items(), plans, strict=True)
            }
        missed, first = _examples(judgements, runs[list(runs)[-1]], catalogue)
    scores = {way: _scored(run, judgements, wanted) for way, run in runs.items()}
    words = {each: judgements.questions[each].text for each in questions}
    return Evaluation(scores, words, missed, first, ways.model, [*judgements.notes, *notes, *ways.notes])


@dataclass(frozen=True, slots=True)
class _Ways:
    """The plans of every question by way, each with the mapping that it goes through."""

    plans: dict[str, tuple[list[Plan], CatalogueMapping]]
    model: str | None
    notes: list[str]


def _ways(
    questions: Sequence[Question], catalogue: Catalogue, lexicon: Lexicon, model_dir: Path, with_model: bool
) -> _Ways:
    """Return the plans by way, those that know least first."""
    vocabulary = Vocabulary.load(model_dir)
    bare, learnt = catalogue.bare_mapping, catalogue.mapping
    rules = (plans_by_rule(questions, vocabulary), bare)
    rules_in_shop = (plans_by_rule(questions, vocabulary, lexicon), learnt)
    if not with_model:
        return _Ways({"rules": rules, "rules with the shop folder": rules_in_shop}, None, [])
    made = plans_by_model(questions, model_dir, (None, lexicon))
    notes = [f"the model ended no plan for {made.by_rule} questions: rules planned these"] * bool(made.by_rule)
    alone, in_shop = made.plans
    ways = {
        "rules": rules,
        "model": (alone, bare),
        "rules with the shop folder": rules_in_shop,
        "model with the shop folder": (in_shop, learnt),
    }
    return _Ways(ways, made.model_id, notes)


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
