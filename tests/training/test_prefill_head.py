"""Tests that the prefill head learns phrases and copies, and that the service loads its files."""

import json
from pathlib import Path

import pytest
import torch

from service.decoding.prefill_head import PrefillHead, load_prefill_head_weights
from service.weights.model_folder import PrefillHeadCard
from training import prefill_head
from training.positions import Positions
from training.prefill_head import NOTHING, Beginnings, choose_phrases, train_prefill_head
from training.settings import PrefillHeadSettings, TrainingSettings

BOS, END, FIND, TYPE, BRAND, WHERE = range(6)
WORDS = range(6, 30)  # from 18 on they are brands


def told(count: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return prompts of three words, and plans: the first brand after BRAND; without one the last word after TYPE."""
    generator = torch.Generator().manual_seed(1)
    prompts, plans = [], []
    for _ in range(count):
        words = [int(word) for word in torch.randint(WORDS.start, WORDS.stop, (3,), generator=generator)]
        brands = [word for word in words if word >= 18]
        prompts.append([BOS, *words, END])
        plans.append([FIND, BRAND, brands[0], END] if brands else [FIND, TYPE, words[-1], END])
    return prompts, plans


def test_phrases_are_what_plans_begin_with_and_prompts_do_not_hold() -> None:
    prompts, plans = told(200)

    assert set(choose_phrases(prompts, plans, 8)) == {(FIND, BRAND), (FIND, TYPE)}
    assert len(choose_phrases(prompts, plans, 1)) == 1


def test_what_follows_a_phrase_is_copied_only_if_the_prompt_holds_it() -> None:
    known = Beginnings.of([[BOS, 7, 8, END]] * 3, [[FIND, 8], [FIND, 9], [WHERE]], [(FIND,), (WHERE,)])

    assert known.phrase.tolist() == [0, 0, 1]
    assert known.copied.tolist() == [8, NOTHING, NOTHING]
    assert known.mask.tolist() == [[False, True, True]] * 3


def test_a_head_learns_to_point_and_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts, plans = told(1500)
    embedding = 0.3 * torch.randn((30, 32), generator=torch.Generator().manual_seed(2))
    nothing = torch.empty(0, dtype=torch.int64)
    positions = Positions(
        hidden=torch.empty(0),
        tokens=torch.tensor(plans).flatten(),
        lengths=torch.tensor([len(plan) for plan in plans]),
        forced=nothing,
        legal=nothing,
        legal_counts=nothing,
        prompts=torch.tensor(prompts).flatten(),
        prompt_lengths=torch.tensor([len(prompt) for prompt in prompts]),
        prompt_hidden=torch.empty(0),
    )

    class Spelling:
        def decode(self, tokens: list[int]) -> str:
            return " ".join(map(str, tokens))

    monkeypatch.setattr(prefill_head, "load_tokenizer", lambda *_: Spelling())
    monkeypatch.setattr(prefill_head, "lm_head", lambda *_: embedding)
    chosen = PrefillHeadSettings(features=32, epochs=12, learning_rate=1e-2, p_min=0.5)
    settings = TrainingSettings(data=tmp_path, cache=tmp_path, work=tmp_path, output=tmp_path, prefill_head=chosen)

    phrase, whole = train_prefill_head(positions, settings, tmp_path)

    assert phrase > 0.95
    assert whole > 0.9
    card = PrefillHeadCard.model_validate_json((tmp_path / "prefill_head.json").read_text(encoding="utf-8"))
    assert card.p_min == 0.5
    phrases = [tuple(map(int, text.split())) for text in card.phrases]
    head = PrefillHead(phrases, load_prefill_head_weights(tmp_path / "prefill_head.safetensors"), 0.5)
    guessed = head.guess([BOS, 7, 20, 9, END], lambda tokens: embedding[tokens], lambda _: False)
    assert json.dumps(guessed.branches, default=lambda node: node.branches) == json.dumps({FIND: {BRAND: {20: {}}}})
