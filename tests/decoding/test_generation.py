"""Decoding with any tree, heads and grammar has greedy's tokens, and a trace shows all of them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.constraint import GrammarError
from service.decoding.generation import RunningGeneration, step, verify
from service.decoding.kv_cache import KVCache
from service.decoding.linear import LmHead
from service.decoding.llama import ForwardInput, ForwardStoppedError, Llama
from service.decoding.medusa import MedusaHeads, MedusaProposer
from service.decoding.proposer import NO_PROPOSER, PredictionProposer, Proposer
from service.decoding.statistics import Generation
from service.decoding.target import LlamaTarget
from service.decoding.tree import MedusaTree, TokenTree
from tests.decoding.tiny import (
    CONFIG,
    FREE,
    UNTIED,
    certain,
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
    random_weights,
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


def test_finishing_with_the_last_allowed_token_is_finishing() -> None:
    grammar = 'start: "a" ("b" | "c")'

    generation = decode_greedy(random_model(1), [2], compile_grammar(grammar), max_tokens=2)

    assert len(generation.tokens) <= 2
    assert generation.stop_reason == "finished"


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


DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
HEADS = 3
PREDICTED = certain([3, 1, 5, 9, 10])
Request = tuple[str, list[int], list[list[int]] | None, int]


def requests() -> st.SearchStrategy[list[Request]]:
    """Draw requests: a grammar, a prompt, a tree (None: no drafting), and a limit on the tokens."""
    tree = st.one_of(st.none(), choices(HEADS))
    return st.lists(st.tuples(grammars(), prompts(), tree, st.integers(0, 24)), min_size=1, max_size=9)


def begin(seed: int, request: Request) -> RunningGeneration:
    grammar, prompt, chosen, max_tokens = request
    model = random_model(seed)
    target = LlamaTarget(model, model.new_cache(len(prompt) + max_tokens + 20), random_heads(seed, HEADS))
    proposer: Proposer = NO_PROPOSER
    if chosen is not None:
        proposer = PredictionProposer(PREDICTED, MedusaProposer(target, MedusaTree.from_choices(chosen, HEADS)))
    return RunningGeneration(target, proposer, list(prompt), compile_grammar(grammar), max_tokens)


def test_a_forward_that_is_stopped_cancels_all_that_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise ForwardStoppedError

    batch = [begin(0, (FREE, [1, 2], None, 9)) for _ in range(3)]
    monkeypatch.setattr(LlamaTarget, "forward", stopped)
    step(batch)
    assert [each.stop_reason for each in batch] == ["cancelled"] * 3
    assert [each.result().tokens for each in batch] == [[], [], []]


@given(requests(), st.integers(1, 4), st.integers(0, 3), st.data())
@settings(max_examples=80, deadline=None)
def test_whoever_joins_and_leaves_each_has_greedy_s_tokens(
    waiting: list[Request], slots: int, seed: int, data: st.DataObject
) -> None:
    """Check a batch that requests enter at random moments and leave as soon as they end."""
    running: list[tuple[Request, RunningGeneration]] = []
    left = list(waiting)
    while left or running:
        while left and len(running) < slots and (not running or data.draw(st.booleans(), label="joins")):
            running.append((left[0], begin(seed, left.pop(0))))
        ended = [(request, each) for request, each in running if not each.goes_on()]
        running = [(request, each) for request, each in running if each.goes_on()]
        for (grammar, prompt, _, max_tokens), each in ended:
            generation = each.result()
            expected, decisions = reference_greedy(random_model(seed), prompt, compile_grammar(grammar), max_tokens)
            assert generation.tokens == expected
            assert generation.statistics.decisions == decisions
            check_statistics(generation)
        step([each for _, each in running])


# A grammar that allows nothing and is not finished.
DEAD_END = SimpleNamespace(legal=lambda: np.empty(0, np.int64), forced=lambda **_: [], finished=lambda: False)


def test_an_error_or_a_cancellation_of_one_leaves_the_others_alone() -> None:
    def running(grammar: object, *, cancelled: bool = False) -> RunningGeneration:
        target = LlamaTarget(random_model(1), random_model(1).new_cache(60))
        return RunningGeneration(target, NO_PROPOSER, [3, 4], grammar, 30, cancelled=lambda: cancelled)  # type: ignore[arg-type]

    batch = [running(compile_grammar(FREE)), running(DEAD_END), running(compile_grammar(FREE), cancelled=True)]
    while going := [each for each in batch if each.goes_on()]:
        step(going)

    assert (
        batch[0].result().tokens == decode_greedy(random_model(1), [3, 4], compile_grammar(FREE), max_tokens=30).tokens
    )
    with pytest.raises(GrammarError, match="dead end"):
        batch[1].result()
    assert batch[2].result().stop_reason == "cancelled"


@pytest.mark.parametrize("device", DEVICES)
def test_a_state_is_the_same_alone_and_in_company(device: str) -> None:
    """Check that it has the same bits on a CPU, whose products do not depend on the number of rows."""
    model = Llama(
        CONFIG, {name: weight.to(device) for name, weight in random_weights(CONFIG, 2).items()}, torch.float32
    )
    caches = [model.new_cache(20) for _ in range(3)]

    def inputs(which: range) -> list[ForwardInput]:
        trees = [TokenTree(list(range(1, 3 * number + 2)), caches[number].length) for number in which]
        for tree in trees:
            tree.add(tree.root, 3)
            tree.add(tree.root, 4)
        return [
            ForwardInput(tokens, positions, caches[number], mask)
            for number, (tokens, positions, mask) in zip(
                which, (tree.tensors(model.device) for tree in trees), strict=True
            )
        ]

    for number, cache in enumerate(caches[1:]):
        model.forward(*inputs(range(number + 1, number + 2))[0])
        cache.keep(range(number))
    alone = [model.forward(*each) for each in inputs(range(3))]
    together = model.forward_batch(inputs(range(3)))

    for one, other in zip(alone, together, strict=True):
        assert torch.equal(one, other) if device == "cpu" else torch.allclose(one, other, atol=1e-4)
