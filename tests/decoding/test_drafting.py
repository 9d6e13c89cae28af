"""What a forward drafts: guesses of heads, copies of the prompt and what the grammar forces, within a budget."""

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import Tokenizer, processors

from service.decoding.constraint import Constraint
from service.decoding.generation import generate
from service.decoding.medusa import MedusaProposer
from service.decoding.proposer import (
    NO_PROPOSER,
    Budget,
    Guess,
    Predicted,
    PredictionProposer,
    PromptCopyProposer,
    Proposer,
)
from service.decoding.target import LlamaTarget
from service.decoding.tree import MedusaTree, TokenTree, ancestor_mask, path_to
from service.engines.neuron.forward import ForwardShape
from service.engines.text_model import tokens_of_words
from tests.decoding.tiny import (
    CONFIG,
    FREE,
    certain,
    check_statistics,
    choices,
    compile_grammar,
    decode_greedy,
    decode_medusa,
    encode,
    grammars,
    ids,
    numbers,
    pending,
    prompts,
    random_heads,
    random_model,
    tokenizer,
    traced_tokens,
)
from tests.engines.neuron.fake_compiled import FakeCompiled, greedy

CHOICES = {"a": 0.6, "c": 0.3, "e": 0.1}  # and what each head holds them to be worth


class Heads:
    """Two heads of the same opinion."""

    num_heads, read_again = 2, 0

    def head_scores(self) -> "Heads":
        return self

    def of(self, row: int, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        assert row < self.num_heads
        logits = np.full(CONFIG.vocab_size, -math.inf, dtype=np.float32)
        logits[ids(*CHOICES)] = np.log(list(CHOICES.values()))
        return logits[token_ids]


def paths(p_min: float) -> list[str]:
    """Return the drafts, by their letters, of a tree of the two best of two heads."""
    shape = MedusaTree.from_choices([[0], [1], [0, 0], [0, 1], [1, 0], [1, 1]], 2, p_min)
    choice = "(" + " | ".join(f'"{letter}"' for letter in CHOICES) + ")"
    tree = TokenTree([3], start=5)
    MedusaProposer(Heads(), shape).propose(
        tree, compile_grammar(f"start: {choice} {choice} {choice}"), Budget(deepest=9, most_nodes=20)
    )
    letters = dict(zip(ids(*CHOICES), CHOICES, strict=True))
    routes = (path_to(node, tree.parents)[1:] for node in range(1, len(tree.tokens)))
    return sorted("".join(letters[tree.tokens[node]] for node in route) for route in routes)


def test_a_path_is_worth_the_product_of_its_guesses() -> None:
    # aa 0.36, ac and ca 0.18, cc 0.09
    assert paths(0.0) == ["a", "aa", "ac", "c", "ca", "cc"]
    assert paths(0.1) == ["a", "aa", "ac", "c", "ca"]
    assert paths(0.2) == ["a", "aa", "c"]
    assert paths(0.35) == ["a", "aa"]
    assert paths(0.5) == ["a"]
    assert paths(0.7) == []


ROOMY = Budget(deepest=20, most_nodes=20)


def tree_after(
    token: str, grammar: str, *, forced: bool = False, budget: Budget = ROOMY
) -> tuple[TokenTree, int | None]:
    """Guess one token at the start of a grammar, below a run of two; return the tree and where drafting may go on."""
    tree, constraint = TokenTree([5, 6]), compile_grammar(grammar)
    legal = constraint.legal().tolist()
    with Guess(tree, constraint, budget, tree.root, *ids(token), forced=forced) as node:
        pass
    assert constraint.legal().tolist() == legal
    return tree, node


@pytest.mark.parametrize("missing", [0, 1])
def test_drafting_goes_on_after_a_run_that_just_fits_and_not_after_one_that_is_cut(missing: int) -> None:
    run = encode(" abcd ef")
    budget = Budget(deepest=20, most_nodes=2 + 1 + len(run) - missing)

    tree, node = tree_after("a", 'start: ("a" | "c") " abcd ef" ("a" | "c") "g"', budget=budget)

    assert len(tree.tokens) == 2 + 1 + len(run) - missing
    assert node == (None if missing else 2 + len(run))


def test_a_forward_drafts_no_more_nodes_than_any_device_gains_from() -> None:
    """Without the limit a guess before a long literal drafts all of it: as many rows, and places in the cache."""
    literal = " ef" * 190
    assert len(encode(literal)) == 190
    grammar = f'start: ("a" | "c") ("e" | "g") "{literal}"'
    shape = MedusaTree.from_choices([[0], [1]], 1)

    generation = decode_medusa(
        random_model(1), random_heads(1, 1), shape, [3], compile_grammar(grammar), max_tokens=200, trace=numbers,
        cache=random_model(1).new_cache(600),
    )  # fmt: skip

    _, second, *_ = (len(step.nodes) for step in generation.steps)
    assert second == 1 + 128  # what the model chose, and the draft
    assert generation.stop_reason == "finished"


HEADS = 3


def compiled(rows: int, seed: int) -> FakeCompiled:
    shape = ForwardShape(HEADS, rows, max_context_length=24, seq_len=160)
    return FakeCompiled(shape, CONFIG.vocab_size, seed)


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


@given(st.integers(1, 6).flatmap(choices))
def test_nodes_are_the_choices(chosen: list[list[int]]) -> None:
    tree = MedusaTree.from_choices(chosen, num_heads=6)
    mask = ancestor_mask(tree.parents)

    named = {}
    for node in range(1, len(tree.parents)):
        named[tuple(tree.ranks[each] for each in path_to(node, tree.parents)[1:])] = node
    assert sorted(named) == sorted(map(tuple, chosen))
    for choice, node in named.items():
        ancestors = {0, *(named[choice[:length]] for length in range(1, len(choice) + 1))}
        assert set(mask[node].nonzero().flatten().tolist()) == ancestors


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ([[0], [0, 0], [0, 0, 0]], r"choice \[0, 0, 0\] needs 3 heads, and there are 2"),
        ([[0], [1, 0]], r"choice \[1, 0\] hangs from \[1\], which is not a choice"),
        ([[0], [1], [0]], r"choice \[0\] is listed twice"),
        ([[0], [0, -1]], r"choice \[0, -1\] has a negative rank"),
        ([[0], []], "an empty choice names nothing"),
    ],
)
def test_impossible_trees_are_refused(chosen: list[list[int]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        MedusaTree.from_choices(chosen, num_heads=2)


NO_TREE = MedusaTree.from_choices([], HEADS)
RUN = 'start: ("a" | "c") " abcd ef" ("a" | "c") ("a" | "c") "g"'
A, B, C, D, E, F = ids(*"abcdef")
anything = st.lists(st.tuples(st.integers(0, CONFIG.vocab_size - 1), st.floats(0, 1)), max_size=12)


@dataclass(frozen=True)
class Foretold:
    """What a prediction makes of the right answer: a part is left out, and other tokens stand there."""

    begin: int
    left_out: int
    instead: Predicted
    p_min: float

    def of(self, answer: list[int], then: Proposer) -> PredictionProposer:
        after = certain(answer[self.begin + self.left_out :])
        return PredictionProposer([*certain(answer[: self.begin]), *self.instead, *after], then, self.p_min)


foretold = st.builds(Foretold, st.integers(0, 12), st.integers(0, 3), anything, st.sampled_from((0.0, 0.0, 0.3)))


@given(
    grammars(), prompts(), foretold, choices(HEADS), st.integers(0, 30), st.integers(0, 12), st.integers(0, 5),
    st.booleans(),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_any_prediction_decodes_what_greedy_does(
    grammar: str,
    prompt: list[int],
    prediction: Foretold,
    tree: list[list[int]],
    max_tokens: int,
    room: int,
    seed: int,
    compiling: bool,
) -> None:
    model = random_model(seed)
    expected = decode_greedy(model, prompt, compile_grammar(grammar), max_tokens=max_tokens)
    target = LlamaTarget(model, model.new_cache(len(prompt) + max_tokens + 20), random_heads(seed, HEADS))
    target.most_drafted_nodes = room
    heads = MedusaProposer(target, MedusaTree.from_choices(tree, HEADS))

    for then in (NO_PROPOSER, heads):
        proposer = prediction.of(expected.tokens, then)
        found = generate(
            target, proposer, prompt, given_as(grammar, compiling=compiling), max_tokens=max_tokens, trace=numbers
        )
        check_statistics(found)
        assert (found.tokens, found.stop_reason) == (expected.tokens, expected.stop_reason)
        assert found.statistics.decisions == expected.statistics.decisions
        assert traced_tokens(found) == found.tokens or not found.steps


def given_as(grammar: str, *, compiling: bool) -> Constraint | Future[Constraint]:
    return pending(compile_grammar(grammar)) if compiling else compile_grammar(grammar)


@pytest.mark.parametrize("compiling", [False, True])
@pytest.mark.parametrize("grammar", [FREE, "start: /[a-g ]{3}/"])
def test_a_text_that_was_foretold_takes_one_forward(grammar: str, compiling: bool) -> None:
    model = random_model(3)
    expected = decode_greedy(model, [5, 6], compile_grammar(grammar), max_tokens=8)
    found = decode_medusa(
        model, random_heads(0, HEADS), NO_TREE, [5, 6], given_as(grammar, compiling=compiling), max_tokens=8,
        predicted=certain(expected.tokens),
    )  # fmt: skip

    assert (found.tokens, found.stop_reason) == (expected.tokens, expected.stop_reason)
    assert found.statistics.forwards == 1 < expected.statistics.forwards


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ([], [A, B, C, D, E]),
        ([A, B], [C, D, E]),
        ([A, F], [C, D, E]),  # it stands for B
        ([A, F, B], [C, D, E]),  # it came before B
        ([A, F, F], [C, D, E]),  # both stand for B
        ([A, C], [D, E]),  # B is left out
        ([A, C, B], [E]),  # nothing is foretold twice
        ([A, B, C, D, E], []),
        ([A, B, C, D, E, F], []),
    ],
)
def test_after_a_wrong_token_it_goes_on_where_the_text_comes_back(text: list[int], then: list[int]) -> None:
    assert draft(certain([A, B, C, D, E]), text=text) == then


def draft(predicted: Predicted, text: Sequence[int] = (), budget: Budget | None = None, **given: Any) -> list[int]:
    """Return what is drafted after a text by a grammar that allows any letters, and stands where it stood."""
    compiling = given.pop("compiling", False)
    grammar = compile_grammar(given.pop("grammar", FREE))
    grammar.accept(text)
    legal = grammar.legal().tolist()
    tree = TokenTree([9], start=0 if compiling else 9, text=text, unchecked=compiling)
    then = given.pop("then", NO_PROPOSER)
    proposer = PredictionProposer(predicted, then, **given)
    proposer.propose(tree, Future() if compiling else grammar, budget or Budget(99, 99))
    assert grammar.legal().tolist() == legal
    return tree.tokens[1:]


LIKELY = [(A, 0.9), (B, 1.0), (C, 0.5), (D, 1.0), (E, 1.0)]


@pytest.mark.parametrize("compiling", [False, True])
@pytest.mark.parametrize(("p_min", "length"), [(0.91, 0), (0.9, 2), (0.46, 2), (0.45, 4)])
def test_it_goes_as_far_as_it_is_likely(p_min: float, length: int, compiling: bool) -> None:
    assert draft(LIKELY, p_min=p_min, compiling=compiling)[:4] == [A, B, C, D][:length]


@pytest.mark.parametrize("compiling", [False, True])
@pytest.mark.parametrize(
    ("budget", "length"), [(Budget(2, 99), 2), (Budget(99, 4), 3), (Budget(0, 99), 0), (Budget(99, 1), 0)]
)
def test_it_has_the_room_that_it_is_given(budget: Budget, length: int, compiling: bool) -> None:
    assert draft(LIKELY, budget=budget, compiling=compiling) == [A, B, C, D][:length]


def test_it_goes_on_after_what_the_grammar_forces_where_that_was_foretold() -> None:
    forced = encode(" abcd ef")
    assert draft(certain([A, *forced, C]), grammar=RUN) == [A, *forced, C]
    assert draft(certain([A, *encode(" ab"), C]), grammar=RUN) == [A, *forced], "and not after another spelling"
    assert draft(certain([B, *forced, C]), grammar=RUN) == [], "nor after what is forbidden"


@dataclass(frozen=True)
class Guesses:
    """Drafts a token below the root."""

    token: int

    def propose(self, tree: TokenTree, *_: object) -> None:
        tree.add(tree.root, self.token)


@pytest.mark.parametrize("compiling", [False, True])
def test_another_drafts_beside_it(compiling: bool) -> None:
    assert draft(certain([A, B, C]), then=Guesses(D), compiling=compiling)[-2:] == [B if compiling else C, D]


def test_each_word_has_its_tokens_and_the_first_of_them_its_probability() -> None:
    words = [("abcd", 0.9), ("efg", 0.8), ("<eos>", 0.7), ("a", 0.6)]
    expected = [
        (" ", 0.9), ("abc", 1.0), ("d", 1.0), (" ef", 0.8), ("g", 1.0), (" ", 0.7), ("<eos>", 1.0), (" a", 0.6)
    ]  # fmt: skip
    trimming = Tokenizer.from_str(tokenizer().to_str())
    trimming.post_processor = processors.ByteLevel(trim_offsets=True)  # a word's offset is that of its first letter

    for each in (tokenizer(), trimming):
        predicted = tokens_of_words(words, each)
        assert [(each.id_to_token(token).replace("Ġ", " "), likely) for token, likely in predicted] == expected
        assert list(tokens_of_words([], each)) == []


def test_cancelling_before_the_prompt_is_read_waits_for_no_grammar() -> None:
    never: Future[Constraint] = Future()

    generation = decode_greedy(random_model(0), [1], never, max_tokens=4, cancelled=lambda: True)

    assert generation.stop_reason == "cancelled"
    assert generation.statistics.forwards == 0
