"""Tests of a grammar still being compiled during prefill: the same tokens, drafted without it."""

from concurrent.futures import Future

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.decoding.constraint import Constraint, GrammarError
from service.decoding.prefill_draft import NO_PREFILL_DRAFT, PrefillDraft
from service.decoding.tree import MedusaTree
from tests.decoding.decode import DEEP, FREE, decode_greedy, decode_medusa, numbers
from tests.decoding.tiny import CONFIG, compile_grammar, encode, grammars, prompts, random_heads, random_model

TREE = MedusaTree.from_choices([[0], [1], [0, 0]], 2)
tokens = st.integers(1, CONFIG.vocab_size - 1)


def pending(lark: str) -> Future[Constraint]:
    made: Future[Constraint] = Future()
    made.set_result(compile_grammar(lark))
    return made


@given(
    grammars(),
    prompts(),
    st.lists(st.lists(tokens, min_size=1, max_size=4), max_size=6),
    st.integers(0, 30),
    st.integers(0, 5),
)
@settings(max_examples=200, deadline=None)
def test_whatever_is_drafted_unchecked_the_tokens_are_greedys(
    grammar: str, prompt: list[int], sequences: list[list[int]], max_tokens: int, seed: int
) -> None:
    model = random_model(seed)
    greedy = decode_greedy(model, prompt, compile_grammar(grammar), max_tokens=max_tokens)
    # Beginnings that are right, some going beyond the grammar's end, and wrong ones.
    prefill_draft = PrefillDraft.from_sequences([*sequences, [*greedy.tokens[:5], 3, 4]])
    medusa = decode_medusa(
        model,
        random_heads(seed, 2),
        TREE,
        prompt,
        pending(grammar),
        max_tokens=max_tokens,
        prefill_draft=prefill_draft,
        trace=numbers,
    )

    assert medusa.tokens == greedy.tokens
    assert medusa.stop_reason == greedy.stop_reason
    assert medusa.statistics.decisions == greedy.statistics.decisions
    assert sum(medusa.statistics.accepted_per_step) == (len(medusa.tokens) if medusa.statistics.forwards else 0)


@given(grammars(), prompts(), st.integers(0, 5), st.booleans())
@settings(max_examples=100, deadline=None)
def test_greedy_decoding_may_be_given_one(grammar: str, prompt: list[int], seed: int, fast_forward: bool) -> None:
    model = random_model(seed, DEEP)
    greedy = decode_greedy(model, prompt, compile_grammar(grammar), max_tokens=30)

    alone = decode_greedy(model, prompt, pending(grammar), max_tokens=30, fast_forward=fast_forward)

    assert alone.tokens == greedy.tokens


@pytest.mark.parametrize(
    "prefill_draft", [NO_PREFILL_DRAFT, PrefillDraft.from_sequences([encode(" abcd ef")])], ids=["plain", "drafted"]
)
def test_what_is_forced_from_the_start_costs_one_forward_where_it_was_foreseen(prefill_draft: PrefillDraft) -> None:
    """Check the cost of a forced start: the grammar was not ready before prefill; if it were, it would be free."""
    generation = decode_medusa(
        random_model(0),
        random_heads(0, 2),
        TREE,
        [1, 2],
        pending('start: " abcd ef"'),
        max_tokens=9,
        prefill_draft=prefill_draft,
    )

    assert generation.tokens == encode(" abcd ef")
    assert generation.statistics.forwards == 1
    assert generation.statistics.decisions == 0
    assert generation.stop_reason == "finished"


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_right_prefill_draft_saves_its_length_in_forwards(depth: int) -> None:
    model = random_model(3)
    greedy = decode_greedy(model, [5, 6], compile_grammar(FREE), max_tokens=8)
    prefill_draft = PrefillDraft.from_sequences([greedy.tokens[:depth]])
    none = MedusaTree.from_choices([], 2)
    medusa = decode_medusa(
        model, random_heads(0, 2), none, [5, 6], pending(FREE), max_tokens=8, prefill_draft=prefill_draft
    )

    assert medusa.tokens == greedy.tokens
    assert medusa.statistics.forwards == greedy.statistics.forwards - depth


def test_a_grammar_that_does_not_compile_is_said_after_the_prompt() -> None:
    broken: Future[Constraint] = Future()
    broken.set_exception(GrammarError("no rule start"))

    with pytest.raises(GrammarError, match="no rule start"):
        decode_greedy(random_model(0), [1], broken, max_tokens=4)


def test_cancelling_before_the_prompt_is_read_waits_for_no_grammar() -> None:
    never: Future[Constraint] = Future()

    generation = decode_greedy(random_model(0), [1], never, max_tokens=4, cancelled=lambda: True)

    assert generation.stop_reason == "cancelled"
    assert generation.statistics.forwards == 0
