"""Which products are right for which questions: TREC qrels, tab-separated lines, or what shoppers chose."""

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from peakplan.shop.sources import SourceError

GRADES: Final = {"click": 1, "cart": 2, "purchase": 3}  # of what a shopper did with a product
_DOCUMENTS: Final = ("docid", "doc_id", "product_id", "product", "document_id", "document", "id", "docId", "item_id")
_COLUMNS: Final = (
    ("question", "query", "query_text", "queryText", "search_term", "query_id", "qid"), _DOCUMENTS,
    ("grade", "rating", "judgment", "judgement", "relevance", "label", "esci_label", "score"),
)  # fmt: skip
_WORDS: Final = {"e": 3, "s": 2, "c": 1, "i": 0, "exact": 3, "substitute": 2, "complement": 1, "partial": 1,
                 "irrelevant": 0, "perfect": 4, "excellent": 3, "good": 2, "fair": 1, "bad": 0, "poor": 0}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as it was asked; `history` are earlier messages, oldest first."""

    text: str
    history: tuple[str, ...] = ()


@dataclass(slots=True)
class Judgements:
    """Questions by their ids, and the grades of products for each: above 0 is right, more is better."""

    questions: dict[str, Asked] = field(default_factory=dict)
    grades: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    notes: list[str] = field(default_factory=list)

    def add(self, question: str, product: str, grade: int) -> None:
        """Keep a grade; of several for one product the best."""
        mine = self.grades[question]
        mine[product] = max(grade, mine.get(product, grade))


def read_judgements(paths: Sequence[Path], questions: Path | None = None) -> Judgements:
    """Read files of one kind; `questions` has the words of question or request ids. Raises SourceError."""
    words = _words(questions) if questions else {}
    found = Judgements()
    if all(path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson")) or ".jsonl" in path.name for path in paths):
        _from_outcomes([record for path in paths for record in _records(path)], words, found)
    else:
        for path in paths:
            (_from_json if path.suffix == ".json" else _from_lines)(path, words, found)
    without = [each for each in found.grades if not any(grade > 0 for grade in found.grades[each].values())]
    for each in without:  # no search can find what is right for them
        del found.grades[each], found.questions[each]
    if without:
        found.notes.append(f"{len(without)} questions are left out: no product is right for them")
    if not found.grades:
        raise SourceError(f"{', '.join(map(str, paths))}: no question has a right product")
    return found


def _from_lines(path: Path, words: Mapping[str, Asked], found: Judgements) -> None:
    """Read qrels (`id 0 product grade`, with the words elsewhere) or lines of question, product, and perhaps grade."""
    told: list[tuple[int, str, str, str]] = []
    columns: tuple[int, ...] = (0, 1, 2)
    for number, line in _lines(path):
        tabbed = [cell.strip() for cell in (next(csv.reader([line])) if path.suffix == ".csv" else line.split("\t"))]
        if number == 1 and (named := _columns(tabbed)):
            columns = named
            continue
        cells = tabbed if len(tabbed) in (2, 3) or len(tabbed) > max(columns) > 2 else line.split()
        if len(cells) == 4 and cells is not tabbed:
            name, _, product, grade = cells
            if name not in words:
                raise SourceError(
                    f"{path}:{number}: qrels have no words, and nothing says those of question {name!r}: name a file "
                    "of id and question between tabs with --questions"
                )
        elif cells is tabbed:
            name, product, grade = ([*cells, "1"][at] for at in columns)
        else:
            raise SourceError(
                f"{path}:{number}: is neither a line of qrels (question id, 0, product id, grade) nor question, "
                "product id and perhaps a grade between tabs"
            )
        if grade:  # what is not judged yet has none
            told.append((number, name, product, grade))
    _add(path, told, words, found)


def _columns(names: Sequence[str]) -> tuple[int, ...] | None:
    """Return where question, product and grade stand in a first line that names columns; None for any other line."""
    plain = [name.lower().replace(" ", "_") for name in names]
    places = [next((plain.index(each) for each in known if each in plain), None) for known in _COLUMNS]
    if places[0] is None:
        return None
    return tuple(at if at is not None else fallback for at, fallback in zip(places, (0, 1, len(names)), strict=True))


def _from_json(path: Path, words: Mapping[str, Asked], found: Judgements) -> None:
    """Read judgements as OpenSearch's search relevance workbench and Quepid export them."""
    told: list[tuple[int, str, str, str]] = []
    level: list[tuple[Any, str]] = [(json.loads(path.read_text(encoding="utf-8-sig")), "")]
    while level:
        value, question = level.pop()
        if isinstance(value, list):
            level += [(each, question) for each in reversed(value)]
        elif isinstance(value, dict):
            question = next((str(value[name]) for name in _COLUMNS[0] if isinstance(value.get(name), str)), question)
            product, grade = (next((value[name] for name in known if value.get(name) not in (None, "")), None)
                              for known in (_DOCUMENTS, _COLUMNS[2]))  # fmt: skip
            if product is not None and not isinstance(grade, dict | list) and grade is not None:
                told.append((len(told) + 1, question, str(product), str(grade)))
            else:
                level += [(each, question) for each in reversed([*value.values()])]
    _add(path, told, words, found)


