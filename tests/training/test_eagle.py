"""An EAGLE-3 head learns its target's plans, computes when served what it computed when trained, and saves forwards."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from service.decoding.draft_model import ChainShape
from service.decoding.eagle import EagleLayer, EagleModel
from service.decoding.target import CausalLM
from service.weights.eagle_head import read_eagle_head
from tests.decoding.decode import DEEP, decode_drafted, decode_greedy
from tests.decoding.tiny import compile_grammar, random_model, random_weights
from training.eagle import (
    EagleSettings,
    Seen,
    _Batch,
    _judged,
    aux_layers,
    commonest,
    layer_of,
    learn,
    seen,
    write_head,
)
from training.eagle_model import TrainableEagle
from training.tuned import GreedyPlan, choices_made

GRAMMAR = "start: /[a-g ]{30}/"
SETTINGS = EagleSettings(vocabulary=9, steps=2, epochs=12, batch_size=4, learning_rate=1e-2)
VOCABULARY, HIDDEN = DEEP.vocab_size, DEEP.hidden_size


def greedy_plan(model: CausalLM, prompt: list[int]) -> GreedyPlan:
    tokens = decode_greedy(model, prompt, compile_grammar(GRAMMAR), max_tokens=40).tokens
    return GreedyPlan(prompt, tokens, torch.empty(0), choices_made(compile_grammar(GRAMMAR), tokens), torch.empty(0))


def untrained(rows: int = VOCABULARY) -> TrainableEagle:
    weights = random_weights(DEEP, 0)["model.embed_tokens.weight"]
    return TrainableEagle(layer_of(DEEP), weights, weights[:rows])


def served(module: TrainableEagle, tokens: torch.Tensor, model: CausalLM, folder: Path) -> EagleLayer:
    write_head(module, tokens, aux_layers(DEEP.num_layers), folder)
    return EagleLayer(read_eagle_head(folder, DEEP), model)


@torch.inference_mode()
def test_every_step_is_what_the_served_layer_computes(tmp_path: Path) -> None:
    torch.manual_seed(1)
    module, model = untrained(), random_model(0, DEEP)
    for parameter in module.parameters():
        parameter.copy_(parameter.to(torch.bfloat16))  # as the file has it
    layer = served(module, torch.arange(VOCABULARY), model, tmp_path / "eagle")
    tokens, states = torch.tensor([3, 1, 4, 1, 5, 9, 2]), torch.randn(7, 3 * HIDDEN)

    outputs = module(tokens[None], states[None], 3)

    for true in (2, 4):  # entries with features of the target's
        cache = layer.new_cache(16)
        state = layer.read(layer.embedded(tokens[:true].tolist()), layer.fused(states[:true]), cache)[-1]
        for step in range(3):
            torch.testing.assert_close(outputs[step][0, true - 1 + step], state, rtol=1e-4, atol=1e-4)
            state = layer.read(layer.embedded([int(tokens[true + step])]), state[None], cache)[-1]


def test_a_later_step_never_sees_what_the_target_has_not_read() -> None:
    torch.manual_seed(1)
    module = untrained()
    tokens, states = torch.tensor([[3, 1, 4, 1, 5, 9]]), torch.randn(1, 6, 3 * HIDDEN)
    other = states.clone()
    other[0, 3:] = 0
    with torch.inference_mode():
        for step, (one, two) in enumerate(zip(module(tokens, states, 3), module(tokens, other, 3), strict=True)):
            torch.testing.assert_close(one[0, step : 3 + step], two[0, step : 3 + step])
            assert not torch.allclose(one[0, 3 + step], two[0, 3 + step])


def test_a_trained_head_saves_forwards_and_changes_no_token(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = random_model(3, DEEP)
    plans = [greedy_plan(model, [first, second]) for first in range(1, 6) for second in range(1, 5)]
    shown = [seen(model, plan) for plan in plans]
    tokens = commonest(shown, SETTINGS.vocabulary)
    weights = random_weights(DEEP, 3)["model.embed_tokens.weight"]
    module = TrainableEagle(layer_of(DEEP), weights, weights[tokens])

    right = learn(module, shown, tokens, SETTINGS)

    assert len(right) == SETTINGS.steps
    layer = served(module, tokens, model, tmp_path / "eagle")
    draft = EagleModel(model, layer, layer.new_cache(256), ChainShape(2, 0.0))
    forwards = 0
    for plan in plans[:6]:
        drafted = decode_drafted(draft, plan.prompt, compile_grammar(GRAMMAR), max_tokens=40)
        assert drafted.tokens == plan.tokens
        forwards += drafted.statistics.forwards
    greedy = sum(decode_greedy(model, plan.prompt, compile_grammar(GRAMMAR), max_tokens=40).statistics.forwards
                 for plan in plans[:6])  # fmt: skip
    assert forwards < 0.8 * greedy, "on plans that it has seen"


def test_a_token_is_learnt_only_where_a_draft_can_foretell_it() -> None:
    plan = Seen(torch.tensor([1, 2, 3, 4, 5, 6]), torch.zeros(6, 3), 3, [3, 4], [torch.tensor([4, 5])] * 2)
    index = torch.tensor([-1, -1, -1, -1, 0, 1, 2])

    batch = _Batch.of([plan], index, 3)

    assert batch.entries.tolist() == [2, 3], "the plan's first token follows the prompt, of which nothing is drafted"
    assert batch.labels.tolist() == [1, 2]
    assert batch.asked(1).tolist() == [False, True]
    assert batch.open.tolist() == [True, False], "what the grammar forces is learnt for servers that draft without it"
    assert batch.allowed.tolist() == [[True, True, False], [True, True, True]]


def test_a_guess_that_the_grammar_would_have_barred_counts_too() -> None:
    """vLLM drafts without our grammar: what only that rules out is as wrong there as any other token."""
    torch.manual_seed(1)
    module, tokens = untrained(), torch.tensor([3, 1, 4, 1, 5, 9])
    plan = Seen(tokens, torch.randn(6, 3 * HIDDEN), 2, [4, 5], [torch.tensor([1, 5]), torch.tensor([9, 2])])
    batch = _Batch.of([plan], torch.arange(VOCABULARY), VOCABULARY)
    with torch.inference_mode():
        logits = module.logits(module(batch.tokens, batch.states, 1)[0][batch.rows, batch.entries])
        under, right = _judged(module, batch, replace(SETTINGS, steps=1, alone=0.0))
        both, _ = _judged(module, batch, replace(SETTINGS, steps=1, alone=0.5))

    assert batch.labels.tolist() == [1, 5, 9]
    torch.testing.assert_close(both - under, 0.5 * torch.nn.functional.cross_entropy(logits, batch.labels))
    assert right[0].alone == pytest.approx(float((logits.argmax(-1) == batch.labels).float().mean()), abs=1e-4)


@pytest.mark.parametrize(("layers", "states"), [(30, (2, 15, 27)), (8, (2, 4, 5)), (4, (1, 2, 4)), (3, (1, 2, 3))])
def test_states_are_those_of_vllm_s_layers_where_there_are_enough(layers: int, states: tuple[int, ...]) -> None:
    assert aux_layers(layers) == states
    with pytest.raises(ValueError, match="no three states"):
        aux_layers(2)
