"""Conversations with other names and amounts: the labels are still what was said."""

import random

import pytest

from training.data import written
from training.data.conversations import conversations, examples_of, with_shared
from training.data.examples import Example
from training.data.notation import Conversation, check, parse, plain
from training.data.substitution import Pools, pools_of, substituted

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
