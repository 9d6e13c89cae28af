"""Generations that share each forward: the tokens of every one are those of greedy decoding alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from service.decoding.constraint import GrammarError
from service.decoding.generation import RunningGeneration, step
from service.decoding.llama import ForwardInput, ForwardStoppedError, Llama
from service.decoding.medusa import MedusaProposer
from service.decoding.proposer import NO_PROPOSER, PredictionProposer, Proposer
from service.decoding.target import LlamaTarget
from service.decoding.tree import MedusaTree, TokenTree
from tests.decoding.tiny import (
    CONFIG,
    FREE,
    DeadEnd,
    certain,
    check_statistics,
    choices,
    compile_grammar,
    decode_greedy,
    grammars,
    prompts,
    random_heads,
    random_model,
    random_weights,
    reference_greedy,
)

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


def test_an_error_or_a_cancellation_of_one_leaves_the_others_alone() -> None:
    def running(grammar: object, *, cancelled: bool = False) -> RunningGeneration:
        target = LlamaTarget(random_model(1), random_model(1).new_cache(60))
        return RunningGeneration(target, NO_PROPOSER, [3, 4], grammar, 30, cancelled=lambda: cancelled)  # type: ignore[arg-type]

    batch = [running(compile_grammar(FREE)), running(DeadEnd()), running(compile_grammar(FREE), cancelled=True)]
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
