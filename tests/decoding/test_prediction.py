"""Drafts from a prediction: they never change the answer, and save forwards where the prediction is right."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, processors

from service.decoding.constraint import Constraint, GrammarError
from service.decoding.generation import generate
from service.decoding.medusa import MedusaProposer
from service.decoding.proposer import NO_PROPOSER, Budget, Predicted, PredictionProposer, Proposer
from service.decoding.target import LlamaTarget
from service.decoding.tree import MedusaTree, TokenTree
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

HEADS = 3
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
