"""Random small models of every architecture that is served, made and written by transformers, with heads of ours."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

from service.decoding.constraint import GrammarCompiler
from tests.tiny_model import BOS, EOS, favour, plan_request, tiny_tokenizer

QUERY = "red nike running shoes under $100"
MEDUSA_HEADS = 3
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,  # so that waves of every length are among those of a small head
}
# Widths differ on purpose: the kernels like multiples of 64, and heads of 16.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama-2": {"model_type": "llama", "num_key_value_heads": 4, "tie_word_embeddings": False},
    "llama-3": {"model_type": "llama", "rope_parameters": LLAMA3_ROPE},
    "llama-biased": {"model_type": "llama", "attention_bias": True, "hidden_size": 72, "head_dim": 18},
    "mistral-v0.1": {"model_type": "mistral", "sliding_window": 2048, "tie_word_embeddings": False},
    "mistral-v0.2": {
        "model_type": "mistral", "sliding_window": None, "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    },
    "qwen2": {"model_type": "qwen2", "hidden_size": 56, "num_attention_heads": 7, "num_key_value_heads": 1},
    "qwen3": {"model_type": "qwen3", "head_dim": 24, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    "smollm2": {"model_type": "llama", "num_attention_heads": 3, "num_key_value_heads": 1, "hidden_size": 48},
    "smollm3": {"model_type": "smollm3", "num_hidden_layers": 4},
}  # fmt: skip


def config_of(name: str, vocab_size: int) -> Any:
    """Return transformers' configuration of a small model of that architecture."""
    common = {
        "vocab_size": vocab_size, "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096, "initializer_range": 0.15,
        "tie_word_embeddings": True, "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": EOS,
    }  # fmt: skip
    fields = {**common, **ARCHITECTURES[name]}
    if transformers.__version__ < "5" and (rope := dict(fields.pop("rope_parameters", {}))):  # NxDI's
        fields |= {"rope_theta": rope.pop("rope_theta")} | ({"rope_scaling": rope} if len(rope) > 1 else {})
    return AutoConfig.for_model(**fields)


def random_base(name: str, seed: int = 0, vocab_size: int = 128) -> Any:
    """Return a model of transformers whose norms and biases are random, too, so that each of them counts."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config_of(name, vocab_size), dtype=torch.float32).eval()
    for parameter in model.parameters():
        if parameter.ndim == 1:
            is_norm = bool((parameter == 1).all())
            torch.nn.init.normal_(parameter, mean=1.0 if is_norm else 0.0, std=0.3)
    return model


def write_base(folder: Path, name: str, seed: int = 0, tokenizer: Tokenizer | None = None, **saved: Any) -> Path:
    """Write a checkpoint as transformers does, with a tokenizer of plan words; `saved` goes to save_pretrained."""
    tokenizer = tokenizer or tiny_tokenizer()
    model = random_base(name, seed, tokenizer.get_vocab_size())
    favour(model.get_input_embeddings().weight.data, tokenizer)
    model.save_pretrained(folder, **saved)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def write_heads(folder: Path, hidden: int, seed: int = 0) -> Path:
    """Write random Medusa heads in FasterDecoding's layout; return their file."""
    generator = torch.Generator().manual_seed(seed)
    heads = {}
    for head in range(MEDUSA_HEADS):
        heads[f"{head}.0.linear.weight"] = torch.randn((hidden, hidden), generator=generator) * hidden**-0.5
        heads[f"{head}.0.linear.bias"] = torch.zeros(hidden)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(heads, folder / "medusa_heads.safetensors")
    return folder / "medusa_heads.safetensors"


def in_the_form_of_transformers_4(base: Path) -> None:
    """Rewrite a config.json that transformers 5 wrote: what it has in `rope_parameters` stands at the top there."""
    path = base / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config), encoding="utf-8")


def hidden_size(base: Path) -> int:
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    return int(config["hidden_size"])


def transformers_greedy(base: Path, query: str = QUERY) -> list[int]:
    """Return the plan that transformers' model writes under the grammar, reading the whole text for each token."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    request = plan_request(query)
    constraint = GrammarCompiler(tokenizer.to_str(), EOS).compile(request.grammar)
    prompt = [BOS, *tokenizer.encode(request.prompt, add_special_tokens=False).ids]
    tokens: list[int] = []
    while not constraint.finished():
        forced = constraint.forced()
        if not forced:
            with torch.inference_mode():
                logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, -1].numpy()
            legal = constraint.legal()
            forced = [int(legal[np.argmax(logits[legal])])]
        constraint.accept(forced)
        tokens += forced
    return tokens
