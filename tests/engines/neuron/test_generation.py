"""Decoding on compiled graphs: greedy's tokens, whatever is drafted."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rehearsal.bench import neuron_loop
from service.decoding.constraint import Constraint
from service.decoding.generation import RunningGeneration, generate
from service.decoding.medusa import MedusaProposer
from service.decoding.proposer import NO_PROPOSER, ChainProposer, PredictionProposer, PromptCopyProposer, Proposer
from service.decoding.statistics import Generation
from service.decoding.tree import MedusaTree
from service.engines.neuron.configuration import CANDIDATES, ConfigurationError
from service.engines.neuron.forward import CompiledTarget, ForwardContractError, ForwardShape
from service.engines.neuron.hugging_face import MedusaGenerator, Unconstrained
from service.settings import Settings
from tests.decoding.test_drafting import Foretold, foretold, given_as
from tests.decoding.tiny import (
    CONFIG,
    certain,
    check_statistics,
    choices,
    compile_grammar,
    grammars,
    numbers,
    pending,
    prompts,
    traced_tokens,
)
from tests.engines.neuron.fake_compiled import PUBLISHED_TREE, FakeCompiled, Output, greedy, shared

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
    shape = replace(
        shape_of(num_heads, draw(st.integers(1, 14)), batch_size=draw(st.integers(1, 2))), is_chain=draw(st.booleans())
    )
    model = FakeCompiled(shape, VOCABULARY, draw(st.integers(0, 7)))
    return model, MedusaTree.from_choices(draw(choices(num_heads)), num_heads)


@given(graphs(), grammars(), prompts(), foretold, st.integers(1, 40), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_drafts_on_any_graph_give_greedy_s_tokens(
    graph: tuple[FakeCompiled, MedusaTree],
    grammar: str,
    prompt: list[int],
    prediction: Foretold,
    max_tokens: int,
    copies: bool,
    compiling: bool,
    fast_forward: bool,
) -> None:
    """Check trees, copies of the prompt and predictions, and a batch's graph, which reads a long prompt in pieces."""
    model, tree = graph
    expected = greedy(model, prompt, compile_grammar(grammar), max_tokens)

    for name in ("nothing", "heads", "prediction"):
        target = model.target()
        drafts: Proposer = MedusaProposer(target, tree) if name != "nothing" else NO_PROPOSER
        if copies and name != "nothing":
            drafts = PromptCopyProposer(prompt, drafts)
        if name == "prediction":
            drafts = prediction.of(expected, drafts)
        if model.shape.is_chain and name != "nothing":
            drafts = ChainProposer(drafts)
        model.calls = 0
        found = generate(
            target, drafts, prompt, given_as(grammar, compiling=compiling), max_tokens=max_tokens,
            fast_forward=fast_forward or name == "prediction", trace=numbers,
        )  # fmt: skip
        check_statistics(found)
        assert (found.tokens, found.statistics.forwards) == (expected, model.calls)
        assert traced_tokens(found) == expected or not found.steps


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("tree", "rows", "is_chain"), [(WIDE, 24, False), (WIDE, 6, True), (PUBLISHED_TREE, 64, False)]
)
def test_a_tree_or_the_best_chain_of_it_saves_forwards(
    seed: int, tree: list[list[int]], rows: int, is_chain: bool
) -> None:
    model = FakeCompiled(replace(shape_of(4, rows), is_chain=is_chain), VOCABULARY, seed)

    generation = decode(model, MedusaTree.from_choices(tree, 4), [3, 4], compile_grammar(FREE), 40)

    assert generation.tokens == greedy(model, [3, 4], compile_grammar(FREE), 40)
    assert generation.statistics.forwards < 40


