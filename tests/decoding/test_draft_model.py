"""Tests that any draft model gives exactly greedy decoding's tokens, and a good one in fewer forwards."""

import ctypes

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from service.decoding.draft_model import ChainShape, SmallerModel
from service.decoding.early_exit import EarlyExitModel, TunedLens
from service.decoding.llama import Llama
from service.decoding.llama_config import LlamaConfig
from service.decoding.native_llama import NativeLlama
from service.decoding.statistics import Generation
from service.decoding.target import CausalLM
from service.decoding.tree import TokenTree
from tests.decoding.decode import (
    DEEP,
    EAGER,
    FREE,
    NARROW,
    DeadEnd,
    check_statistics,
    decode_drafted,
    decode_greedy,
    early_exit,
    numbers,
    traced_tokens,
)
from tests.decoding.tiny import (
    compile_grammar,
    forward_all,
    grammars,
    ids,
    prompts,
    random_model,
    random_weights,
    reference_greedy,
)

CAPACITY = 256
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


def shapes() -> st.SearchStrategy[ChainShape]:
    return st.builds(ChainShape, longest=st.integers(0, 7), p_min=st.sampled_from([0.0, 0.2, 0.5, 1.0]))


def random_lens(seed: int, config: LlamaConfig) -> TunedLens:
    generator = torch.Generator().manual_seed(seed)
    hidden = config.hidden_size
    return TunedLens(
        torch.randn((hidden, hidden), generator=generator) / hidden**0.5, torch.randn(hidden, generator=generator)
    )


def smaller(target: Llama, model: Llama, shape: ChainShape = EAGER) -> SmallerModel:
    return SmallerModel(target, model, model.new_cache(CAPACITY), shape)


def assert_greedy(draft: EarlyExitModel | SmallerModel, prompt: list[int], grammar: str, max_tokens: int) -> Generation:
    """Check that drafted and greedy tokens are equal; return the drafted generation."""
    greedy = decode_greedy(draft.target, prompt, compile_grammar(grammar), max_tokens=max_tokens)
    drafted = decode_drafted(draft, prompt, compile_grammar(grammar), max_tokens=max_tokens, trace=numbers)

    assert drafted.tokens == greedy.tokens
    assert drafted.stop_reason == greedy.stop_reason
    assert drafted.statistics.decisions == greedy.statistics.decisions
    assert drafted.statistics.forwards <= greedy.statistics.forwards
    check_statistics(drafted)
    assert traced_tokens(drafted) == drafted.tokens or not drafted.steps
    return drafted


@given(grammars(), prompts(), st.integers(0, 7), st.integers(1, 40), st.integers(1, 3), shapes(), st.booleans())
@settings(max_examples=50, deadline=None)
def test_the_first_layers_draft_what_greedy_writes(
    grammar: str, prompt: list[int], seed: int, max_tokens: int, layers: int, shape: ChainShape, lensed: bool
) -> None:
    model = random_model(seed, DEEP)
    expected, _ = reference_greedy(model, prompt, compile_grammar(grammar), max_tokens)

    draft = early_exit(model, layers, shape, random_lens(seed, DEEP) if lensed else None)

    assert assert_greedy(draft, prompt, grammar, max_tokens).tokens == expected


@given(grammars(), prompts(), st.integers(0, 7), st.integers(1, 40), shapes())
@settings(max_examples=30, deadline=None)
def test_a_smaller_model_drafts_what_greedy_writes(
    grammar: str, prompt: list[int], seed: int, max_tokens: int, shape: ChainShape
) -> None:
    assert_greedy(smaller(random_model(seed, DEEP), random_model(seed + 1), shape), prompt, grammar, max_tokens)


