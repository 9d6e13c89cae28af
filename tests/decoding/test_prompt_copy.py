"""Rows copied from the prompt: they never change the answer, and save forwards where it repeats the prompt's words."""

from concurrent.futures import Future
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.decoding.generation import generate
from service.decoding.medusa import MedusaProposer
from service.decoding.prompt_copy import PromptCopyProposer
from service.decoding.proposer import NO_PROPOSER, Budget
from service.decoding.tree import MedusaTree, TokenTree
from service.engines.neuron.forward import ForwardShape
from tests.decoding.decode import check_statistics
from tests.decoding.tiny import CONFIG, choices, compile_grammar, encode, grammars, prompts
from tests.engines.neuron.fake_compiled import FakeCompiled, greedy

HEADS = 3


def compiled(rows: int, seed: int) -> FakeCompiled:
    shape = ForwardShape(HEADS, rows, max_context_length=24, seq_len=160)
    return FakeCompiled(shape, CONFIG.vocab_size, seed)


@given(
    grammars(), prompts(), choices(HEADS), st.integers(1, 40), st.integers(1, 24), st.integers(0, 7),
    st.integers(1, 9),
)  # fmt: skip
@settings(max_examples=120, deadline=None)
def test_any_copies_give_greedy_s_tokens(
    grammar: str,
    prompt: list[int],
    tree: list[list[int]],
    max_tokens: int,
    rows: int,
    seed: int,
    longest: int,
) -> None:
    model = compiled(rows, seed)
    expected = greedy(model, prompt, compile_grammar(grammar), max_tokens)
    target = model.target()
    heads = MedusaProposer(target, MedusaTree.from_choices(tree, HEADS))

    for then in (NO_PROPOSER, heads):
        proposer = PromptCopyProposer(prompt, then, longest)
        found = generate(target, proposer, prompt, compile_grammar(grammar), max_tokens=max_tokens)
        check_statistics(found)
        assert found.tokens == expected


@dataclass(frozen=True)
class Right:
    """Drafts one token that is right, as a head would: what comes first of the answer."""

    token: int

    def propose(self, tree: TokenTree, _grammar: object, _budget: Budget) -> None:
        if tree.start and len(tree.tokens) == tree.run:
            tree.add(tree.root, self.token)


@pytest.mark.parametrize("seed", range(4))
def test_an_answer_that_the_prompt_holds_takes_a_step_for_many_tokens(seed: int) -> None:
    """Check a model whose greedy answer is copied into the prompt, so that each token is followed by what followed."""
    free = "start: /[a-g ]{40}/"
    answer = greedy(compiled(12, seed), [5, 6], compile_grammar(free), 12)
    # The fake model's answers hang on the whole prompt, so the copy is offered to the proposer alone.
    spent = {}
    for name, prompt in (("with the answer", [5, 6, *answer]), ("without", [5, 6])):
        model = compiled(12, seed)
        found = generate(
            model.target(), PromptCopyProposer(prompt, NO_PROPOSER), [5, 6], compile_grammar(free), max_tokens=12
        )
        assert found.tokens == answer
        spent[name] = found.statistics.forwards
    assert spent["with the answer"] < spent["without"]


def test_a_leaf_goes_on_as_the_prompt_does_after_the_same_two_tokens() -> None:
    constraint = compile_grammar("start: /[a-g ]{2,40}/")
    a, b, c, d = (encode(letter)[0] for letter in "abcd")
    tree = TokenTree([a], start=9)
    PromptCopyProposer([c, b, d, a, b, c, c], Right(b)).propose(tree, constraint, Budget(deepest=9, most_nodes=9))

    assert tree.tokens == [a, b, c, c], "after a and b comes c; after the first b alone it would be d"
    assert constraint.legal().size > 1, "the grammar stands where it stood"


def test_while_the_prompt_is_read_nothing_is_copied_and_no_grammar_awaited() -> None:
    tree = TokenTree([3, 4, 3])
    PromptCopyProposer([3, 4, 3], NO_PROPOSER).propose(tree, Future(), Budget(9, 9))
    assert tree.tokens == [3, 4, 3]