def test_a_forced_run_costs_no_decision_and_is_read_in_pieces_where_it_is_longer_than_a_step() -> None:
    grammar = 'start: ("a" | "c") " abcd ef abcd ef abcd ef abcd" ("a" | "c") "gg"'
    model = FakeCompiled(shape_of(2, 4), VOCABULARY, seed=2)

    found = generate(model.target(), NO_PROPOSER, [3], compile_grammar(grammar), max_tokens=30, trace=numbers)

    assert found.tokens == greedy(model, [3], compile_grammar(grammar), 30)
    assert found.statistics.decisions == 2
    assert [len(step.emitted) for step in found.steps] == found.statistics.accepted_per_step
    assert [node.token_text for step in found.steps for node in step.nodes] == list(map(str, found.tokens[:-2]))
    statuses = [[node.status for node in step.nodes] for step in found.steps]
    assert statuses[:3] == [[], ["sampled", "forced", "forced", "forced"], ["forced"] * 4]


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


@pytest.mark.parametrize("seed", range(4))
def test_what_is_drafted_with_a_prompt_saves_forwards(seed: int) -> None:
    """Check a right beginning: it fits below a prompt of 3 tokens, and is a step late below one that fills a step."""
    rows = 10
    for prompt, saves in (([2, 3, 4], 4), ([2] * rows, 3), ([2] * (rows + 1), 3)):
        model = FakeCompiled(shape_of(2, rows), VOCABULARY, seed)
        expected = greedy(model, prompt, compile_grammar(FREE), 12)
        # The last is not drafted, and after the wrong ones before it the prediction has no more.
        proposer = PredictionProposer(certain([*expected[:4], 0, 0]), NO_PROPOSER)

        generation = generate(model.target(), proposer, prompt, pending(compile_grammar(FREE)), max_tokens=12)

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
    """Check a graph of several sequences: beside any others the tokens are those of greedy decoding."""
    alone, tree = graph
    model = FakeCompiled(replace(alone.shape, batch_size=batch_size), VOCABULARY, alone.seed)

    def starts(grammar: str, prompt: list[int], drafts: bool, max_tokens: int) -> Callable[[int], RunningGeneration]:
        def start(sequence: int) -> RunningGeneration:
            target = model.target(sequence=sequence)
            proposer = drafting(target, tree) if drafts else NO_PROPOSER
            return RunningGeneration(target, proposer, list(prompt), compile_grammar(grammar), max_tokens)

        return start

    found = shared([starts(*each) for each in waiting], batch_size, lambda: data.draw(st.booleans(), label="joins"))
    assert found == [
        greedy(alone, prompt, compile_grammar(grammar), max_tokens) for grammar, prompt, _, max_tokens in waiting
    ]


def test_a_graph_compiled_for_something_else_is_told_from_its_answers() -> None:
    model = FakeCompiled(shape_of(3, 8), VOCABULARY)
    target = CompiledTarget(model, shape_of(3, 9), model.lm_head, model.heads)
    model.forward = lambda **_: Output(torch.zeros(4, 1, 8, 10, dtype=torch.long))  # type: ignore[method-assign]

    with pytest.raises(
        ForwardContractError, match=r"gave torch.int64 of shape \[4, 1, 8, 10\], not hidden states \[1, 9,"
    ):
        generate(target, NO_PROPOSER, [2], compile_grammar(FREE), max_tokens=4)


NXDI_VOCABULARY, HEADS = 40, 3
TREE = [[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0]]
SHAPE = ForwardShape(HEADS, len(TREE) + 1, max_context_length=24, seq_len=96)


def nxdi_model(seed: int = 0, **changes: Any) -> Any:
    """Return a loaded model as scripts have it."""
    model: Any = FakeCompiled(SHAPE, NXDI_VOCABULARY, seed)
    model.config = SimpleNamespace(vocab_size=NXDI_VOCABULARY, eos_token_id=None)
    arguments = {
        "is_medusa": True,
        "medusa_speculation_length": SHAPE.rows,
        "num_medusa_heads": HEADS,
        "medusa_tree": TREE,
        "max_context_length": SHAPE.max_context_length,
        "seq_len": SHAPE.seq_len,
        "max_new_tokens": 30,
        "on_device_sampling_config": SimpleNamespace(top_k=CANDIDATES, global_topk=CANDIDATES),
    }
    model.neuron_config = SimpleNamespace(**{**arguments, **changes})
    return model


