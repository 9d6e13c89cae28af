"""Tests of the prefill head: it points at phrases and words of the prompt, and drafts nothing when unsure."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from service.decoding.prefill_draft import PrefillDraft
from service.decoding.prefill_head import MOST_POSITIONS, PrefillHead, PrefillHeadWeights, load_prefill_head_weights

WIDTH = 6  # of embeddings: token n is the nth unit vector
FIND, TYPE, BRAND, SHOES, NIKE, REST = range(WIDTH)
PHRASES = [(FIND, TYPE), (FIND, BRAND)]
SURE = 20.0


def embed(tokens: Tensor) -> Tensor:
    return torch.eye(WIDTH)[tokens]


def belongs(token: int) -> bool:
    return token == REST


def weights(features: int = 1) -> PrefillHeadWeights:
    """Return weights with one feature, NIKE: it makes the second phrase, copied from there, likely."""
    around = torch.zeros(features, 3 * WIDTH)
    around[0, WIDTH + NIKE] = SURE
    copy = torch.zeros(len(PHRASES), features)
    copy[1, 0] = 1.0
    return PrefillHeadWeights(
        around=around,
        mean=torch.zeros(features, WIDTH),
        position=torch.zeros(MOST_POSITIONS, features),
        bias=torch.zeros(features),
        copy=copy,
        alone=torch.zeros(len(PHRASES), features),
        summary=torch.zeros(len(PHRASES), WIDTH),
        first=torch.zeros(len(PHRASES), WIDTH),
        prior=torch.zeros(len(PHRASES)),
    )


def sequences(prefill_draft: PrefillDraft) -> list[tuple[int, ...]]:
    """Return every path of the trie to a leaf."""
    paths = [(token, *rest) for token, branch in prefill_draft.branches.items() for rest in sequences(branch) or [()]]
    return sorted(paths)


def guess(prompt: list[int], least: float = 0.4) -> list[tuple[int, ...]]:
    return sequences(PrefillHead(PHRASES, weights(), least).guess(prompt, embed, belongs))


def test_it_copies_the_word_it_points_at() -> None:
    assert guess([0, SHOES, NIKE, SHOES, 0]) == [(FIND, BRAND, NIKE)]


def test_a_word_of_several_tokens_is_copied_whole() -> None:
    assert guess([0, SHOES, NIKE, REST, SHOES, 0]) == [(FIND, BRAND, NIKE, REST)]
    assert guess([0, SHOES, NIKE, REST, REST, REST, SHOES, 0]) == [(FIND, BRAND, NIKE)], (
        "its rows cost more than a step"
    )


def test_what_phrases_share_may_be_likely_where_none_of_them_is() -> None:
    assert guess([0, SHOES, SHOES, 0], least=0.6) == [(FIND,)]


def test_nothing_is_drafted_where_nothing_is_likely() -> None:
    assert guess([0, NIKE]) == [], "no word can be pointed at"
    assert PrefillHead(PHRASES, weights(), 0.4).at_least(0.999).guess([0, SHOES, 0], embed, belongs).branches == {
        FIND: PrefillDraft()
    }


def test_only_the_start_of_a_long_prompt_is_read() -> None:
    prompt = [0, *[SHOES] * (2 * MOST_POSITIONS), NIKE, 0]

    assert guess(prompt, least=0.6) == [(FIND,)]


def test_weights_for_other_phrases_are_refused() -> None:
    with pytest.raises(ValueError, match="3 phrases, and weights for 2"):
        PrefillHead([*PHRASES, (SHOES,)], weights(), 0.4)


def test_a_file_with_other_parts_is_refused_by_name(tmp_path: Path) -> None:
    save_file({"around": torch.zeros(1, 3), "lens": torch.zeros(1)}, tmp_path / "prefill_head.safetensors")

    with pytest.raises(ValueError, match=r"prefill_head\.safetensors is no prefill head: .*lens"):
        load_prefill_head_weights(tmp_path / "prefill_head.safetensors")