@given(grammars(), prompts(), st.integers(0, 7), st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_a_perfect_draft_is_never_rejected(grammar: str, prompt: list[int], seed: int, longest: int) -> None:
    """Check positions, forced runs and the draft's state: the target as its own draft always agrees with itself."""
    model = random_model(seed)
    draft = smaller(model, model, ChainShape(longest, 0.0))

    drafted = assert_greedy(draft, prompt, grammar, 40)

    assert "rejected" not in [node.status for step in drafted.steps for node in step.nodes]
    assert drafted.statistics.forwards == -(-drafted.statistics.decisions // (longest + 1))


def test_a_draft_that_doubts_stops_guessing() -> None:
    model = random_model(2, DEEP)
    sure, doubtful = ChainShape(5, 0.0), ChainShape(5, 1.0)

    eager = assert_greedy(early_exit(model, 2, sure), [3], FREE, 40)
    timid = assert_greedy(early_exit(model, 2, doubtful), [3], FREE, 40)
    silent = assert_greedy(early_exit(model, 2, ChainShape(0, 0.0)), [3], FREE, 40)

    assert eager.statistics.draft_forwards > timid.statistics.draft_forwards > 0
    assert timid.statistics.draft_forwards <= timid.statistics.forwards
    assert silent.statistics.draft_forwards == 0
    assert silent.statistics.forwards == silent.statistics.decisions


def test_forced_runs_cost_the_draft_no_forward() -> None:
    grammar = 'start: " abcd" ("e" | "f") " abcd abcd" ("a" | "g") " abcd ef ef" ("a" | "c") "gg"'

    drafted = assert_greedy(early_exit(random_model(4, DEEP), 3), [5], grammar, 30)

    assert drafted.statistics.decisions == 3
    assert drafted.statistics.draft_forwards <= 3 * drafted.statistics.forwards


@pytest.mark.parametrize("spare", [0, 1, 5])
def test_a_tight_cache_drafts_less_and_decodes_the_same(spare: int) -> None:
    model = random_model(3, DEEP)
    expected = decode_greedy(model, [1, 2], compile_grammar(FREE), max_tokens=30).tokens

    cache = model.new_cache(2 + 30 + spare)
    for draft in (early_exit(model, 1), smaller(model, random_model(1))):
        for _ in range(2):  # the second run starts from what the first has left
            drafted = decode_drafted(draft, [1, 2], compile_grammar(FREE), max_tokens=30, cache=cache)
            assert drafted.tokens == expected


def test_afterwards_the_cache_holds_what_was_read_of_the_result() -> None:
    model = random_model(3, DEEP)
    cache = model.new_cache(CAPACITY)

    drafted = decode_drafted(early_exit(model, 2), [4, 4], compile_grammar(FREE), max_tokens=40, cache=cache)

    read = [4, 4, *drafted.tokens][: cache.length]
    fresh = model.new_cache(len(read))
    model.forward(torch.tensor(read), torch.arange(len(read)), fresh)
    torch.testing.assert_close(cache.data[:, :, :, : cache.length], fresh.data, rtol=1e-4, atol=1e-4)


def test_a_dead_end_is_an_error_not_a_loop() -> None:
    with pytest.raises(ValueError, match="dead end"):
        decode_drafted(early_exit(random_model(0, DEEP), 1), ids("a"), DeadEnd(), max_tokens=4)


@pytest.mark.parametrize("layers", [0, 4, 5])
def test_an_exit_outside_the_model_is_refused(layers: int) -> None:
    with pytest.raises(ValueError, match=f"after {layers} layers is not inside a model of 4"):
        early_exit(random_model(0, DEEP), layers)


def test_a_lens_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="a lens for states of 128 does not fit a model's of 32"):
        early_exit(random_model(0, DEEP), 1, tuned_lens=random_lens(0, NARROW))


def test_only_chains_are_verified() -> None:
    model = random_model(0, DEEP)
    target, _ = early_exit(model, 1).begin(model.new_cache(8))
    tree = TokenTree([1])
    tree.add(tree.root, 2)
    tree.add(tree.root, 3)

    with pytest.raises(ValueError, match="self-speculation verifies chains"):
        target.forward([target], [tree])


def test_a_chain_that_nothing_drafted_is_read_whole() -> None:
    model = random_model(0, DEEP)
    cache = model.new_cache(8)
    target, _ = early_exit(model, 1).begin(cache)

    target.forward([target], [TokenTree(TOKENS[:4])])
    target.commit([])
    target.forward([target], [TokenTree(TOKENS[4:6], start=4)])
    target.commit([])

    fresh = model.new_cache(6)
    model.forward(torch.tensor(TOKENS[:6]), torch.arange(6), fresh)
    torch.testing.assert_close(cache.data[:, :, :, :6], fresh.data[:, :, :, :6], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_stopping_between_layers_changes_no_bit(dtype: torch.dtype, layers: int) -> None:
    model = random_model(1, DEEP, dtype)

    assert torch.equal(in_two_parts(model, TOKENS, layers), forward_all(model, TOKENS))


@pytest.mark.parametrize("layers", [1, 2])
def test_stopping_between_int8_layers_changes_no_bit(library: ctypes.CDLL, layers: int) -> None:
    model = NativeLlama(NARROW, random_weights(NARROW, seed=1), library)

    assert torch.equal(in_two_parts(model, TOKENS, layers), forward_all(model, TOKENS))


def in_two_parts(model: CausalLM, tokens: list[int], layers: int) -> torch.Tensor:
    """Return hidden states [N, H] of a sequence: the first layers token by token, the rest at once."""
    cache = model.new_cache(len(tokens))
    positions = torch.arange(len(tokens))
    states = []
    for position, token in enumerate(tokens):
        cache.length = position
        embedded = model.embed(torch.tensor([token]))
        states.append(model.run_layers(embedded, torch.tensor([position]), cache, range(layers)))
    cache.length = 0
    rest = range(layers, model.config.num_layers)
    return model.final_norm(model.run_layers(torch.cat(states), positions, cache, rest))


@given(st.data(), st.integers(0, 7), st.integers(1, 2), shapes())
@settings(max_examples=15, deadline=None)
def test_int8_drafts_what_greedy_writes(
    library: ctypes.CDLL, data: st.DataObject, seed: int, layers: int, shape: ChainShape
) -> None:
    model = NativeLlama(NARROW, random_weights(NARROW, seed=seed), library)
    tuned_lens = random_lens(seed, NARROW).with_product(model.linear)

    assert_greedy(early_exit(model, layers, shape, tuned_lens), data.draw(prompts()), data.draw(grammars()), 30)
