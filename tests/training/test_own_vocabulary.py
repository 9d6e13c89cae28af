"""A miniature model learns a vocabulary of its own, from its file alone, and its plans are in those terms."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from service.planner.completion import plan_from_text
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary, VocabularyError, shipped_vocabulary
from tests.planner.test_plan_text import GROCER, write
from tests.training.conftest import _byte_level
from tests.training.tiny_data import write_base
from training import finetune
from training.data.examples import Example, within
from training.data.mix import Dialogue
from training.finetune import Finetuning
from training.settings import AdapterSettings
from training.tuned import TunedModel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]

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


def test_words_that_a_tokenizer_splits_are_refused_by_name(folder: Path) -> None:
    with pytest.raises(VocabularyError, match=r"vocabulary\.json: .* tokens of this tokenizer"):
        Vocabulary.load(folder / "model").check_tokens(_byte_level([]))


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
