"""Needs draw words to the categories that meet them, tell themselves from things, and none of them is one judged by."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from peakplan.shop.meanings import word_vectors
from rehearsal.bench.kinds import QUESTIONS
from service.planner.shop.meanings import GENERAL_VECTORS
from tests.training.judged import Likeness, has_the_same_words
from training import needs
from training.needs import Need, draw_together, general_categories, places, read_needs, tell_apart

WORDS = ["puddle", "mud", "boot", "tent", "sleep", "outside", "keep", "red", "cheap"]
NEEDS = [
    Need(("Shoes", "Boots"), "keep out puddles"),
    Need(("Shoes", "Boots"), "keep off mud"),
    Need(("Camping", "Tents"), "sleep outside"),
    Need(("Camping", "Tents"), "keep asleep outside"),
    Need((), "cheap"),
]
_NEAR = 0.7  # of the words of both


def closer(vectors: torch.Tensor, word: str, right: str, wrong: str) -> float:
    """Return by how much a word is closer to the right one than to the wrong one."""
    mine, one, other = (vectors[WORDS.index(each)] for each in (word, right, wrong))
    return float(functional.cosine_similarity(mine, one, dim=0) - functional.cosine_similarity(mine, other, dim=0))


def test_words_of_needs_come_close_to_the_category_that_meets_them() -> None:
    torch.manual_seed(0)
    before = torch.randn(len(WORDS), 16)
    after = draw_together(WORDS, before, NEEDS * 400)

    for asked in (("puddle", "boot", "tent"), ("mud", "boot", "tent"), ("sleep", "tent", "boot")):
        assert closer(after, *asked) > closer(before, *asked) + 0.1, asked
    unused = WORDS.index("red")
    assert after[unused] / after[unused].norm() == pytest.approx((before[unused] / before[unused].norm()).numpy())


def test_words_tell_needs_from_things_and_from_what_is_about_no_product() -> None:
    telling = tell_apart(WORDS, NEEDS * 40, ["red boots", "cheap tent", "boot"] * 40)
    number = {word: at for at, word in enumerate(WORDS)}
    flat = telling.weights.flatten()

    def odds(text: str) -> float:
        return float(flat[places(number, text)].sum()) + telling.bias

    assert min(odds("keep out mud"), odds("sleep outside")) > 0 > max(odds("red boot"), odds("cheap tent"))
    assert odds("keep red") > odds("red keep")  # a need begins with it


def test_the_needs_of_a_category_mean_together_what_shops_have_for_them() -> None:
    vectors = np.eye(len(WORDS), dtype=np.float32)
    boots, tents = general_categories(WORDS, vectors, NEEDS)

    assert np.flatnonzero(boots).tolist() == [WORDS.index("puddle"), WORDS.index("mud"), WORDS.index("keep")]
    assert boots[WORDS.index("keep")] == 127  # said in both
    assert tents[WORDS.index("puddle")] == 0 < tents[WORDS.index("sleep")]


def test_the_categories_that_ship_are_those_of_the_vectors_and_needs_that_ship() -> None:
    numbers, vectors, _ = word_vectors()
    found = general_categories(list(numbers), vectors.astype(np.float32), read_needs())
    assert np.abs(np.load(GENERAL_VECTORS).astype(int) - found).max() <= 1


def test_a_line_that_is_no_need_under_a_category_is_refused_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "needs.txt"
    file.write_text("[Shoes > Boots]\nkeep out mud\n[]\nhello\n", encoding="utf-8")
    assert read_needs(file) == [Need(("Shoes", "Boots"), "keep out mud"), Need((), "hello")]
    for text, line in (("keep out mud\n", 1), ("[Shoes]\nkeep out mud\n\n", 3)):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=rf"needs\.txt:{line}: "):
            read_needs(file)


def test_no_need_is_nearly_a_question_that_kinds_or_plans_are_judged_by() -> None:
    judged = Likeness((json.loads(line)["query"] for line in QUESTIONS.read_text("utf-8").splitlines()), _NEAR)
    written = read_needs()
    assert len(written) > 15_000
    assert [need.text for need in written if judged.is_near(need.text) or has_the_same_words(need.text)] == []


def test_searches_instructions_and_bare_names_name_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        "queryner_train": {"query": "red boots"},
        "webshop_instructions": {"instruction": "i need a tent", "human_queries": ["tent"]},
        "plan_synth_taxonomy": {"text": "cheap tents"},
    }
    for name, row in rows.items():
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")

    monkeypatch.setattr(needs, "product_names", lambda: [("3d printer", "electronics")])
    *texts, name = sorted(needs.named_things(tmp_path), key=lambda text: "3d printer" in text)
    assert sorted(texts) == ["cheap tents", "i need a tent", "red boots", "tent"]
    assert name.endswith("3d printer")
