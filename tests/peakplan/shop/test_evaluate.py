"""`peakplan shop evaluate` as a person uses it: judgements of every kind, the table, the page, and what it refuses.

Judgements come as other tools export them, too. A question that is read in another way with a shop's words is drafted
anew.
"""

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from peakplan.shop import planning
from peakplan.shop.__main__ import main
from peakplan.shop.intervals import interval
from peakplan.shop.judgements import read_judgements
from peakplan.shop.sources import SourceError
from service.planner.planner import Planner
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.shop import current
from service.planner.shop.folder import ShopFolder
from service.settings.choices import SHIPPED_MODEL
from tests.fake_models import fake_source
from tests.peakplan.shop.test_learn import catalogue, learn, write_lines
from tests.processes import PATIENCE
from tests.server_process import REPOSITORY


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def evaluate(*words: str | Path) -> Done:
    """Run the command's own main, whose start is most of what a process of its own would take."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["evaluate", *map(str, words)])
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a catalogue and its shop folder."""
    folder = tmp_path_factory.mktemp("shop")
    products, learnt = write_lines(folder / "products.jsonl", catalogue()), folder / "mine"
    done = learn(products, learnt)
    assert done.returncode == 0, done.stderr
    return products, learnt


@pytest.fixture(scope="module")
def given(shop: tuple[Path, Path]) -> list[str]:
    return ["--products", str(shop[0]), "--shop", str(shop[1]), "--reader-alone"]


def judged() -> dict[str, dict[str, int]]:
    """Return product ids by question, with grades: what the catalogue itself says."""
    rows = catalogue()
    cheap = [row for row in rows if "Kettle" in row["title"] and float(row["price"].strip("$")) <= 40]
    blue = [row for row in rows if "Rake" in row["title"] and row["colour"] == "Blue"]
    return {
        "kettle under $40": {row["sku"]: 1 for row in cheap},
        "blue rake": {row["sku"]: 2 for row in blue} | {row["sku"]: 0 for row in rows[:3]},
    }


def test_plans_find_what_raw_words_do_not_and_the_page_shows_the_worst_first(tmp_path: Path, given: list[str]) -> None:
    lines = [f"{question}\t{id_}\t{grade}" for question, ids in judged().items() for id_, grade in ids.items()]
    judgements = tmp_path / "judged.tsv"
    judgements.write_text("\n".join(["question\tproduct\tgrade", *lines]) + "\n", encoding="utf-8")
    done = evaluate(judgements, *given, "--output", tmp_path / "found")
    assert done.returncode == 0, done.stderr
    assert "reader with the shop folder" in done.stdout

    found = json.loads((tmp_path / "found" / "evaluation.json").read_text(encoding="utf-8"))
    ways = found["ways"]
    assert list(ways) == ["raw words", "reader", "reader with the shop folder"]
    assert ways["reader"]["nDCG@10"]["mean"] > ways["raw words"]["nDCG@10"]["mean"]
    assert ways["reader with the shop folder"]["nDCG@10"]["mean"] == 1
    low, high = ways["raw words"]["nDCG@10"]["interval"]
    assert low <= ways["raw words"]["nDCG@10"]["mean"] <= high
    scores = [each["scores"]["reader with the shop folder"]["nDCG@10"] for each in found["worst_first"]]
    assert scores == sorted(scores)
    page = (tmp_path / "found" / "evaluation.html").read_text(encoding="utf-8")
    assert page.index("Worst questions first") < page.index("kettle under $40")
    assert "<script" not in page


def test_qrels_take_their_words_from_another_file_and_measures_are_of_trec(tmp_path: Path, given: list[str]) -> None:
    questions = judged()
    (tmp_path / "qrels").write_text(
        "".join(f"{at} 0 {id_} {grade}\n" for at, ids in enumerate(questions.values()) for id_, grade in ids.items())
    )
    (tmp_path / "words.tsv").write_text("".join(f"{at}\t{words}\n" for at, words in enumerate(questions)))
    done = evaluate(tmp_path / "qrels", *given, "--questions", tmp_path / "words.tsv", "--json", "--measure", "RR@10")
    assert done.returncode == 0, done.stderr

    found = json.loads(done.stdout)
    assert set(found["ways"]["reader"]) == {"RR@10"}
    assert {each["question"] for each in found["worst_first"]} == set(questions)
    wordless = evaluate(tmp_path / "qrels", *given)
    assert wordless.returncode == 1
    assert "qrels:1: qrels have no words" in wordless.stderr


