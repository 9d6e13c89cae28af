"""Tests of prefill drafts: they never change the answer, and save forwards where they are right."""

from concurrent.futures import Future

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.decoding.constraint import Constraint
from service.decoding.generation import generate
from service.decoding.prefill_draft import PrefillDraft, PrefillProposer
from service.decoding.proposer import NO_PROPOSER, Budget
from service.decoding.target import LlamaTarget
from service.decoding.tree import MedusaTree, TokenTree
from tests.decoding.decode import decode_greedy, decode_medusa, numbers
from tests.decoding.tiny import CONFIG, compile_grammar, grammars, prompts, random_heads, random_model

NO_TREE = MedusaTree.from_choices([], 2)
tokens = st.integers(1, CONFIG.vocab_size - 1)


@given(
    grammars(),
    prompts(),
    st.lists(st.lists(tokens, min_size=1, max_size=4), max_size=8),
    st.integers(1, 30),
    st.integers(0, 5),
)
@settings(max_examples=150, deadline=None)
def test_any_prefill_draft_decodes_what_greedy_does(
    grammar: str, prompt: list[int], sequences: list[list[int]], max_tokens: int, seed: int
) -> None:
    model = random_model(seed)
    greedy = decode_greedy(model, prompt, compile_grammar(grammar), max_tokens=max_tokens)
    # Right beginnings, and wrong ones.
    prefill_draft = PrefillDraft.from_sequences([*sequences, greedy.tokens[:3]])
    medusa = decode_medusa(
        model,
        random_heads(seed, 2),
        MedusaTree.from_choices([[0], [1], [0, 0]], 2),
        prompt,
        compile_grammar(grammar),
        max_tokens=max_tokens,
        prefill_draft=prefill_draft,
        trace=numbers,
    )

    assert medusa.tokens == greedy.tokens
    assert medusa.stop_reason == greedy.stop_reason
    assert sum(medusa.statistics.accepted_per_step) == (len(medusa.tokens) if medusa.statistics.forwards else 0)
    assert medusa.statistics.decisions == greedy.statistics.decisions


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_right_prefill_draft_saves_its_length_in_forwards(depth: int) -> None:
    free = "start: /[a-g ]{30}/"
    model = random_model(3)
    greedy = decode_greedy(model, [5, 6], compile_grammar(free), max_tokens=8)
    prefill_draft = PrefillDraft.from_sequences([greedy.tokens[:depth]])
    medusa = decode_medusa(
        model, random_heads(0, 2), NO_TREE, [5, 6], compile_grammar(free), max_tokens=8, prefill_draft=prefill_draft
    )

    assert medusa.tokens == greedy.tokens
    assert medusa.statistics.forwards == greedy.statistics.forwards - depth


@pytest.mark.parametrize("room", [0, 1, 2, 3])
def test_beside_a_grammar_that_is_being_compiled_all_the_room_is_used(room: int) -> None:
    tree = TokenTree([4, 5], unchecked=True)
    draft = PrefillProposer(PrefillDraft.from_sequences([[1, 2], [3]]), NO_PROPOSER)

    draft.propose(tree, Future(), Budget(deepest=9, most_nodes=2 + room))

    assert tree.tokens == [4, 5, 1, 2, 3][: 2 + room]


@given(grammars(), prompts(), st.integers(1, 3), st.integers(0, 5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_it_goes_with_no_other_drafting_too(
    grammar: str, prompt: list[int], depth: int, seed: int, compiling: bool
) -> None:
    model = random_model(seed)
    greedy = decode_greedy(model, prompt, compile_grammar(grammar), max_tokens=20)
    made: Future[Constraint] = Future()
    made.set_result(compile_grammar(grammar))
    proposer = PrefillProposer(PrefillDraft.from_sequences([greedy.tokens[:depth], [3, 1]]), NO_PROPOSER)

    generation = generate(
        LlamaTarget(model, model.new_cache(len(prompt) + 60)),
        proposer,
        prompt,
        made if compiling else compile_grammar(grammar),
        max_tokens=20,
    )

    assert generation.tokens == greedy.tokens
    # What a grammar forces from the start is read with the prompt only where the grammar is compiled by then.
    assert generation.statistics.forwards <= greedy.statistics.forwards + compiling


def test_sequences_that_begin_alike_share_their_nodes() -> None:
    prefill_draft = PrefillDraft.from_sequences([[1, 2], [1, 3], [4]])

    assert set(prefill_draft.branches) == {1, 4}
    assert set(prefill_draft.branches[1].branches) == {2, 3}
