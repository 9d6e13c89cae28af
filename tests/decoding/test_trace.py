import itertools
import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.decoding.generation import RunningGeneration, step
from service.decoding.medusa import MedusaProposer
from service.decoding.statistics import Generation
from service.decoding.target import LlamaTarget
from service.decoding.tree import MedusaTree
from tests.decoding.decode import decode_greedy, decode_medusa, numbers, traced_tokens
from tests.decoding.tiny import compile_grammar, encode, grammars, ids, prompts, random_heads, random_model

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


def test_a_step_tells_what_drafting_and_the_forward_took_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock) / 1000)
    for each in traced(GRAMMAR, [1, 2, 3], seed=1).steps:
        assert (each.draft_milliseconds, each.forward_milliseconds, each.milliseconds) == (1.0, 1.0, 3.0)


def test_every_rank_that_the_tree_has_is_drafted() -> None:
    tree = MedusaTree.from_choices([[0], [1], [4]], 3)
    generation = decode_medusa(
        random_model(1), random_heads(1, 3), tree, [1, 2], compile_grammar("start: /[a-g ]{9}/"), max_tokens=3,
        trace=numbers,
    )  # fmt: skip
    assert any(sum(node.depth == 1 for node in step.nodes) == 3 for step in generation.steps)


class Forgetful(LlamaTarget):
    """A target that keeps nothing of what was drafted, so that accepted tokens are read once more."""

    def commit(self, path: Sequence[int]) -> int:
        super().commit(path[:0])
        return 0


def test_an_accepted_token_that_is_read_again_is_not_shown_as_chosen_again() -> None:
    read_again = 0
    for seed in range(6):
        model = random_model(seed)
        target = Forgetful(model, model.new_cache(200), random_heads(seed, 3))
        proposer = MedusaProposer(target, MedusaTree.from_choices(CHOSEN, 3))
        running = RunningGeneration(target, proposer, [1, 2, 3], compile_grammar(GRAMMAR), 30, trace=numbers)
        while running.goes_on():
            step([running])
            if any(node.status == "accepted" for node in running.steps[-1].nodes):
                read_again += 1
                assert not running.starts_sampled
        assert running.tokens == decode_greedy(model, [1, 2, 3], compile_grammar(GRAMMAR), max_tokens=30).tokens
    assert read_again > 0


def test_greedy_steps_are_chains() -> None:
    steps = decode_greedy(random_model(1), [1], compile_grammar(GRAMMAR), max_tokens=30, trace=numbers).steps

    for each in steps:
        assert [node.parent for node in each.nodes] == list(range(-1, len(each.nodes) - 1))


def test_nothing_is_traced_unasked() -> None:
    assert decode_greedy(random_model(1), [1], compile_grammar(GRAMMAR), max_tokens=30).steps == []
