"""Tests that splits never leak, epochs repeat for a seed, and every example is legal under its grammar.

In conversations with other names and amounts, the labels are still what was said.
"""

import random
from itertools import chain
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from rehearsal.bench.questions import DATA, has_dev_data
from service.decoding.constraint import GrammarCompiler
from service.planner.grammar import plan_grammar
from service.planner.plan_text import intent_word, render
from service.planner.vocabulary import shipped_vocabulary
from tests.training.tiny_data import SMALL, write_data
from training.data import rows, written
from training.data.conversations import conversations, examples_of, with_shared
from training.data.examples import Example
from training.data.mix import Mix, dev_sets, keyword_form
from training.data.notation import Conversation, check, parse, plain
from training.data.substitution import Pools, pools_of, substituted

VOCABULARY = shipped_vocabulary()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "tiny")


@pytest.fixture(scope="module")
def mix(data: Path) -> Mix:
    return Mix(data, SMALL)


def test_an_epoch_depends_on_its_seed_alone(mix: Mix) -> None:
    assert mix.epoch(random.Random(1)) == mix.epoch(random.Random(1))
    assert mix.epoch(random.Random(1)) != mix.epoch(random.Random(2))


@pytest.mark.slow
def test_every_example_of_an_epoch_is_admitted_by_its_grammar(mix: Mix, plan_tokenizer: Tokenizer) -> None:
    compiler = GrammarCompiler(plan_tokenizer.to_str(), 2)
    for example in chain.from_iterable(mix.epoch(random.Random(3))):
        question = example.question()
        constraint = compiler.compile(plan_grammar(question, VOCABULARY))
        has_sources = example.knows_sources or bool(example.draft.sources)  # else the intent alone is known
        word = intent_word(example.draft, VOCABULARY)
        text = render(example.draft, question, VOCABULARY) if has_sources else f" {word}"
        constraint.accept(plan_tokenizer.encode(text, add_special_tokens=False).ids)
        assert constraint.finished() or not has_sources, (example, text)


def test_dev_rows_are_not_in_training(data: Path, mix: Mix) -> None:
    dev = {
        example.query for examples in dev_sets(data).values() for example in examples if example.origin != "queryner"
    }
    for origin in ("webshop", "pqa", "bitext"):
        assert not dev & {example.query for example in mix.by_origin[origin]}
    held_out = {row.query for row in rows.clinc_rows(data, "dev")}
    assert held_out
    assert not held_out & {row.query for row in rows.clinc_rows(data, "train")}


def test_dev_categories_and_unknown_verticals_teach_nothing(data: Path) -> None:
    names = dict(rows.category_names(data))

    assert "vases" not in names, "a dev row uses this category"
    assert "repair" not in names, "its vertical is not in the vocabulary"
    assert names["lamps"] == "home-garden"


def test_templated_rows_keep_only_what_the_vocabulary_knows(data: Path) -> None:
    example = next(iter(rows.taxonomy_rows(data, "train")))

    assert [span.facet for span in example.draft.spans] == ["feature", "type"]
    assert example.price == (None, 30.0)
    assert example.knows_vertical
    assert not example.knows_facets


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="DATA="):
        Mix(tmp_path)


def test_keyword_forms_keep_the_meaning_and_drop_the_sentence(mix: Mix) -> None:
    sentence = next(example for example in mix.by_origin["bitext"])
    short = keyword_form(sentence)

    assert short is not None
    assert short.query.startswith("cancel order")
    assert short.draft.mode == "keyword"


@pytest.mark.skipif(
    not has_dev_data(), reason=f"needs the data folder ({DATA.name}/ beside the project, or PEAKPLAN_DATA)"
)
@pytest.mark.slow
def test_no_dev_question_of_the_real_data_is_trained_on() -> None:
    mix = Mix(DATA)
    trained = {example.query for example in chain.from_iterable(mix.epoch(random.Random(0)))}
    sets = dev_sets(DATA)
    for origin in ("webshop", "pqa", "bitext", "clinc"):
        shared = trained & {example.query for example in sets[origin]}
        assert len(shared) <= 0.02 * len(sets[origin]), f"{origin}: {sorted(shared)[:3]}"
    known = set(rows.category_names(DATA))
    for example in sets["taxonomy"]:
        question = example.question()
        types = [s for s in example.draft.spans if s.facet == "type"]
        for span in types:
            text = " ".join(word.text for word in question.words[span.first : span.last + 1])
            assert (text, example.draft.vertical) not in known, text


