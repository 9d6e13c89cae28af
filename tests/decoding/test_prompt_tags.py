"""Drafts by the tags of a prompt: they never change the answer, and save forwards where the tags are right."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from service.decoding.generation import generate
from service.decoding.medusa import MedusaProposer
from service.decoding.prompt_tags import (
    BEGINS,
    GOES_ON,
    LEFT_OUT,
    Phrase,
    Place,
    PromptTagger,
    PromptTagsProposer,
    TaggedPrompt,
    TaggerWeights,
)
from service.decoding.proposer import NO_PROPOSER, Budget
from service.decoding.tree import MedusaTree, TokenTree
from service.engines.neuron.forward import ForwardShape
from tests.decoding.decode import check_statistics
from tests.decoding.tiny import CONFIG, choices, compile_grammar, encode, grammars, prompts
from tests.engines.neuron.fake_compiled import FakeCompiled, greedy

HEADS, FEATURES = 3, 4
FIND, TYPE, BRAND, ANY = 101, 102, 103, 104
PROMPT = [1, 11, 12, 13, 14, 2]


def random_tagger(phrases: list[Phrase], width: int, seed: int, p_min: float = 0.0) -> PromptTagger:
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    kinds, ends = len(phrases) + BEGINS, 2 * len(phrases)
    weights = TaggerWeights(
        random(FEATURES, width), random(FEATURES), random(FEATURES, FEATURES),
        random(FEATURES, FEATURES, 3), random(FEATURES), random(FEATURES, FEATURES, 3), random(FEATURES),
        random(kinds, FEATURES), random(kinds), random(ends, 3 * FEATURES), random(ends),
    )  # fmt: skip
    return PromptTagger(tuple(phrases), tuple(phrases), tuple(phrases), weights, p_min)


def tagged(*tags: int, closes: float = 0.9) -> TaggedPrompt:
    """Return what tags of PROMPT say, each with 0.8 of the probability."""
    tagger = random_tagger([(TYPE,), (BRAND,)], 3, 0)
    tagger = replace(tagger, openings=((FIND,), (FIND, FIND)), closings=((ANY,), ()))
    shares = np.full((len(PROMPT), BEGINS + 2), 0.2 / (BEGINS + 1), dtype=np.float32)
    shares[range(len(PROMPT)), tags] = 0.8
    return TaggedPrompt(PROMPT, tagger, shares, (FIND,), (ANY,), closes)


# 11 left out, 12 13 a type, 14 a brand
RIGHT = (LEFT_OUT, LEFT_OUT, BEGINS, GOES_ON, BEGINS + 1, LEFT_OUT)
ANSWER = [FIND, TYPE, 12, 13, BRAND, 14, ANY]


def drafted(tags: TaggedPrompt, place: Place | None) -> list[int]:
    tokens = list[int]()
    while place is not None and (following := tags.next(place)) is not None:
        tokens.append(following[0])
        place = tags.walk(place, tokens[-1:])
    return tokens


@pytest.mark.parametrize("written", range(len(ANSWER) + 1))
def test_from_wherever_the_text_stands_the_rest_is_drafted(written: int) -> None:
    tags = tagged(*RIGHT)
    assert drafted(tags, tags.walk(Place(), ANSWER[:written])) == ANSWER[written:]


def test_where_the_model_chose_otherwise_the_draft_goes_on_from_there() -> None:
    tags = tagged(*RIGHT)
    assert drafted(tags, tags.walk(Place(), [FIND, BRAND])) == ANSWER[2:], "another facet for the same words"
    assert drafted(tags, tags.walk(Place(), [FIND, TYPE, 11, 12])) == ANSWER[3:], "a longer value"
    assert drafted(tags, tags.walk(Place(), [FIND, TYPE, 13])) == ANSWER[4:], "a later beginning"
    assert tags.walk(Place(), [FIND, TYPE, 14, TYPE, 12]) is None, "nothing is copied backwards"


def test_an_unlikely_chain_is_not_drafted() -> None:
    tags = tagged(*RIGHT)
    likely = 1.0
    place: Place | None = Place()
    for token in ANSWER:
        assert place is not None
        following = tags.next(place)
        assert following is not None
        assert following[0] == token
        assert 0 < following[1] <= 1
        likely *= following[1]
        place = tags.walk(place, [token])
    assert likely == pytest.approx(0.8**3 * 0.9, rel=0.5)


@given(
    grammars(), prompts(), choices(HEADS), st.integers(1, 40), st.integers(1, 24), st.integers(0, 7), st.booleans(),
    st.sampled_from((0.0, 0.3)), st.lists(st.lists(st.integers(1, CONFIG.vocab_size - 1), max_size=2), min_size=1),
)  # fmt: skip
@settings(max_examples=120, deadline=None)
def test_any_tagger_gives_greedy_s_tokens(
    grammar: str,
    prompt: list[int],
    tree: list[list[int]],
    max_tokens: int,
    rows: int,
    seed: int,
    leaves: bool,
    p_min: float,
    phrases: list[list[int]],
) -> None:
    model = FakeCompiled(ForwardShape(HEADS, rows, 24, seq_len=160), CONFIG.vocab_size, seed)
    expected = greedy(model, prompt, compile_grammar(grammar), max_tokens)
    tagger = random_tagger([tuple(phrase) for phrase in phrases], model.width, seed, p_min)
    target = model.target()
    heads = MedusaProposer(target, MedusaTree.from_choices(tree, HEADS))

    for then in (NO_PROPOSER, heads):
        proposer = PromptTagsProposer(prompt, tagger, target.prompt_states, then, leaves=leaves)
        found = generate(target, proposer, prompt, compile_grammar(grammar), max_tokens=max_tokens)
        check_statistics(found)
        assert found.tokens == expected


def test_the_chain_comes_before_the_other_s_guesses_and_the_grammar_stands_where_it_stood() -> None:
    constraint = compile_grammar("start: /[a-g ]{2,40}/")
    a, b, c, d = (encode(letter)[0] for letter in "abcd")
    prompt = [1, b, c, d, 2]
    tagger = random_tagger([(a,)], 3, 0)
    always = torch.tensor([0.0, 9.0, 5.0])  # goes on
    tagger = replace(tagger, weights=replace(tagger.weights, tags=torch.zeros(3, FEATURES), tags_bias=always))
    tree = TokenTree([b], start=9, text=[a, b])

    PromptTagsProposer(prompt, tagger, lambda: torch.zeros(5, 3), NO_PROPOSER).propose(tree, constraint, Budget(9, 3))

    assert tree.tokens == [b, c, d], "as the prompt goes on, and no more than there is room for"
    assert constraint.legal().size > 1


def test_states_of_a_prompt_that_were_not_seen_draft_nothing() -> None:
    tagger, tree = random_tagger([(3,)], 3, 0), TokenTree([4], start=9, text=[4])
    states: list[Tensor | None] = [None, torch.zeros(2, 3)]
    for known in states:
        proposer = PromptTagsProposer(PROMPT, tagger, lambda known=known: known, NO_PROPOSER)  # type: ignore[misc]
        proposer.propose(tree, compile_grammar("start: /[a-g ]{2,40}/"), Budget(9, 9))
        assert tree.tokens == [4]
