from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from service.decoding.constraint import Constraint
from service.decoding.generation import RunningGeneration, generate, step
from service.decoding.medusa import MedusaProposer
from service.decoding.prefill_draft import PrefillDraft, PrefillProposer
from service.decoding.proposer import NO_PROPOSER, ChainProposer, Proposer
from service.decoding.statistics import Generation
from service.decoding.tree import MedusaTree
from service.engines.neuron.configuration import (
    CompileSettings,
    MedusaShape,
    forward_shape,
    neuron_arguments,
)
from service.engines.neuron.forward import CompiledTarget, ForwardContractError, ForwardShape
from service.engines.neuron.hugging_face import Unconstrained
from tests.decoding.decode import check_statistics, numbers, traced_tokens
from tests.decoding.tiny import CONFIG, choices, compile_grammar, encode, grammars, prompts
from tests.engines.neuron import published_tree
from tests.engines.neuron.fake_compiled import FakeCompiled, Output, greedy

VOCABULARY = CONFIG.vocab_size
FREE = "start: /[a-g ]{40}/"
WIDE = [[rank] for rank in range(8)] + [[rank, other] for rank in range(3) for other in range(4)]


def shape_of(num_heads: int, rows: int, seq_len: int = 160, batch_size: int = 1) -> ForwardShape:
    return ForwardShape(num_heads, rows, max_context_length=24, seq_len=seq_len, batch_size=batch_size)


def drafting(target: CompiledTarget, tree: MedusaTree) -> Proposer:
    """Return what drafts by a tree for a target: one chain of it where that reads no branches."""
    heads = MedusaProposer(target, tree)
    return ChainProposer(heads) if target.shape.is_chain else heads


def decode(
    model: FakeCompiled,
    tree: MedusaTree | None,
    prompt: list[int],
    constraint: Constraint,
    max_tokens: int = 30,
    *,
    fast_forward: bool = True,
) -> Generation:
    target = model.target()
    proposer = drafting(target, tree) if tree else NO_PROPOSER
    generation = generate(target, proposer, prompt, constraint, max_tokens=max_tokens, fast_forward=fast_forward)
    check_statistics(generation)
    assert generation.statistics.forwards == model.calls
    return generation


@st.composite
def graphs(draw: st.DrawFn) -> tuple[FakeCompiled, MedusaTree]:
    """Draw a random model compiled for random rows, with a random tree that may be too large for them."""
    num_heads = draw(st.integers(1, 5))
    shape = replace(shape_of(num_heads, draw(st.integers(1, 14))), is_chain=draw(st.booleans()))
    model = FakeCompiled(shape, VOCABULARY, draw(st.integers(0, 7)))
    return model, MedusaTree.from_choices(draw(choices(num_heads)), num_heads)