def test_what_shoppers_chose_is_a_judgement(tmp_path: Path, given: list[str]) -> None:
    """A purchase is better than a click; another caller's outcome, and a plan whose words were not kept, are none."""
    right = next(iter(judged()["blue rake"]))
    plan = {"record": "plan", "caller": "a", "question": "blue rake", "history": []}
    records = [
        {**plan, "request_id": "1"}, {**plan, "request_id": "2"}, {"record": "plan", "caller": "a", "request_id": "3"},
        {"record": "outcome", "caller": "a", "request_id": "1", "outcome": "click", "product": {"id": "P0"}},
        {"record": "outcome", "caller": "a", "request_id": "2", "outcome": "purchase", "product": {"id": right}},
        {"record": "outcome", "caller": "b", "request_id": "2", "outcome": "purchase", "product": {"id": "P0"}},
        {"record": "outcome", "caller": "a", "request_id": "3", "outcome": "click", "product": {"id": "P1"}},
    ]  # fmt: skip
    plans, outcomes = tmp_path / "plans.jsonl", tmp_path / "outcomes.jsonl"
    for path, kind in ((plans, "plan"), (outcomes, "outcome")):
        write_lines(path, [record for record in records if record["record"] == kind])
    done = evaluate(plans, outcomes, *given, "--json", "--measure", "nDCG@10", "--measure", "Success@100")
    assert done.returncode == 0, done.stderr

    found = json.loads(done.stdout)
    assert found["questions"] == 1
    assert 0 < found["ways"]["reader"]["nDCG@10"]["mean"] < 1  # the rake that was bought is found, the kettle is not
    assert any("2 plans with outcomes are left out" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("blue rake P1\n", "judged.tsv:1: is neither a line of qrels"),
        ("blue rake\tP1\tmaybe\n", "the grade 'maybe' is neither a number nor"),
        ("blue rake\tP1\t0\n", "no question has a right product"),
        ("blue rake\tX1\t1\n", "no judged product is in the catalogue"),
        ("", "no question has a right product"),
    ],
)
def test_what_is_no_judgement_is_told(tmp_path: Path, given: list[str], lines: str, told: str) -> None:
    path = tmp_path / "judged.tsv"
    path.write_text(lines)
    done = evaluate(path, *given)
    assert done.returncode == 1
    assert told in done.stderr


def test_the_command_says_how_it_is_used() -> None:
    command = [sys.executable, "-m", "peakplan", "shop", "evaluate", "--help"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0
    assert "TREC qrels" in done.stdout


def test_a_damaged_folder_and_an_unknown_measure_are_told(tmp_path: Path, shop: tuple[Path, Path]) -> None:
    path = tmp_path / "judged.tsv"
    path.write_text("blue rake\tP1\n")
    rest = ["--products", shop[0], "--reader-alone"]
    done = evaluate(path, *rest, "--shop", tmp_path)
    assert done.returncode == 1
    assert "no whole shop folder" in done.stderr
    done = evaluate(path, *rest, "--shop", shop[1], "--measure", "best@10")
    assert done.returncode == 1
    assert "--measure best@10" in done.stderr


def test_the_interval_of_many_questions_is_drawn_in_pieces() -> None:
    values = [float(at % 2) for at in range(3000)]
    low, high = interval(values, 2000)
    assert 0.47 < low < 0.5 < high < 0.53


@pytest.mark.parametrize(
    ("name", "text", "grades"),
    [
        ("quepid.csv", "query,docid,rating\n\"lamp, red\",P1,3\nlamp,P2,\nlamp,P3,0\nlamp,P4,1\n",
         {"lamp, red": {"P1": 3}, "lamp": {"P3": 0, "P4": 1}}),
        ("esci.tsv", "query\tproduct_id\tesci_label\nlamp\tP1\tE\nlamp\tP2\tI\n", {"lamp": {"P1": 3, "P2": 0}}),
        ("floats.tsv", "lamp\tP1\t0.75\nlamp\tP2\t1.0\n", {"lamp": {"P1": 75, "P2": 100}}),
        ("whole.tsv", "lamp\tP1\t2.0\n", {"lamp": {"P1": 2}}),
        ("workbench.json",
         json.dumps({"name": "x", "judgmentRatings": [
             {"query": "lamp", "ratings": [{"docId": "P1", "rating": "3.0"}, {"docId": "P2", "rating": "0.0"}]}]}),
         {"lamp": {"P1": 3, "P2": 0}}),
    ],
)  # fmt: skip
def test_what_other_tools_export_is_read(
    tmp_path: Path, name: str, text: str, grades: dict[str, dict[str, int]]
) -> None:
    (tmp_path / name).write_text(text)
    assert read_judgements([tmp_path / name]).grades == grades


def test_a_grade_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "j.tsv").write_text("lamp\tP1\tmaybe\n")
    with pytest.raises(SourceError, match=r"j\.tsv:1: the grade 'maybe' is neither a number nor e, s"):
        read_judgements([tmp_path / "j.tsv"])


class ReadsInShop(Planner):
    """Leaves a remark out where a shop's words are read, as reading does where the shop has what stands beside it."""

    def task(self, question: Question, *given: Any, **named: Any) -> PlanTask:
        text = question.text.removesuffix(", my sister saw it") if current.lexicon() else question.text
        return super().task(Question.parse(text), *given, **named)


def test_a_question_is_drafted_once_where_a_shop_reads_it_alike_and_again_where_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert learn(write_lines(tmp_path / "products.jsonl", catalogue()), tmp_path / "mine").returncode == 0
    lexicon = ShopFolder.load(tmp_path / "mine").lexicon
    drafted: list[str] = []

    async def no_draft(_: object, task: PlanTask) -> None:
        drafted.append(task.prompt.strip(" |"))

    monkeypatch.setattr(planning, "_draft", no_draft)
    monkeypatch.setattr(planning, "Planner", ReadsInShop)
    monkeypatch.setattr(planning, "model_source", lambda _: fake_source())
    questions = [Question.parse("red shoes"), Question.parse("glorp, my sister saw it")]
    made = planning.plans_by_model(questions, SHIPPED_MODEL, (None, lexicon))

    assert drafted == ["red shoes", "glorp, my sister saw it", "glorp"]
    assert [len(plans) for plans in made.plans] == [2, 2]
    assert made.by_reader == 2
