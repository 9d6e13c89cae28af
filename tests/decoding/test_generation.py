"""Decoding with any tree, heads and grammar has greedy's tokens, and a trace shows all of them."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.constraint import GrammarError
from service.decoding.generation import verify
from service.decoding.kv_cache import KVCache
from service.decoding.linear import LmHead
from service.decoding.llama import NEVER, Interruption
from service.decoding.medusa import MedusaHeads
from service.decoding.statistics import Generation
from service.decoding.tree import MedusaTree, TokenTree
from tests.decoding.tiny import (
    CONFIG,
    FREE,
    UNTIED,
    DeadEnd,
    check_statistics,
    choices,
    compile_grammar,
    decode_greedy,
    decode_medusa,
    encode,
    forward_all,
    grammars,
    ids,
    numbers,
    pending,
    prompts,
    random_heads,
    random_model,
    reference_greedy,
    traced_tokens,
)

CHAIN = [[0], [0, 0], [0, 0, 0]]


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, list[list[int]], str, list[int], int]:
    """Draw number of heads, choices, grammar, prompt and seed."""
    num_heads = draw(st.integers(1, 6))
    return num_heads, draw(choices(num_heads)), draw(grammars()), draw(prompts()), draw(st.integers(0, 7))


@given(cases(), st.integers(1, 40), st.booleans())
@settings(max_examples=250, deadline=None)
def test_medusa_is_greedy_whatever_the_tree_the_heads_and_the_grammar(
    case: tuple[int, list[list[int]], str, list[int], int], max_tokens: int, tied: bool
) -> None:
    num_heads, chosen, grammar, prompt, seed = case
    model = random_model(seed, CONFIG if tied else UNTIED)
    tree = MedusaTree.from_choices(chosen, num_heads)
    expected, decisions = reference_greedy(model, prompt, compile_grammar(grammar), max_tokens)

    greedy = decode_greedy(model, prompt, compile_grammar(grammar), max_tokens=max_tokens)
    slow = decode_greedy(model, prompt, compile_grammar(grammar), max_tokens=max_tokens, fast_forward=False)
    medusa = decode_medusa(
        model, random_heads(seed, num_heads), tree, prompt, compile_grammar(grammar), max_tokens=max_tokens
    )

    assert greedy.tokens == expected
    assert medusa.tokens == slow.tokens == expected
    assert greedy.statistics.decisions == medusa.statistics.decisions == slow.statistics.decisions == decisions
    assert greedy.statistics.forwards == decisions
    assert medusa.statistics.forwards <= decisions
    assert slow.statistics.forwards == len(slow.tokens)
    assert greedy.stop_reason == medusa.stop_reason
    assert greedy.probabilities == pytest.approx(medusa.probabilities, abs=1e-3)
    for each in (greedy, medusa, slow):
        check_statistics(each)


class Oracle(MedusaHeads):
    """Heads that know the continuation: head i of position t scores token t + 2 + i highest."""

    def __init__(self, sequence: list[int], num_heads: int, cache: KVCache) -> None:
        super().__init__(torch.zeros(num_heads, 1, 1), torch.zeros(num_heads, 1))
        self._sequence = sequence
        self._cache = cache

    def scores(self, lm_head: LmHead, hidden: Tensor) -> "Oracle":
        del lm_head, hidden
        return self

    def of(self, row: int, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        position = self._cache.length - 1
        known = self._sequence[position + 2 + row : position + 3 + row]
        return np.isin(token_ids, known).astype(np.float32)


def with_oracle(grammar: str, prompt: list[int], chosen: list[list[int]], num_heads: int, seed: int) -> Generation:
    model = random_model(seed)
    tokens, _ = reference_greedy(model, prompt, compile_grammar(grammar), 40)
    cache = model.new_cache(200)
    oracle = Oracle(prompt + tokens, num_heads, cache)
    tree = MedusaTree.from_choices(chosen, num_heads)
    generation = decode_medusa(
        model, oracle, tree, prompt, compile_grammar(grammar), max_tokens=40, trace=numbers, cache=cache
    )
    assert generation.tokens == tokens
    return generation


@pytest.mark.parametrize("num_heads", [1, 2, 4, 6])
def test_perfect_heads_bring_one_token_each_and_one_more(num_heads: int) -> None:
    chain = [[0] * depth for depth in range(1, num_heads + 1)]

    generation = with_oracle(FREE, [3, 1], chain, num_heads, seed=1)

    *whole, last = generation.statistics.accepted_per_step[1:]
    assert generation.statistics.accepted_per_step[0] == 1
    assert all(accepted == num_heads + 1 for accepted in whole)
    assert 1 <= last <= num_heads + 1
    statistics = generation.statistics
    # A chain of which nothing is forced; the last may be cut where the text must end.
    assert num_heads * (statistics.drafts - 1) < statistics.draft_tokens <= num_heads * statistics.drafts
    # A perfect guess is only refused where the text ended before it.
    assert statistics.accepted_by_position[:1] >= [len(whole)]
    assert sum(statistics.accepted_by_position) == sum(accepted - 1 for accepted in statistics.accepted_per_step[1:])


@given(grammars(), prompts(), st.integers(1, 6), st.integers(0, 7))
@settings(max_examples=100, deadline=None)
def test_perfect_heads_are_never_rejected(grammar: str, prompt: list[int], num_heads: int, seed: int) -> None:
    """Check positions: a guess after forced tokens is made by the head for its own position."""
    generation = with_oracle(grammar, prompt, [[0] * depth for depth in range(1, num_heads + 1)], num_heads, seed)

    statuses = [node.status for step in generation.steps for node in step.nodes]
    assert "rejected" not in statuses


@pytest.mark.parametrize("compiling", [False, True])
def test_a_forced_plan_costs_no_forward_but_the_one_beside_which_its_grammar_is_compiled(compiling: bool) -> None:
    grammar = compile_grammar('start: " abcd ef"')
    generation = decode_greedy(random_model(0), [1, 2], pending(grammar) if compiling else grammar, max_tokens=9)

    assert generation.tokens == encode(" abcd ef")
    assert (generation.statistics.forwards, generation.statistics.decisions) == (int(compiling), 0)
    assert generation.statistics.forced_tokens == len(generation.tokens)
    assert generation.stop_reason == "finished"


def test_forced_runs_cost_no_decision() -> None:
    grammar = 'start: " abcd" ("e" | "f") " abcd abcd" ("a" | "g") "gg"'

    for chosen in ([], CHAIN):
        tree = MedusaTree.from_choices(chosen, 3)
        generation = decode_medusa(
            random_model(4), random_heads(4, 3), tree, [5], compile_grammar(grammar), max_tokens=20
        )
        assert generation.statistics.decisions == 2
        assert generation.statistics.forwards <= 2
        assert generation.statistics.forced_tokens == len(generation.tokens) - 2
        assert generation.statistics.accepted_per_step[0] >= len(encode(" abcd"))


def test_a_run_before_the_first_decision_uses_up_head_positions() -> None:
    """Check that five forced tokens after each choice leave five heads without a guess, and six with one."""
    grammar = 'start: ("a" | "c") " abcd ef ef" ("a" | "c") " abcd ef ef" ("a" | "c") "gg"'
    assert len(encode(" abcd ef ef")) == 5

    blind = with_oracle(grammar, [3], [[0], [0, 0]], 5, seed=2)
    seeing = with_oracle(grammar, [3], [[0], [0, 0]], 6, seed=2)

    assert blind.statistics.forwards == blind.statistics.decisions == 3
    assert seeing.statistics.forwards == 2


def test_finishing_with_the_last_allowed_token_is_finishing() -> None:
    grammar = 'start: "a" ("b" | "c")'

    generation = decode_greedy(random_model(1), [2], compile_grammar(grammar), max_tokens=2)

    assert len(generation.tokens) <= 2
    assert generation.stop_reason == "finished"


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_cancelling_stops_before_the_next_forward(allowed: int) -> None:
    answers: Iterator[bool] = iter([False] * allowed + [True])

    generation = decode_greedy(
        random_model(1), [2], compile_grammar(FREE), max_tokens=30, cancelled=lambda: next(answers)
    )

    assert generation.stop_reason == "cancelled"
    assert generation.statistics.forwards == allowed
    check_statistics(generation)


def test_a_cache_is_used_again_without_a_trace() -> None:
    model, heads, tree = random_model(3), random_heads(3, 3), MedusaTree.from_choices([*CHAIN, [1]], 3)
    cache = model.new_cache(80)
    prompts_in_turn = [[1, 2, 3, 4, 5, 6], [7], [1, 2, 3, 4, 5, 6]]

    for prompt in prompts_in_turn:
        alone = decode_medusa(model, heads, tree, prompt, compile_grammar(FREE), max_tokens=30)
        reused = decode_medusa(model, heads, tree, prompt, compile_grammar(FREE), max_tokens=30, cache=cache)
        assert reused.tokens == alone.tokens


def test_a_tight_cache_drafts_less_and_decodes_the_same() -> None:
    model, heads, tree = random_model(3), random_heads(3, 3), MedusaTree.from_choices([[rank] for rank in range(12)], 3)
    expected = decode_greedy(model, [1, 2], compile_grammar(FREE), max_tokens=30).tokens

    for spare in (0, 1, 5):
        cache = model.new_cache(2 + 30 + spare)
        generation = decode_medusa(model, heads, tree, [1, 2], compile_grammar(FREE), max_tokens=30, cache=cache)
        assert generation.tokens == expected


def test_what_does_not_fit_is_refused() -> None:
    model = random_model(0)

    with pytest.raises(ValueError, match="the prompt is empty"):
        decode_greedy(model, [], compile_grammar(FREE), max_tokens=4)
    with pytest.raises(ValueError, match="200 prompt tokens and 57 more do not fit"):
        decode_greedy(model, [1] * 200, compile_grammar(FREE), max_tokens=57)
    with pytest.raises(ValueError, match="17 prompt tokens and 4 more do not fit"):
        decode_greedy(model, [1] * 17, compile_grammar(FREE), max_tokens=4, cache=model.new_cache(20))


def test_a_dead_end_is_an_error_not_a_loop() -> None:
    with pytest.raises(GrammarError, match="dead end"):
        decode_greedy(random_model(0), ids("a"), DeadEnd(), max_tokens=4)


def test_a_token_s_probability_is_the_model_s_among_the_legal_ones() -> None:
    model, prompt, grammar = random_model(3), [5, 6, 7], 'start: "ab" ("c" | "d" | "e") " fg" ("a" | "b")'
    generation = decode_greedy(model, prompt, compile_grammar(grammar), max_tokens=20)

    constraint, expected = compile_grammar(grammar), []
    for at, token in enumerate(generation.tokens):
        legal = constraint.legal()
        logits = model.lm_head.logits(forward_all(model, prompt + generation.tokens[:at])[-1:])[0][
            torch.from_numpy(legal)
        ]
        expected.append(float(logits.softmax(-1)[int(np.flatnonzero(legal == token)[0])]))
        constraint.accept([token])
    assert generation.probabilities == pytest.approx(expected, abs=1e-4)
    assert sum(probability < 1 for probability in generation.probabilities) == generation.statistics.decisions


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize(("deadline", "late"), [(None, False), (100.5, False), (100.0, True), (99.0, True)])
def test_who_asked_or_the_deadline_ends_a_generation(
    monkeypatch: pytest.MonkeyPatch, cancelled: bool, deadline: float | None, late: bool
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    assert Interruption(lambda: cancelled, deadline)() is (cancelled or late)
    assert not NEVER()


GRAMMAR = 'start: " abcd" ("e" | "f") " ef" /[a-d]{9}/'
CHOSEN = [[0], [1], [0, 0], [0, 1], [1, 0]]


def traced(grammar: str, prompt: list[int], seed: int) -> Generation:
    tree = MedusaTree.from_choices(CHOSEN, 3)
    return decode_medusa(
        random_model(seed), random_heads(seed, 3), tree, prompt, compile_grammar(grammar), max_tokens=30, trace=numbers
    )


@given(grammars(), prompts(), st.integers(0, 7))
@settings(max_examples=80, deadline=None)
def test_steps_tell_the_whole_generation(grammar: str, prompt: list[int], seed: int) -> None:
    generation = traced(grammar, prompt, seed)

    if generation.steps:
        assert traced_tokens(generation) == generation.tokens
    assert [len(step.emitted) for step in generation.steps] == generation.statistics.accepted_per_step
    read: list[int] = []
    for each in generation.steps:
        kept = [int(node.token_text) for node in each.nodes if node.status != "rejected"]
        read += kept
        assert read == generation.tokens[: len(read)]
        for index, node in enumerate(each.nodes):
            assert -1 <= node.parent < index
            assert node.depth == (each.nodes[node.parent].depth + 1 if node.parent >= 0 else 0)
            if node.status != "rejected" and node.parent >= 0:
                assert each.nodes[node.parent].status != "rejected"
        assert each.milliseconds > 0


def test_the_first_step_shows_what_rode_along_with_the_prompt() -> None:
    first, second, *_ = traced(GRAMMAR, [1, 2, 3], seed=1).steps

    assert [(int(node.token_text), node.parent, node.depth, node.status) for node in first.nodes] == [
        (token, index - 1, index, "forced") for index, token in enumerate(encode(" abcd"))
    ]
    chosen, *forced = [int(text) for text in first.emitted][len(encode(" abcd")) :]
    assert chosen in ids("e", "f")
    assert [node.status for node in second.nodes[: 1 + len(forced)]] == ["sampled", *["forced"] * len(forced)]
    assert {node.status for node in second.nodes[1 + len(forced) :]} <= {"accepted", "rejected", "forced"}


class Favourite:
    """Scores that prefer some tokens, whatever the row."""

    def __init__(self, *words: str) -> None:
        self._logits = np.zeros(CONFIG.vocab_size, dtype=np.float32)
        self._logits[ids(*words)] = 1

    def of(self, row: int, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        del row
        return self._logits[token_ids]


def test_where_a_forced_run_is_cut_no_choice_is_due() -> None:
    """The loop emits what is forced next by itself: told as the model's choice, a trace would show it as sampled."""
    tree, constraint = TokenTree([3]), compile_grammar('start: " abcd ef" ("a" | "c")')
    cut = tree.add(tree.root, encode(" abcd ef")[0])

    verdict = verify(tree, Favourite("a"), constraint, fast_forward=True)

    assert (verdict.path, verdict.sampled, verdict.decisions) == ([cut], None, 0)
    assert constraint.forced() == encode(" abcd ef")[1:]