@given(graphs(), grammars(), prompts(), st.integers(1, 40), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_tree_on_any_graph_gives_greedy_s_tokens(
    graph: tuple[FakeCompiled, MedusaTree], grammar: str, prompt: list[int], max_tokens: int, fast_forward: bool
) -> None:
    model, tree = graph
    expected = greedy(model, prompt, compile_grammar(grammar), max_tokens)

    for drafts in (None, tree):
        model.calls = 0
        generation = decode(model, drafts, prompt, compile_grammar(grammar), max_tokens, fast_forward=fast_forward)
        assert generation.tokens == expected


@pytest.mark.parametrize("seed", range(6))
def test_a_wide_tree_saves_forwards_though_nothing_is_moved(seed: int) -> None:
    model = FakeCompiled(shape_of(4, 24), VOCABULARY, seed)

    generation = decode(model, MedusaTree.from_choices(WIDE, 4), [3, 4], compile_grammar(FREE), 40)

    assert generation.tokens == greedy(model, [3, 4], compile_grammar(FREE), 40)
    assert generation.statistics.forwards < 40


class Moving(CompiledTarget):
    """A target that moves what was written out of place, as a graph for it could."""

    def commit(self, path: Sequence[int]) -> int:
        assert isinstance(self._model, FakeCompiled)
        cache = self._model._cache[0]
        ends = self.length + self._run
        cache[:, :, ends : ends + len(path)] = cache[:, :, [self.length + node for node in path]]
        self.length = ends + len(path)
        self.accept(path)
        return len(path)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_read_again_costs_rows_and_no_forward(seed: int) -> None:
    tree, counts = MedusaTree.from_choices(WIDE, 4), []
    for kind in (CompiledTarget, Moving):
        model = FakeCompiled(shape_of(4, 32), VOCABULARY, seed)
        target = kind(model, model.shape, model.lm_head, model.heads)
        generation = generate(target, MedusaProposer(target, tree), [3, 4], compile_grammar(FREE), max_tokens=40)
        counts.append(generation.statistics.accepted_per_step)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("seed", range(4))
def test_the_plain_graph_reads_the_first_guesses_as_a_chain(seed: int) -> None:
    model = FakeCompiled(replace(shape_of(4, 6), is_chain=True), VOCABULARY, seed)

    generation = decode(model, MedusaTree.from_choices(WIDE, 4), [3, 4], compile_grammar(FREE), 40)

    assert generation.tokens == greedy(model, [3, 4], compile_grammar(FREE), 40)
    assert generation.statistics.forwards < 40


@pytest.mark.parametrize("seed", range(4))
def test_the_published_tree_of_64_rows_gives_greedy_s_tokens(seed: int) -> None:
    """Check 4 heads, 63 nodes of depth 4, and the positions that a compilation chooses for them."""
    tree = published_tree.CHOICES
    described = MedusaShape(published_tree.HEADS, tuple(map(tuple, tree)))
    arguments = neuron_arguments(described, CompileSettings(max_prompt_tokens=384, max_new_tokens=96))
    shape = forward_shape(arguments)
    model = FakeCompiled(shape, VOCABULARY, seed)

    generation = decode(model, MedusaTree.from_choices(tree, shape.num_heads), [3, 4], compile_grammar(FREE), 40)

    assert (shape.rows, shape.num_heads, shape.seq_len) == (64, 4, 576)
    assert generation.tokens == greedy(model, [3, 4], compile_grammar(FREE), 40)
    assert generation.statistics.forwards < 40


@pytest.mark.parametrize("prompt", [[0], [0, 0, 0], [5, 0, 7, 0], [0, 5]])
def test_token_id_0_is_a_token_like_others(prompt: list[int]) -> None:
    seen_zero = False
    for seed in range(12):
        model = FakeCompiled(shape_of(3, 20), VOCABULARY, seed)
        expected = greedy(model, prompt, Unconstrained(VOCABULARY, ()), 30)
        generation = decode(model, MedusaTree.from_choices(WIDE, 3), prompt, Unconstrained(VOCABULARY, ()), 30)
        assert generation.tokens == expected
        assert generation.stop_reason == "length"
        seen_zero = seen_zero or 0 in expected
    assert seen_zero


@given(st.integers(0, VOCABULARY - 1), st.integers(0, 7))
@settings(max_examples=40, deadline=None)
def test_the_first_end_token_ends_it_wherever_it_stands(end: int, seed: int) -> None:
    model = FakeCompiled(shape_of(3, 20), VOCABULARY, seed)
    whole = greedy(model, [2, 3], Unconstrained(VOCABULARY, ()), 40)
    expected = whole[: whole.index(end) + 1] if end in whole else whole

    generation = decode(model, MedusaTree.from_choices(WIDE, 3), [2, 3], Unconstrained(VOCABULARY, [end]), 40)

    assert generation.tokens == expected
    assert generation.stop_reason == ("finished" if end in whole else "length")


def test_a_forced_string_costs_no_forward() -> None:
    model = FakeCompiled(shape_of(2, 4), VOCABULARY)

    generation = decode(model, None, [1, 2], compile_grammar('start: " abcd ef"'))

    assert generation.tokens == encode(" abcd ef")
    assert model.calls == generation.statistics.decisions == 0


def test_a_forced_run_longer_than_a_step_is_read_in_pieces() -> None:
    grammar = 'start: ("a" | "c") " abcd ef abcd ef abcd ef abcd" ("a" | "c") "gg"'
    model = FakeCompiled(shape_of(2, 4), VOCABULARY, seed=2)

    generation = decode(model, None, [3], compile_grammar(grammar))

    assert generation.tokens == greedy(model, [3], compile_grammar(grammar), 30)
    assert generation.statistics.decisions == 2
    assert 0 in generation.statistics.accepted_per_step


def test_forced_tokens_after_the_prompt_ride_in_its_forward() -> None:
    model = FakeCompiled(shape_of(2, 6), VOCABULARY)

    generation = decode(model, None, [3], compile_grammar('start: " abcd ef" ("a" | "c")'))

    assert generation.statistics.forwards == generation.statistics.decisions == 1


@pytest.mark.parametrize("spare", [0, -1])
def test_the_cache_is_never_written_out_of_bounds(spare: int) -> None:
    """Check cache bounds: the fake fails on a position that it does not have; NxDI would not."""
    needed = shape_of(3, 12).needed(prompt=5, new=20)
    model = FakeCompiled(shape_of(3, 12, seq_len=needed + spare), VOCABULARY)
    tree = MedusaTree.from_choices(WIDE, 3)

    if spare < 0:
        with pytest.raises(ValueError, match=f"may touch {needed} cache positions, and {needed - 1} were compiled"):
            decode(model, tree, [1] * 5, Unconstrained(VOCABULARY, ()), 20)
    else:
        assert len(decode(model, tree, [1] * 5, Unconstrained(VOCABULARY, ()), 20).tokens) == 20


def test_prompts_that_were_not_compiled_for_are_refused() -> None:
    model = FakeCompiled(shape_of(2, 6), VOCABULARY)

    with pytest.raises(ValueError, match="the prompt is empty"):
        decode(model, None, [], Unconstrained(VOCABULARY, ()))
    with pytest.raises(ValueError, match="25 prompt tokens are more than the 24"):
        decode(model, None, [1] * 25, Unconstrained(VOCABULARY, ()))


def test_a_model_is_used_again_without_a_trace_of_what_it_read() -> None:
    model, tree = FakeCompiled(shape_of(4, 24), VOCABULARY, 3), MedusaTree.from_choices(WIDE, 4)
    target = model.target()

    for prompt in ([1, 2, 3, 4, 5, 6, 7, 8], [7], [1, 2, 3]):
        generation = generate(
            target, MedusaProposer(target, tree), prompt, Unconstrained(VOCABULARY, ()), max_tokens=30
        )
        assert generation.tokens == greedy(model, prompt, Unconstrained(VOCABULARY, ()), 30)


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_cancelling_stops_before_the_next_forward(allowed: int) -> None:
    answers: Iterator[bool] = iter([False] * allowed + [True])
    model = FakeCompiled(shape_of(2, 6), VOCABULARY)
    target = model.target()

    generation = generate(
        target, NO_PROPOSER, [2], compile_grammar(FREE), max_tokens=30, cancelled=lambda: next(answers)
    )

    assert generation.stop_reason == "cancelled"
    assert model.calls == allowed


def test_a_trace_shows_every_token_once() -> None:
    model, tree = FakeCompiled(shape_of(4, 24), VOCABULARY, 1), MedusaTree.from_choices(WIDE, 4)
    target = model.target()

    generation = generate(
        target, MedusaProposer(target, tree), [2, 3], compile_grammar(FREE), max_tokens=30, trace=numbers
    )

    assert traced_tokens(generation) == generation.tokens
    assert {node.status for step in generation.steps for node in step.nodes} >= {"accepted", "rejected", "sampled"}


@given(graphs(), grammars(), prompts(), st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_a_grammar_may_be_compiled_beside_the_prompt_s_forward(
    graph: tuple[FakeCompiled, MedusaTree], grammar: str, prompt: list[int], max_tokens: int
) -> None:
    """Check that drafts of the prompt's forward, too, only change how many forwards there are."""
    model, tree = graph
    expected = greedy(model, prompt, compile_grammar(grammar), max_tokens)
    made: Future[Constraint] = Future()
    made.set_result(compile_grammar(grammar))
    target = model.target()
    proposer: Proposer = PrefillProposer(PrefillDraft.from_sequences([[3, 1], [5]]), MedusaProposer(target, tree))
    if model.shape.is_chain:
        proposer = ChainProposer(proposer)

    generation = generate(target, proposer, prompt, made, max_tokens=max_tokens, trace=numbers)
    assert generation.tokens == expected
    assert traced_tokens(generation) == expected


@pytest.mark.parametrize("seed", range(4))
def test_what_is_drafted_with_a_prompt_saves_forwards(seed: int) -> None:
    """Check a draft of the right beginning: it fits below a prompt of 3 tokens, and not below one that fills a step."""
    rows = 10
    for prompt, saves in (([2, 3, 4], 4), ([2] * rows, 0), ([2] * (rows + 1), 0)):
        model = FakeCompiled(shape_of(2, rows), VOCABULARY, seed)
        expected = greedy(model, prompt, compile_grammar(FREE), 12)
        made: Future[Constraint] = Future()
        made.set_result(compile_grammar(FREE))
        proposer = PrefillProposer(PrefillDraft.from_sequences([expected[:4], [1, 1]]), NO_PROPOSER)

        generation = generate(model.target(), proposer, prompt, made, max_tokens=12)

        assert generation.tokens == expected
        assert generation.statistics.forwards == generation.statistics.decisions - saves


@given(
    st.lists(st.tuples(grammars(), prompts(), st.booleans(), st.integers(0, 24)), min_size=1, max_size=8),
    st.integers(2, 4),
    graphs(),
    st.data(),
)
@settings(max_examples=40, deadline=None)
def test_sequences_of_one_graph_join_and_leave_without_a_trace(
    waiting: list[tuple[str, list[int], bool, int]],
    batch_size: int,
    graph: tuple[FakeCompiled, MedusaTree],
    data: st.DataObject,
) -> None:
    """Check a graph of several sequences: whoever shares its calls, the tokens are those of greedy decoding alone."""
    alone, tree = graph
    model = FakeCompiled(replace(alone.shape, batch_size=batch_size), VOCABULARY, alone.seed)
    slots: dict[int, tuple[list[int], RunningGeneration]] = {}
    while waiting or slots:
        for sequence in sorted(set(range(batch_size)) - set(slots)):
            if waiting and (not slots or data.draw(st.booleans(), label="joins")):
                grammar, prompt, drafts, max_tokens = waiting.pop(0)
                target = model.target(sequence=sequence)
                proposer = drafting(target, tree) if drafts else NO_PROPOSER
                expected = greedy(alone, prompt, compile_grammar(grammar), max_tokens)
                running = RunningGeneration(target, proposer, list(prompt), compile_grammar(grammar), max_tokens)
                slots[sequence] = (expected, running)
        for sequence in [sequence for sequence, (_, running) in slots.items() if not running.goes_on()]:
            expected, running = slots.pop(sequence)
            assert running.result().tokens == expected
        step([running for _, running in slots.values()])


def test_a_trace_has_a_step_for_each_piece_of_a_run_too() -> None:
    grammar = 'start: ("a" | "c") " abcd ef abcd ef abcd ef abcd" ("a" | "c") "gg"'
    model = FakeCompiled(shape_of(2, 4), VOCABULARY, seed=2)
    target = model.target()

    generation = generate(target, NO_PROPOSER, [3], compile_grammar(grammar), max_tokens=30, trace=numbers)

    assert [len(step.emitted) for step in generation.steps] == generation.statistics.accepted_per_step
    assert [node.token_text for step in generation.steps for node in step.nodes] == [
        str(token) for token in generation.tokens[:-2]
    ]
    statuses = [[node.status for node in step.nodes] for step in generation.steps]
    assert statuses[:3] == [[], ["sampled", "forced", "forced", "forced"], ["forced"] * 4]


def test_a_graph_compiled_for_something_else_is_told_from_its_answers() -> None:
    model = FakeCompiled(shape_of(3, 8), VOCABULARY)
    target = CompiledTarget(model, shape_of(3, 9), model.lm_head, model.heads)
    model.forward = lambda **_: Output(torch.zeros(4, 1, 8, 10, dtype=torch.long))  # type: ignore[method-assign]

    with pytest.raises(
        ForwardContractError, match=r"gave torch.int64 of shape \[4, 1, 8, 10\], not hidden states \[1, 9,"
    ):
        generate(target, NO_PROPOSER, [2], compile_grammar(FREE), max_tokens=4)
