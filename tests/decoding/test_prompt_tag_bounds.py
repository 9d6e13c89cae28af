"""What a tagger computes and drafts, to the number: by loops over positions, and at the bounds of a draft."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from service.decoding.prompt_tags import (
    BEGINS,
    GOES_ON,
    LEFT_OUT,
    MOST_LEAVES,
    Phrase,
    Place,
    PromptTagger,
    PromptTagsProposer,
    TaggedPrompt,
    TaggerWeights,
)
from service.decoding.proposer import NO_PROPOSER, Budget
from service.decoding.tree import TokenTree
from tests.decoding.test_prompt_tags import (
    ANY,
    BRAND,
    FEATURES,
    FIND,
    PROMPT,
    RIGHT,
    TYPE,
    random_tagger,
    tagged,
)  # fmt: skip
from tests.decoding.tiny import compile_grammar, encode

A, B, C, D, E = (encode(letter)[0] for letter in "abcde")
LETTERS = "start: /[a-g ]{2,40}/"


def convolved(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return a convolution over positions [T, R], by its definition; beyond both ends there is nothing."""
    middle = weight.shape[-1] // 2
    rows = []
    for position in range(len(features)):
        row = bias.clone()
        for offset in range(weight.shape[-1]):
            if 0 <= (at := position + offset - middle) < len(features):
                row += weight[:, :, offset] @ features[at]
        rows.append(row)
    return torch.stack(rows)