SHOES = """= runner | sport | en-US
> running shoes under 80, not nike
find; type:running shoes; price <=80 "under 80"; !brand:nike; @apparel-accessories
> make that 120. Running shoes in black please, size 80 is a joke
find; price <=120 "120"; color:black
> around 100 then
find; price ~100 "around 100"
"""


@pytest.fixture(scope="module")
def written_conversations() -> list[Conversation]:
    return [conversation for _, conversation in conversations("train")]


@pytest.fixture(scope="module")
def pools(written_conversations: list[Conversation]) -> Pools:
    return pools_of(written_conversations, written.product_names())


def read(text: str) -> Conversation:
    return parse([line for line in text.splitlines() if line])


def test_labels_are_still_words_that_were_said(written_conversations: list[Conversation], pools: Pools) -> None:
    rng = random.Random(5)
    drawn = rng.sample(written_conversations, 600)
    changed = [substituted(conversation, pools, rng) for conversation in drawn]
    for conversation in changed:
        said = ""
        for turn in conversation.turns:
            said += " | " + plain(turn.say)
            check(turn.plan, said)
    several = [(one, other) for one, other in zip(drawn, changed, strict=True) if len(one.turns) > 1]
    assert sum(one != other for one, other in several) > len(several) / 2
    assert count_of_examples(changed) >= 0.99 * count_of_examples(drawn)


def count_of_examples(found: list[Conversation]) -> int:
    return sum(isinstance(example, Example) for conversation in found for example in examples_of(conversation))


def test_a_name_is_another_everywhere_and_its_vertical_goes_with_it(pools: Pools) -> None:
    changed = [substituted(read(SHOES), pools, random.Random(seed)) for seed in range(40)]
    others = [
        conversation for conversation in changed if conversation.turns[0].plan["wanted"]["type"] != ["running shoes"]
    ]
    assert others
    for conversation in others:
        (name,) = conversation.turns[0].plan["wanted"]["type"]
        assert name in plain(conversation.turns[0].say)
        assert name in plain(conversation.turns[1].say)
        assert "running shoes" not in plain(conversation.turns[1].say)
    assert len({conversation.turns[0].vertical for conversation in others}) > 3


def test_amounts_keep_their_order_and_spare_what_is_no_price(pools: Pools) -> None:
    for seed in range(40):
        conversation = substituted(read(SHOES.replace("size 80 is a joke", "")), pools, random.Random(seed))
        first, second, third = (turn.plan["price"] for turn in conversation.turns)
        assert first["max"] < second["max"]
        assert f"under {first['max']}" in conversation.turns[0].say
        assert third["min"] == pytest.approx(0.8 / 1.2 * third["max"], abs=0.01)
    sized = read('= a | b | en-US\n> size 80 bag under 80\nfind; type:bag; size:size 80; price <=80 "under 80"')
    assert all(substituted(sized, pools, random.Random(seed)).turns[0].plan["price"]["max"] == 80 for seed in range(20))


def test_what_all_of_several_things_have_is_said_once() -> None:
    parts = [
        {"wanted": {"type": [name], "color": ["navy"]}, "price": {"words": "each under 40"}} for name in ("cap", "tie")
    ]
    plan = with_shared({"intent": "find_product", "parts": parts})
    assert plan["wanted"] == {"color": ["navy"]}
    assert plan["price"] == {"words": "each under 40"}
    assert [part["wanted"]["type"] for part in plan["parts"]] == [["cap"], ["tie"]]
    assert parts[0]["wanted"]["color"] == ["navy"], "the label itself is as it was"
