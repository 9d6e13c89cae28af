"""What of an architecture NxDI 0.8 would compute otherwise, without a word, is refused by name; processors serve it."""

from typing import Any

import pytest

from service.decoding.llama_config import LlamaConfig
from service.engines.neuron.architectures import architecture_problems

CONFIG = {
    "model_type": "llama", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
LINEAR = {"rope_type": "linear", "factor": 2.0}


def problems(changes: dict[str, Any], positions: int = 64) -> list[str]:
    return [*architecture_problems(LlamaConfig.from_dict({**CONFIG, **changes}), positions)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rope_scaling": LINEAR}, "of type 'linear' of a llama is not in NxDI 0.8"),
        ({"model_type": "qwen3", "rope_scaling": LLAMA3}, "of type 'llama3' of a qwen3 is not in NxDI 0.8"),
        ({"model_type": "qwen2", "head_dim": 24}, "takes a qwen2's heads for 16 wide, not 24"),
        ({"model_type": "qwen3", "attention_bias": True}, "leaves out the attention bias of a qwen3"),
    ],
)
def test_what_nxdi_would_compute_otherwise_is_named(changes: dict[str, Any], words: str) -> None:
    (problem,) = problems(changes)
    assert words in problem


@pytest.mark.parametrize("changes", [{}, {"rope_scaling": LLAMA3}, {"model_type": "qwen2"}, {"attention_bias": True}])
def test_what_it_computes_is_compiled(changes: dict[str, Any]) -> None:
    assert not problems(changes)


def test_no_sequence_is_compiled_that_the_model_does_not_attend_to() -> None:
    assert not problems({}, 4096)
    (problem,) = problems({"model_type": "mistral", "sliding_window": 512}, 576)
    assert "sequence_length 576 is more than the 512 positions" in problem