def generator(model: Any, **options: Any) -> MedusaGenerator:
    return MedusaGenerator(model, model.lm_head, model.heads, **options)


def continued(model: Any, prompt: list[int], count: int) -> list[int]:
    return prompt + greedy(model, prompt, Unconstrained(NXDI_VOCABULARY, ()), count)


@pytest.mark.parametrize("seed", range(4))
def test_scripts_get_greedy_s_tokens(seed: int) -> None:
    model = nxdi_model(seed)
    ids, top_one = torch.tensor([[3, 0, 7]]), SimpleNamespace(do_sample=True, top_k=1, max_new_tokens=25)

    ways: list[dict[str, Any]] = [{"max_new_tokens": 25}, {"generation_config": top_one}]
    for options in ways:
        output = generator(model).generate(ids, assistant_model=model, **options)
        assert output.tolist() == [continued(model, [3, 0, 7], 25)]
    with pytest.raises(ValueError, match=r"input_ids is \[2, 3\]"):
        generator(model).generate(torch.ones(2, 3, dtype=torch.long))


def test_lengths_are_those_of_the_call_then_of_the_configuration() -> None:
    model = nxdi_model()
    ids = torch.tensor([[3, 4, 5]])
    ours = generator(model)

    assert ours.generate(ids, max_new_tokens=7).shape == (1, 10)
    assert ours.generate(ids, max_length=12).shape == (1, 12)
    assert ours.generate(ids, generation_config=SimpleNamespace(max_new_tokens=5)).shape == (1, 8)
    assert ours.generate(ids).shape == (1, 33)
    longest = SHAPE.seq_len - SHAPE.needed(3, 0)
    assert ours.generate(ids, max_length=SHAPE.seq_len).shape == (1, 3 + longest)


def test_an_end_token_ends_it_even_where_it_equals_a_count() -> None:
    """Check the end token; stock NxDI compares the number of new tokens with it."""
    model = nxdi_model(2)
    whole = continued(model, [3, 4], 20)[2:]
    for end in sorted(set(whole)):
        output = generator(model).generate(torch.tensor([[3, 4]]), eos_token_id=[end], max_new_tokens=20)
        assert output[0, 2:].tolist() == whole[: whole.index(end) + 1]


def test_padding_is_what_the_mask_says_and_not_token_0() -> None:
    model = nxdi_model(1)
    ids, mask = torch.tensor([[0, 0, 5, 6]]), torch.tensor([[0, 1, 1, 1]])

    output = generator(model).generate(ids, attention_mask=mask, max_new_tokens=9)

    assert output.tolist() == [[0, *continued(model, [0, 5, 6], 9)]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"do_sample": True}, "is greedy"),
        ({"generation_config": SimpleNamespace(do_sample=True, top_k=50)}, "is greedy"),
        ({"assistant_model": object()}, "must be the Medusa model itself"),
        ({"num_beams": 4}, "has no num_beams"),
        ({"logits_processor": []}, "has no logits_processor"),
    ],
)
def test_what_would_have_to_be_ignored_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        generator(nxdi_model()).generate(torch.tensor([[3]]), **arguments)


def test_a_configuration_that_medusa_gets_wrong_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="async_mode is on"):
        generator(nxdi_model(async_mode=True))


QUESTIONS = 100


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_a_plan_takes_few_forwards_fewer_with_more_rows_and_none_is_other_than_greedy_s() -> None:
    """Rows beyond the tree's copy the question."""
    settings = Settings()
    tree = json.loads((settings.model_dir / "medusa_tree.json").read_text(encoding="utf-8"))

    of_tree, more = (
        neuron_loop.measure(settings.model_dir, settings.cache_dir, rows, QUESTIONS, compare=True)
        for rows in (len(tree) + 1, 32)
    )

    assert more["forwards"] < of_tree["forwards"] < of_tree["greedy_forwards"] / 2
    assert {each[name] for each in (of_tree, more) for name in ("finished", "identical_to_greedy")} == {QUESTIONS}
