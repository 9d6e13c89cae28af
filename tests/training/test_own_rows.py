"""Rows of one's own: the documented kinds are read, bad ones named by line, field and reason.

A miniature model learns a vocabulary of its own, from its file alone, and its plans are in those terms.
"""

import json
import pickle
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from service.planner.completion import plan_from_text
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary, VocabularyError, shipped_vocabulary
from service.settings.choices import SHIPPED_MODEL
from tests.planner.test_plan_text import GROCER, write
from tests.training.conftest import _byte_level
from tests.training.tiny_data import VOCABULARY, made, write_base, written
from training import finetune, own_check, own_data
from training.data.examples import Example, within
from training.data.mix import Dialogue
from training.data.own_rows import ORIGIN, OURS, OwnMix, OwnRow, OwnRows, RowsError, read_own_rows
from training.finetune import Finetuning
from training.own_check import PLAN_SECONDS, RECORDED_CORES, Work, told
from training.own_data import plan_seconds, right
from training.settings import AdapterSettings, HeadSettings, TrainingSettings
from training.tuned import TunedModel

# What `peakplan finetune` does with 300 rows, unless options say otherwise.
WORK = Work(rows=270, held_out=30, epochs=3, rehearsal=1.0, questions=4000, measured=300)


@pytest.mark.parametrize(
    "more", [{"rows": 3000}, {"epochs": 6}, {"rehearsal": 4.0}, {"questions": 8000}, {"measured": 600}]
)
def test_more_work_takes_longer(more: dict[str, float]) -> None:
    assert replace(WORK, **more).minutes(2) > WORK.minutes(2)


def test_a_slow_or_busy_machine_is_known_by_its_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_check, "cores", lambda: 2)
    assert WORK.minutes(2, 3 * PLAN_SECONDS) == pytest.approx(3 * WORK.minutes(2))
    assert told(WORK) == (
        f"time: some {WORK.minutes(2):.0f} minutes on 2 cores like those that made the shipped model, "
        "with nothing else to do"
    )
    assert told(WORK, 10 * PLAN_SECONDS).startswith(f"time: some {10 * WORK.minutes(2):.0f} minutes on 2 cores of this")


def test_a_plan_s_time_is_the_mean_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = [0.0], []

    def greedy(question: object) -> None:
        asked.append(question)
        clock[0] += 0.2 if len(asked) > 1 else 9.0

    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    rows = [made({"question": f"lamp {number}", "intent": "find_product"}) for number in range(40)]
    assert plan_seconds(rows, SimpleNamespace(greedy=greedy)) == pytest.approx(0.2)  # type: ignore[arg-type]
    assert len(asked) == 13


def test_the_recorded_minutes_are_of_the_recipe_s_own_numbers(tmp_path: Path) -> None:
    recipe = TrainingSettings(data=tmp_path, cache=tmp_path, work=tmp_path, output=tmp_path)
    assert (HeadSettings().questions, recipe.processes) == (own_check.RECORDED_QUESTIONS, RECORDED_CORES)


