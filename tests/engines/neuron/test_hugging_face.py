from types import SimpleNamespace
from typing import Any

import pytest
import torch

from service.engines.neuron.configuration import CANDIDATES, ConfigurationError
from service.engines.neuron.forward import ForwardShape
from service.engines.neuron.hugging_face import MedusaGenerator, Unconstrained
from tests.engines.neuron.fake_compiled import FakeCompiled, greedy

VOCABULARY, HEADS = 40, 3
TREE = [[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0]]
SHAPE = ForwardShape(HEADS, len(TREE) + 1, max_context_length=24, seq_len=96)


def nxdi_model(seed: int = 0, **changes: Any) -> Any:
    """Return a loaded model as scripts have it."""
    model: Any = FakeCompiled(SHAPE, VOCABULARY, seed)
    model.config = SimpleNamespace(vocab_size=VOCABULARY, eos_token_id=None)
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


def expected(model: Any, prompt: list[int], count: int) -> list[int]:
    return prompt + greedy(model, prompt, Unconstrained(VOCABULARY, ()), count)


@pytest.mark.parametrize("seed", range(4))
def test_scripts_get_greedy_s_tokens(seed: int) -> None:
    model = nxdi_model(seed)
    ids = torch.tensor([[3, 0, 7]])

    output = generator(model).generate(ids, assistant_model=model, max_new_tokens=25)

    assert output.tolist() == [expected(model, [3, 0, 7], 25)]


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
    whole = expected(model, [3, 4], 20)[2:]
    for end in sorted(set(whole)):
        output = generator(model).generate(torch.tensor([[3, 4]]), eos_token_id=[end], max_new_tokens=20)
        assert output[0, 2:].tolist() == whole[: whole.index(end) + 1]


def test_padding_is_what_the_mask_says_and_not_token_0() -> None:
    model = nxdi_model(1)
    ids, mask = torch.tensor([[0, 0, 5, 6]]), torch.tensor([[0, 1, 1, 1]])

    output = generator(model).generate(ids, attention_mask=mask, max_new_tokens=9)

    assert output.tolist() == [[0, *expected(model, [0, 5, 6], 9)]]


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


def test_one_sequence_at_a_time() -> None:
    with pytest.raises(ValueError, match=r"input_ids is \[2, 3\]"):
        generator(nxdi_model()).generate(torch.ones(2, 3, dtype=torch.long))


def test_top_k_of_one_is_greedy_too() -> None:
    config = SimpleNamespace(do_sample=True, top_k=1, max_new_tokens=3)
    assert generator(nxdi_model()).generate(torch.tensor([[3]]), generation_config=config).shape == (1, 4)


def test_a_configuration_that_medusa_gets_wrong_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="async_mode is on"):
        generator(nxdi_model(async_mode=True))
