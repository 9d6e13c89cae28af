"""A random Llama of two thin layers with a generated tokenizer, in the folders that the service loads."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from service.engines.protocol import GenerationRequest
from service.planner.grammar import plan_grammar
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import FILE_NAME, shipped_vocabulary
from service.settings.choices import SHIPPED_MODEL

HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 128, 2, 4, 2, 16
MEDUSA_HEADS = 3
BOS, EOS = 0, 1
MAX_TOKENS = 512  # random models name long spans
MODEL_ID = "tiny-random"
TREE = [[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0]]
QUESTIONS = ["red shoes under $40", "日本のカメラ 👟", "what about in red?", 'Does it fit a 15" laptop?', "a b c d e f"]

_CORPUS = """red running shoes for women under 40 dollars nike what about in blue where is my package waterproof hiking
boots size 10 leather bag does it fit a 15 inch laptop return policy white duvet cover queen"""


def write_tiny_model(folder: Path, *, seed: int = 0, with_heads: bool = True, max_tokens: int = MAX_TOKENS) -> Path:
    """Write `folder`/base and `folder`/model; return the model folder."""
    base, model = folder / "base", folder / "model"
    base.mkdir(parents=True)
    model.mkdir()
    tokenizer = tiny_tokenizer()
    tokenizer.save(str(base / "tokenizer.json"))
    (base / "config.json").write_text(json.dumps(_config(tokenizer.get_vocab_size())), encoding="utf-8")
    generator = torch.Generator().manual_seed(seed)
    weights = _weights(tokenizer.get_vocab_size(), generator)
    favour(weights["model.embed_tokens.weight"], tokenizer)
    save_file(weights, base / "model.safetensors")
    card = {"id": MODEL_ID, "base": "../base", "bos_token_id": BOS, "eos_token_id": EOS, "max_tokens": max_tokens}
    (model / "model.json").write_text(json.dumps(card), encoding="utf-8")
    shutil.copy(SHIPPED_MODEL / FILE_NAME, model)
    if with_heads:
        heads = {f"{head}.0.linear.weight": _random((HIDDEN, HIDDEN), generator) for head in range(MEDUSA_HEADS)}
        heads |= {f"{head}.0.linear.bias": torch.zeros(HIDDEN) for head in range(MEDUSA_HEADS)}
        save_file(heads, model / "medusa_heads.safetensors")
        (model / "medusa_tree.json").write_text(json.dumps(TREE), encoding="utf-8")
    return model


def plan_request(query: str, **more: Any) -> GenerationRequest:
    """Return the planner's request to an engine for a query."""
    question = Question.parse(query)
    return replace(
        GenerationRequest(prompt=render_prompt(question), grammar=plan_grammar(question, shipped_vocabulary())), **more
    )


def tiny_tokenizer() -> Tokenizer:
    """Return a byte-level BPE tokenizer that encodes every string; plan words are tokens of their own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    plan_words = [word for _, word in shipped_vocabulary().words()]
    corpus = [f" {word} {word.capitalize()}" for word in (*plan_words, *_CORPUS.split())] * 5
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=["<|bos|>", "<|eos|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def _config(vocab_size: int) -> dict[str, object]:
    return {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": vocab_size,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
    }


def _weights(vocab_size: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    weights = {
        "model.embed_tokens.weight": _random((vocab_size, HIDDEN), generator),
        "model.norm.weight": torch.ones(HIDDEN),
    }
    shapes = {
        "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        weights |= {f"{prefix}{name}.weight": _random(shape, generator) for name, shape in shapes.items()}
        weights |= {f"{prefix}{name}.weight": torch.ones(HIDDEN) for name in _NORMS}
    return weights


def favour(embedding: torch.Tensor, tokenizer: Tokenizer) -> None:
    """Make one feature of every hidden state large, and some words (with a space before) score high on it.

    Purely random weights would mostly write plans of one word, which test nothing.
    """
    embedding[:, 0] = 3.0
    for word in _LIVELY_WORDS:
        first, *rest = tokenizer.encode(f" {word}").ids
        if not rest:
            embedding[first, 0] = 4.5


_LIVELY_WORDS = ["find", "Find", *shipped_vocabulary().facet_of_word]
_NORMS = ("input_layernorm", "post_attention_layernorm")


def _random(shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator).mul(shape[1] ** -0.5)