PAGE = Path(__file__).parents[2] / "docs" / "own-data.md"
ROWS = re.search(r"<!-- rows -->\n```jsonl\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def documented() -> list[dict[str, Any]]:
    assert ROWS is not None
    return [json.loads(line) for line in ROWS[1].splitlines()]


def values(example: Example) -> dict[tuple[str, bool, int], list[str]]:
    question, found = example.question(), {}
    for span in example.draft.spans:
        key = (span.facet, span.refused, span.part)
        found[key] = [*found.get(key, []), question.surface(span.first, span.last)]
    return found


def test_every_documented_row_is_read_and_every_label_is_among_them() -> None:
    examples = {row["question"]: made(row) for row in documented()}

    assert {label for row in documented() for label in row} == set(OwnRow.model_fields)
    follow_up = examples["what about in blue?"]
    assert values(follow_up)["feature", False, 0] == ["waterproof"]
    assert values(examples["running shoes but not white"])["color", True, 0] == ["white"]
    tent = examples["tent and sleeping bag for kids"]
    assert values(tent) == {
        ("type", False, 1): ["tent"], ("type", False, 2): ["sleeping bag"], ("audience", False, 0): ["kids"],
    }  # fmt: skip
    assert examples["zapatillas rojas para correr"].draft.foreign


def test_what_a_row_does_not_say_is_no_target() -> None:
    garden, deals, parcel = (
        made(row) for row in documented() if row["question"].split()[0] in ("something", "best", "my")
    )

    assert (garden.knows_intent, garden.knows_facets, garden.knows_vertical) == (False, False, True)
    assert (deals.knows_intent, deals.knows_facets, deals.knows_vertical) == (True, True, True)
    assert (parcel.knows_intent, parcel.knows_facets, parcel.draft.mode) == (True, False, "conversational")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{", "row: invalid JSON"),
        ({"intent": "find_product"}, "question: field required"),
        ({"question": "red shoes"}, "row: has no label"),
        ({"question": "red shoes", "mode": "keyword"}, "mode: needs an intent"),
        ({"question": "red shoes", "intent": "buy"}, "intent: 'buy' is not in the vocabulary: find_product"),
        ({"question": "red shoes", "vertical": "shoes"}, "vertical: 'shoes' is not in the vocabulary"),
        ({"question": "red shoes", "facets": {"colour": ["red"]}}, "facets: 'colour' is not in the vocabulary"),
        ({"question": "red shoes", "facets": {"color": ["rde"]}}, r"facets.color: 'rde' stands nowhere"),
        ({"question": "red shoes", "facets": {"color": ["red"], "feature": ["red"]}}, "facets.feature: 'red' stands"),
        ({"question": "red shoes", "facets": {"color": []}}, "facets.color: list should have at least 1 item"),
        ({"question": "red shoes", "facets": {"color": "red"}}, "facets.color: input should be a valid array"),
        ({"question": "not red", "exclude": {"color": ["blue"]}}, "exclude.color: 'blue' stands nowhere"),
        ({"question": "red shoes", "price": {"max": 3}}, "price: is no label that a row can have"),
        ({"question": "red shoes", "brand": "nike"}, "brand: is no label; the labels are"),
        ({"question": "red shoes", "parts": [{"facets": {"type": ["shoes"]}}]}, "parts: list should have at least 2"),
        (
            {"question": "a b", "parts": [{"facets": {"type": ["a"]}}, {"facets": {"kind": ["b"]}}]},
            "parts.1.facets: 'kind'",
        ),
        (
            {"question": "where is it", "intent": "order_status", "vertical": None},
            "vertical: 'order_status' is not about",
        ),
        (
            {"question": "red shoes", "intent": "find_product", "sources": ["qa"]},
            "sources: are no choice for 'find_pro",
        ),
        (
            {"question": "is it red", "intent": "ask_product", "sources": ["help"]},
            "sources: 'help' is not in the vocab",
        ),
        ({"question": "rojo", "foreign": True, "vertical": "furniture"}, "foreign: such a question has neither"),
        ({"question": "\u200b", "intent": "find_product"}, "question: has no visible character"),
        ({"question": "x", "history": "y", "intent": "find_product"}, "history: input should be a valid array"),
    ],
)
def test_a_bad_row_is_named_by_line_field_and_reason(tmp_path: Path, row: Any, says: str) -> None:
    path = written(tmp_path, {"question": "lamp", "intent": "find_product"}, "", row)

    with pytest.raises(RowsError) as raised:
        read_own_rows(path, VOCABULARY)
    [problem] = str(raised.value).splitlines()
    assert problem.startswith(f"{path}:3: ")
    assert says in problem


def test_all_bad_rows_are_named_at_once_and_rows_that_disagree_too(tmp_path: Path) -> None:
    lamp = {"question": "Lamp", "intent": "find_product"}
    path = written(tmp_path, lamp, lamp, {"question": "lamp", "intent": "account"}, {"question": "x", "intent": "y"})

    with pytest.raises(RowsError) as raised:
        read_own_rows(path, VOCABULARY)
    problems = str(raised.value).splitlines()
    assert [line.split(": ")[0] for line in problems] == [f"{path}:3", f"{path}:4"]
    assert "line 1 has the same one with other labels" in problems[0]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe"])