def _add(path: Path, told: Sequence[tuple[int, str, str, str]], words: Mapping[str, Asked], found: Judgements) -> None:
    """Keep grades, which may be fractions or words: what orders them is kept."""
    values = []
    for number, _, _, grade in told:
        try:
            values.append(float(_WORDS.get(grade.strip().lower(), grade)))
        except ValueError as error:
            raise SourceError(
                f"{path}:{number}: the grade {grade!r} is neither a number nor {', '.join(_WORDS)}"
            ) from error
    scale = 1 if all(value.is_integer() for value in values) else 100
    for (_, name, product, _), value in zip(told, values, strict=True):
        found.questions[name] = words.get(name) or Asked(name)
        found.add(name, product, round(value * scale))


def _from_outcomes(records: Iterable[Mapping[str, Any]], words: Mapping[str, Asked], found: Judgements) -> None:
    """Join plans and outcomes by caller and request id; what was asked in the same words is one question."""
    chosen: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    plans: dict[tuple[str, str], Asked | None] = {}
    for record in records:
        key = (str(record.get("caller", "")), str(record.get("request_id")))
        if record.get("record") == "plan":
            said = record.get("question")
            known = words.get(key[1])
            plans[key] = Asked(said, tuple(record.get("history", ()))) if isinstance(said, str) else known
        elif record.get("record") == "outcome" and record.get("outcome") in GRADES:
            chosen[key].append((str((record.get("product") or {}).get("id")), GRADES[record["outcome"]]))
    for key, products in chosen.items():
        asked = plans.get(key) or words.get(key[1])
        if asked is None:
            continue
        name = " / ".join((*asked.history, asked.text))
        found.questions[name] = asked
        for product, grade in products:
            found.add(name, product, grade)
    wordless = sum(not (plans.get(key) or words.get(key[1])) for key in chosen)
    if wordless:
        found.notes.append(
            f"{wordless} plans with outcomes are left out: their words were not kept (PEAKPLAN_OUTCOMES_TEXT, or "
            "--questions)"
        )


def _words(path: Path) -> dict[str, Asked]:
    """Return the words by id: lines of id and question between tabs, or JSON lines of request_id, question, history."""
    if ".json" in path.name:
        return {str(row.get("request_id")): Asked(str(row.get("question")), tuple(row.get("history") or ()))
                for row in _records(path)}  # fmt: skip
    found = {}
    for number, line in _lines(path):
        name, is_there, text = line.partition("\t")
        if not is_there or not text.strip():
            raise SourceError(f"{path}:{number}: is not an id and a question with a tab between")
        found[name.strip()] = Asked(text.strip())
    return found


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in _lines(path):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise SourceError(f"{path}:{number}: is not JSON ({error})") from error
        if not isinstance(record, dict):
            raise SourceError(f"{path}:{number}: is a {type(record).__name__}, not an object")
        yield record


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that say something, with their numbers. Raises SourceError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} cannot be read ({error}): name a file in UTF-8") from error
    for number, line in enumerate(text.split("\n"), 1):  # a shopper's words may have other ends of lines
        if line.strip():
            yield number, line.rstrip("\r")