def scored(weights: TaggerWeights, states: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores of tags and ends of states [T, H], as the class says that they are."""
    features = F.silu(torch.stack([weights.inner @ state + weights.inner_bias for state in states]))
    of_mean = weights.mean @ features.mean(0)
    features = features + F.silu(convolved(features, weights.near, weights.near_bias) + of_mean)
    features = features + F.silu(convolved(features, weights.far, weights.far_bias))
    summary = torch.cat([features.mean(0), features.max(0).values, features[-1]])
    return features @ weights.tags.T + weights.tags_bias, weights.ends @ summary + weights.ends_bias


@pytest.mark.parametrize("widths", [(3, 3), (5, 3), (1, 7)])
def test_prompts_of_several_lengths_are_scored_as_each_is_alone(widths: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(3)
    near, far = (torch.randn(FEATURES, FEATURES, width, generator=generator) for width in widths)
    weights = replace(random_tagger([(A,), (B,)], 6, 5).weights, near=near, far=far)
    prompts = [torch.randn(length, 6, generator=generator) for length in (7, 1, 4)]
    states, mask = torch.randn(3, 7, 6, generator=generator), torch.zeros(3, 7)
    for row, prompt in enumerate(prompts):
        states[row, : len(prompt)], mask[row, : len(prompt)] = prompt, 1
    tags, ends = weights.scores(states, mask)
    for row, prompt in enumerate(prompts):
        expected_tags, expected_ends = scored(weights, prompt)
        assert torch.allclose(tags[row, : len(prompt)], expected_tags, rtol=1e-3, atol=1e-3)
        assert torch.allclose(ends[row], expected_ends, rtol=1e-3, atol=1e-3)


def test_a_prompt_is_read_as_its_scores_say() -> None:
    tagger = random_tagger([(TYPE,), (BRAND,)], 6, 5)
    states = torch.randn(len(PROMPT), 6, generator=torch.Generator().manual_seed(1))
    tags, ends = scored(tagger.weights, states)
    read = tagger.read(PROMPT, states.half().float())
    assert np.allclose(read._tags, tags.softmax(-1).numpy(), atol=1e-2)
    phrases = ((TYPE,), (BRAND,))
    assert (read._opening, read._closing) == (phrases[int(ends[:2].argmax())], phrases[int(ends[2:].argmax())])
    assert read._closes == pytest.approx(float(ends[2:].softmax(0).max()), abs=1e-2)
    stricter = tagger.at_least(0.25)
    assert (tagger.hidden_size, stricter.p_min) == (6, 0.25)
    assert stricter.weights is tagger.weights


@pytest.mark.parametrize("changes", [{"phrases": ((A,),)}, {"openings": ()}, {"closings": ((A,), (B,), (C,))}])
def test_phrases_without_weights_are_refused(changes: dict[str, tuple[Phrase, ...]]) -> None:
    tagger = random_tagger([(A,), (B,)], 6, 5)
    with pytest.raises(ValueError, match=r"need weights for \(\d, \d\), and there are \(4, 4\)"):
        replace(tagger, **changes)


def test_each_token_is_as_likely_as_its_tags_say() -> None:
    """A tag that is not the likeliest has 0.2 / 3, so none begins at a token that is left out by 1 - 0.4 / 3."""
    tags, none = tagged(*RIGHT, closes=0.9), 1 - 0.4 / 3
    place: Place | None = Place()
    found = list[float]()
    while place is not None and (following := tags.next(place)) is not None:
        found.append(following[1])
        place = tags.walk(place, [following[0]])
    assert found == pytest.approx([1.0, none * 0.8, none, 0.8, 0.8, 1.0, none * 0.9], rel=1e-5)


def two_words(*tags: int, prompt: list[int]) -> TaggedPrompt:
    """Return what tags of a prompt say where phrases, opening and closing have two tokens each."""
    tagger = random_tagger([(TYPE, BRAND), (BRAND,)], 3, 0)
    tagger = replace(tagger, openings=((FIND, TYPE), (FIND,)), closings=((ANY, FIND), ()))
    shares = np.full((len(prompt), BEGINS + 2), 0.1, dtype=np.float32)
    shares[range(len(prompt)), tags] = 0.7
    return TaggedPrompt(prompt, tagger, shares, (FIND, TYPE), (ANY, FIND), 0.9)


def test_phrases_of_several_tokens_are_said_to_their_end() -> None:
    tags = two_words(LEFT_OUT, BEGINS, LEFT_OUT, prompt=[1, 11, 2])
    answer = [FIND, TYPE, TYPE, BRAND, 11]
    place: Place | None = Place()
    shares = list[float]()
    for token in answer:
        assert place is not None
        following = tags.next(place)
        assert following is not None
        assert following[0] == token
        shares.append(following[1])
        place = tags.walk(place, [token])
    assert shares == pytest.approx([1.0, 1.0, 0.7, 1.0, 1.0])
    for token, share in ((ANY, 0.9 * 0.8), (FIND, 1.0)):
        assert place is not None
        assert tags.next(place) == (token, pytest.approx(share))
        place = tags.walk(place, [token])
    assert place is not None
    assert tags.next(place) is None, "the text has ended"


def test_after_an_opening_that_the_tags_did_not_expect_the_draft_goes_on() -> None:
    tags = tagged(*RIGHT)
    for opening in ([FIND], [FIND, FIND]):  # the longest of those that fit is the opening
        place = tags.walk(Place(), opening)
        assert place is not None
        assert tags.next(place) == (TYPE, pytest.approx((1 - 0.4 / 3) * 0.8))
    place = tags.walk(Place(), [BRAND])
    assert place is not None
    assert tags.next(place) == (12, pytest.approx(1 - 0.4 / 3)), "without any opening"


@pytest.mark.parametrize(("second", "end"), [(LEFT_OUT, 2), (BEGINS, 4)])
def test_a_word_that_the_prompt_has_twice_is_copied_where_the_tags_say(second: int, end: int) -> None:
    tags = two_words(LEFT_OUT, LEFT_OUT, LEFT_OUT, second, LEFT_OUT, prompt=[1, 11, 12, 11, 2])
    assert tags.walk(Place(), [FIND, TYPE, 11]) == Place(end, copies=True, begun=True)
    assert tags.walk(Place(), [FIND, TYPE, 99]) is None
    assert tags.walk(None, [11]) is None


def test_copying_ends_with_the_prompt() -> None:
    tags = two_words(LEFT_OUT, BEGINS, GOES_ON, prompt=[1, 11, 12])
    place = tags.walk(Place(), [FIND, TYPE, TYPE, BRAND, 11, 12])
    assert place == Place(3, copies=True, begun=True)
    assert tags.next(place) == (ANY, pytest.approx(0.9))
    assert tags.walk(place, [12]) is None, "nothing is left to copy"


def going_on(p_min: float = 0.0) -> PromptTagger:
    """Return a tagger by which every token of the prompt goes on; with it the next has 0.982 of the probability."""
    tagger = random_tagger([(A,)], 3, 0, p_min)
    always = torch.tensor([0.0, 9.0, 5.0])
    return replace(tagger, weights=replace(tagger.weights, tags=torch.zeros(3, FEATURES), tags_bias=always))


def draft(
    tree: TokenTree, p_min: float = 0.0, budget: Budget | None = None, then: Any = NO_PROPOSER, **given: Any
) -> list[int]:
    constraint = compile_grammar(LETTERS)
    prompt = [1, B, C, D, B, E, 2]
    states = torch.zeros(len(prompt) + 2, 3)  # more are known than the prompt's
    proposer = PromptTagsProposer(prompt, going_on(p_min), lambda: states, then, **given)
    before = constraint.legal()
    proposer.propose(tree, constraint, budget or Budget(9, 99))
    assert constraint.legal().tolist() == before.tolist(), "the grammar stands where it stood"
    return tree.tokens


@pytest.mark.parametrize(("p_min", "length"), [(0.983, 0), (0.981, 1), (0.95, 2), (0.925, 4), (0.0, 6)])
def test_a_chain_goes_as_far_as_it_is_likely(p_min: float, length: int) -> None:
    """Down to the prompt's end, which is B's token here, and the closing."""
    assert draft(TokenTree([B], start=9, text=[A, B]), p_min) == [B, C, D, B, E, B, A][: length + 1]


@pytest.mark.parametrize(
    ("budget", "length"), [(Budget(2, 99), 2), (Budget(9, 4), 3), (Budget(0, 99), 0), (Budget(9, 1), 0)]
)
def test_a_chain_has_the_room_that_it_is_given(budget: Budget, length: int) -> None:
    assert draft(TokenTree([B], start=9, text=[A, B]), budget=budget) == [B, C, D, B, E][: length + 1]


class Guesses:
    """Drafts these tokens below the root, one beside the other."""

    def __init__(self, *tokens: int) -> None:
        self._tokens = tokens

    def propose(self, tree: TokenTree, *_: object) -> None:
        for token in self._tokens:
            if tree.child(tree.root, token) is None:
                tree.add(tree.root, token)


@pytest.mark.parametrize("leaves", [False, True])
def test_another_s_guesses_are_continued_where_rows_cost_nothing(leaves: bool) -> None:
    tree = TokenTree([A], start=9, text=[A])
    tokens = draft(tree, budget=Budget(3, 99), then=Guesses(B, D), leaves=leaves)
    assert tokens[:4] == [A, A, B, D], "the closing, for nothing begins, and the other's"
    assert (tokens[4:], tree.parents[4:]) == (([C, D, B, E], [2, 4, 3, 6]) if leaves else ([], []))


def test_so_many_guesses_are_continued_and_no_more() -> None:
    tree = TokenTree([A], start=9, text=[A])
    for _ in range(MOST_LEAVES + 1):
        tree.add(tree.root, D)
    draft(tree, leaves=True)
    assert tree.tokens.count(E) == MOST_LEAVES


def test_while_the_prompt_is_read_the_other_drafts_alone() -> None:
    assert draft(TokenTree([B], start=0, text=[A, B]), then=Guesses(D)) == [B, D]
    assert draft(TokenTree([B], start=9, text=[99]), then=Guesses(D)) == [B, D], "the text is no copy of the prompt"