def test_a_file_without_rows_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "my.jsonl").write_bytes(content)
    for path in (tmp_path / "my.jsonl", tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(RowsError, match=re.escape(str(path))):
            read_own_rows(path, VOCABULARY)


def test_a_tenth_is_held_out_whatever_else_is_in_the_file(tmp_path: Path) -> None:
    rows = [{"question": f"lamp {number}", "intent": "find_product"} for number in range(400)]
    whole = read_own_rows(written(tmp_path, *rows), VOCABULARY)
    half = read_own_rows(written(tmp_path, *rows[::2]), VOCABULARY)

    assert 20 <= len(whole.dev) <= 60
    assert len(whole.dev) + len(whole.train) == 400
    assert {example.query for example in half.dev} < {example.query for example in whole.dev}


def test_an_epoch_has_every_own_row_and_rehearses_ours(tmp_path: Path) -> None:
    own = OwnRows([made(row) for row in documented()], [made({"question": "lamp", "intent": "find_product"})])
    mix = OwnMix(path := tmp_path / "rows.pickle", OwnMix.save(own, path), 50)
    epoch = mix.epoch(random.Random(1))

    turns = [turn for dialogue in epoch for turn in dialogue]
    assert sum(example.origin == ORIGIN for example in turns) == len(own.train)
    assert 40 <= len(turns) - len(own.train) <= 60
    assert any(len(dialogue) > 1 for dialogue in epoch)
    assert epoch == mix.epoch(random.Random(1))
    assert "lamp" not in {example.query for example in turns}
    assert [example.query for example in mix.dev()[ORIGIN]] == ["lamp"]
    assert not {example.origin for example in mix.dev()[OURS]} & {example.origin for example in turns}
    assert pickle.loads(path.read_bytes()) == own


def test_words_that_stand_in_history_are_spans_too() -> None:
    example = made({"question": "in red", "history": ["nike shoes"], "facets": {"brand": ["nike"], "color": ["red"]}})
    question = Question.parse("in red", ["nike shoes"])

    assert [question.words[span.first].utterance for span in example.draft.spans] == [0, 1]


SHOES = {"question": "red shoes", "intent": "find_product", "facets": {"color": ["red"]}, "vertical": "furniture"}


def test_what_is_measured_is_every_label_that_a_row_has() -> None:
    example = made(SHOES)
    wrong = replace(example.draft, vertical=None)

    assert dict(right(example, example.draft)) == dict.fromkeys(
        ("intent", "facets", "vertical", "first source", "all of a row"), True
    )
    assert dict(right(example, wrong))["vertical"] is False
    assert dict(right(example, wrong))["all of a row"] is False
    assert not any(dict(right(example, None)).values())
    assert [label for label, _ in right(made({"question": "x", "intent": "feedback"}), None)][:1] == ["intent"]


@pytest.mark.parametrize(("accepts", "dev"), [(False, 30), (True, 30), (False, 3)])
def test_a_model_that_measures_worse_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], accepts: bool, dev: int
) -> None:
    before, after = SimpleNamespace(vocabulary=VOCABULARY), SimpleNamespace(vocabulary=VOCABULARY)
    wish = SimpleNamespace(measured=50, accept_worse=accepts, output=Path("models/mine"))

    def planned(question: Question, model: object) -> PlanDraft | None:
        return made(SHOES).draft if model is before and question.text == "red shoes" else None

    monkeypatch.setattr(own_data, "planned", planned)
    tables: dict[str, Any] = {}
    if accepts:
        own_data._judge(wish, before, after, [made(SHOES)] * dev, tables)  # type: ignore[arg-type]
    else:
        with pytest.raises(
            own_data.OwnDataError, match=r"100\.0% of your held-out rows were right before and 0\.0% are"
        ):
            own_data._judge(wish, before, after, [made(SHOES)] * dev, tables)  # type: ignore[arg-type]
    printed = capsys.readouterr().out
    assert "| all of a row | 100.0% | 0.0% |" in printed
    assert ("too few to tell" in printed) == (dev < own_data.ENOUGH_TO_TELL)


def test_a_vertical_without_facets_is_learnt_after_the_spans_that_the_model_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = made(SHOES).draft
    monkeypatch.setattr(own_data, "planned", lambda *_: said)
    bare, story = made({"question": "red shoes", "vertical": None}), made({"question": "red", "intent": "feedback"})
    filled, same = own_data.with_context([bare, story], SimpleNamespace())  # type: ignore[arg-type]

    assert filled.draft.spans == said.spans
    assert (filled.draft.vertical, filled.knows_facets) == (None, False)
    assert same is story


def test_prices_and_sorts_that_a_row_cannot_say_are_learnt_as_the_model_writes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = "cheapest red shoes under $40"
    price, thing = FacetSpan("max", 3, 4), FacetSpan("need", 1, 2)
    said = PlanDraft("keyword", "find_product", marks=[price, thing], sort="price_asc")
    monkeypatch.setattr(own_data, "planned", lambda *_: said)
    row = made({"question": question, "intent": "find_product", "facets": {"color": ["red"]}})
    [learnt] = own_data.with_context([row], SimpleNamespace())  # type: ignore[arg-type]

    assert learnt.draft.spans == row.draft.spans
    assert learnt.draft.marks == [price]
    assert (learnt.draft.sort, learnt.knows_closing) == ("price_asc", True)


