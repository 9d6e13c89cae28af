"""The prompt tagger learns which words plans copy, is written, and is what an engine loads."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from service.weights.prompt_tagger import load_prompt_tagger
from tests.training.tiny_data import counting_plans
from training import prompt_tagger
from training.positions import Positions
from training.prompt_tagger import Copied, choose, copied, own_tokens, split_openings, train_prompt_tagger
from training.settings import PromptTaggerSettings, TrainingSettings

WIDTH = 24


def told(count: int, tokenizer: Tokenizer) -> Positions:
    """Plans that copy the words of two kinds after " Type" and " Brand"; a state says little but the token."""
    find, kind, brand, home = (tokenizer.token_to_id(f"Ġ{word}") for word in ("find", "Type", "Brand", "Home"))
    things, names, others = (range(3 + 40 * part, 43 + 40 * part) for part in range(3))
    rng = random.Random(1)
    prompts, plans = [], []
    for _ in range(count):
        thing, name = rng.choice(things), rng.choice(names)
        prompts.append([1, rng.choice(others), thing, rng.choice(others), name, 2])
        plans.append([find, kind, thing, brand, name, home])
    table = torch.randn((tokenizer.get_vocab_size(), WIDTH), generator=torch.Generator().manual_seed(3))
    flat = torch.tensor(prompts).flatten()
    return replace(
        counting_plans(table, 1, 1),
        tokens=torch.tensor(plans).flatten(),
        lengths=torch.full((count,), 6),
        prompts=flat,
        prompt_lengths=torch.full((count,), 6),
        prompt_hidden=table[flat].bfloat16(),
    )


def test_a_tagger_learns_what_is_copied_and_is_loaded(
    tmp_path: Path, plan_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_tagger, "load_tokenizer", lambda *_: plan_tokenizer)
    chosen = PromptTaggerSettings(features=16, width=3, epochs=8, learning_rate=1e-2, dropout=0.0)
    settings = TrainingSettings(
        data=tmp_path, cache=tmp_path, work=tmp_path, output=tmp_path, processes=1, prompt_tagger=chosen
    )

    whole, share = train_prompt_tagger(told(600, plan_tokenizer), settings, tmp_path)

    assert whole > 0.9
    assert share >= whole
    loaded = load_prompt_tagger(tmp_path, plan_tokenizer, WIDTH)
    assert loaded is not None
    assert loaded.p_min == chosen.p_min
    assert {plan_tokenizer.decode(list(phrase)) for phrase in loaded.phrases} == {"", " Brand"}
    assert [plan_tokenizer.decode(list(opening)) for opening in loaded.openings] == [" find Type"], "it is never later"
    with pytest.raises(ValueError, match=f"reads states of {WIDTH}, and the base's are 99"):
        load_prompt_tagger(tmp_path, plan_tokenizer, 99)


def test_a_plan_is_taken_apart() -> None:
    own = {7, 8, 9}
    assert copied([1, 4, 5, 6, 2], [7, 8, 4, 5, 9, 6, 7], own) == Copied((), [((7, 8), 1, 2), ((9,), 3, 3)], (7,))
    assert copied([1, 4, 5, 2], [7, 8], own) == Copied((), [], (7, 8))
    assert copied([1, 4, 5, 2], [8, 5, 9, 4], own) is None, "in another order"
    whole, later, bare = split_openings(
        [Copied((), [((7, 8), 1, 1)], (9,)), Copied((), [((7, 8), 1, 1), ((8,), 2, 2)], (9,)), Copied((), [], (7, 9))]
    )
    assert whole == Copied((7,), [((8,), 1, 1)], (9,))
    assert later == Copied((7,), [((8,), 1, 1), ((8,), 2, 2)], (9,))
    assert bare == Copied((7,), [], (9,))


def test_own_tokens_are_those_that_prompts_mostly_lack() -> None:
    assert own_tokens([[1, 4], [1, 7], [1, 5], [1, 6]], [[7, 4], [7, 3], [7, 5], [7, 6]], seen=2) == {7}


def test_too_few_plans_are_refused() -> None:
    with pytest.raises(ValueError, match="too few of them"):
        choose([Copied((7,), [((8,), 1, 1)], (9,))], seen=2)