def test_the_check_needs_nothing_that_trains_and_tells_what_is_said_twice(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [f'{{"question": "red shoes size {number}", "intent": "find_product"}}' for number in range(30)]
    file.write_text("\n".join([*rows, *rows[:3]]) + "\n", encoding="utf-8")
    script = (
        "import sys; from importlib.abc import MetaPathFinder\n"
        "class No(MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('torch', 'transformers', 'peft', 'babel', 'accelerate', 'matplotlib'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        "from training.own_check import main; main()"
    )

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)

    done = run(str(file), "--from", str(SHIPPED_MODEL), "--check")
    assert done.returncode == 0, done.stderr
    assert "3 more repeat an earlier row and count once: line 31, 32, 33" in done.stdout
    assert re.search(r"^time: some \d+ minutes on \d+ cores? like", done.stdout, re.MULTILINE)
    as_json = json.loads(run(str(file), "--from", str(SHIPPED_MODEL), "--check", "--json").stdout)
    assert as_json["train"] + as_json["held_out"] == 30
    assert (as_json["rows"], as_json["repeated_lines"]) == (str(file), [31, 32, 33])
    assert as_json["minutes"] > 0
    assert "--rehearsal" in run("--help").stdout
    assert run("nowhere.jsonl", "--from", str(SHIPPED_MODEL), "--check").stderr.startswith("error: nowhere.jsonl")


DIETS, THINGS = ("vegan", "kosher", "halal"), ("pasta", "soup", "bread")


class Questions:
    """Every diet with every thing; a bare diet asks for a recipe."""

    def epoch(self, rng: random.Random) -> list[Dialogue]:
        examples = [
            Example(
                f"{diet} {thing}",
                PlanDraft("keyword", "find_product", ["shelf"], _spans(), vertical="fresh-food"),
                knows_vertical=True,
            )
            for diet in DIETS
            for thing in THINGS
        ]
        examples += [Example(diet, PlanDraft("keyword", "recipe")) for diet in DIETS]
        return [(example,) for example in rng.sample(examples * 8, 8 * len(examples))]


def _spans() -> list[FacetSpan]:
    return [FacetSpan("diet", 0, 0), FacetSpan("type", 1, 1)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grocer")
    (folder / "model").mkdir()
    write(folder / "model", GROCER)
    card = {"id": "grocer", "base": "../base", "bos_token_id": 1, "eos_token_id": 2, "max_tokens": 32}
    (folder / "model" / "model.json").write_text(json.dumps(card), encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_miniature_model_plans_in_the_words_of_its_own_vocabulary(folder: Path) -> None:
    vocabulary = Vocabulary.load(folder / "model")
    tokenizer = _byte_level([*(word for _, word in vocabulary.words()), *DIETS, *THINGS])
    torch.manual_seed(3)
    settings = AdapterSettings(rank=16, alpha=32, epochs=30, batch_tokens=200, learning_rate=1e-2, average_decay=0.9)
    run = Finetuning(
        base=write_base(folder / "base", tokenizer, initializer_range=0.2),
        bos=1,
        eos=2,
        vocabulary=vocabulary,
        source=Questions,
        adapter=settings,
        work=folder / "work",
        seed=7,
    )
    _train(run, folder / "model")
    model = TunedModel(folder / "model", folder, "float32")

    for diet in DIETS:
        for thing in THINGS:
            question = Question.parse(f"{diet} {thing}")
            written = model.greedy(question)
            assert written is not None
            text = model.text(written.tokens).removesuffix("<|im_end|>")
            plan = plan_from_text(text, question, vocabulary)
            assert plan.facets == {"diet": [diet], "type": [thing]}
            assert (plan.intent, plan.vertical, plan.sources) == ("find_product", "fresh-food", ["shelf"])
    bare = Question.parse("vegan")
    asked = model.greedy(bare)
    assert asked is not None
    assert plan_from_text(model.text(asked.tokens), bare, vocabulary).intent == "recipe"


def _train(run: Finetuning, output: Path) -> None:
    run.work.mkdir()
    threads = torch.get_num_threads()
    try:
        finetune._work(0, 1, run.work / "rendezvous", run, output)
    finally:
        torch.set_num_threads(threads)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_words_that_a_tokenizer_splits_are_refused_by_name(folder: Path) -> None:
    with pytest.raises(VocabularyError, match=r"vocabulary\.json: .* tokens of this tokenizer"):
        Vocabulary.load(folder / "model").check_tokens(_byte_level([]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_of_other_material_only_what_the_vocabulary_can_say_is_learnt(folder: Path) -> None:
    vocabulary = Vocabulary.load(folder / "model")
    spans = [FacetSpan("color", 0, 0), FacetSpan("type", 1, 1)]
    example = Example(
        "red soup",
        PlanDraft("keyword", "find_product", ["catalog"], spans, vertical="home-garden"),
        knows_vertical=True,
    )

    kept = within(example, vocabulary)
    assert kept is not None
    assert kept.draft.spans == spans[1:]
    assert (kept.knows_facets, kept.knows_sources, kept.knows_vertical) == (False, False, False)
    assert within(replace(example, draft=PlanDraft("keyword", "order_status")), vocabulary) is None
    assert within(example, shipped_vocabulary()) == example
