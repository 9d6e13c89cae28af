"""Random models of two thin layers, a tokenizer of a few merges, grammars over it, and decoding with all of them."""

import json
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from service.decoding.constraint import Constraint, GrammarCompiler, GrammarConstraint
from service.decoding.generation import generate
from service.decoding.kv_cache import KVCache
from service.decoding.llama import Llama
from service.decoding.llama_config import LlamaConfig
from service.decoding.medusa import MedusaHeads, MedusaProposer
from service.decoding.proposer import MOST_DRAFTED_NODES, NO_PROPOSER, Predicted, PredictionProposer
from service.decoding.statistics import Generation
from service.decoding.target import CausalLM, LlamaTarget
from service.decoding.tree import MedusaTree

EOS = 0
ALPHABET = "abcdefg "
# "Ġ" is the byte-level name of a space.
MERGES = [
    ("a", "b"),
    ("ab", "c"),
    ("c", "d"),
    ("Ġ", "a"),
    ("Ġ", "ab"),
    ("Ġab", "cd"),
    ("e", "f"),
    ("Ġ", "ef"),
    ("g", "g"),
]


@cache
def tokenizer() -> Tokenizer:
    symbols = [character.replace(" ", "Ġ") for character in ALPHABET]
    words = ["<eos>", *symbols, *(left + right for left, right in MERGES)]
    vocabulary = {word: index for index, word in enumerate(words)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=MERGES))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<eos>"])
    return made


@cache
def compiler() -> GrammarCompiler:
    return GrammarCompiler(tokenizer().to_str(), EOS)


def compile_grammar(lark: str) -> GrammarConstraint:
    return compiler().compile(lark)


def encode(text: str) -> list[int]:
    return list(tokenizer().encode(text, add_special_tokens=False).ids)


def ids(*words: str) -> list[int]:
    """Return the ids of tokens by their text."""
    vocabulary = tokenizer().get_vocab()
    return [vocabulary[word.replace(" ", "Ġ")] for word in words]


CONFIG = LlamaConfig(
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=tokenizer().get_vocab_size(),
    rms_norm_eps=1e-5,
    rope_theta=1000.0,
    max_position_embeddings=256,
    tie_word_embeddings=True,
)
UNTIED = replace(CONFIG, tie_word_embeddings=False)


def layer_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a layer's weights, by Hugging Face's names."""
    hidden, inner, heads, kv_heads = (
        config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim,
        config.num_kv_heads * config.head_dim,
    )  # fmt: skip
    return {
        "self_attn.q_proj": (heads, hidden), "self_attn.k_proj": (kv_heads, hidden),
        "self_attn.v_proj": (kv_heads, hidden), "self_attn.o_proj": (hidden, heads),
        "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner),
        "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
    }  # fmt: skip


def random_weights(config: LlamaConfig, seed: int) -> dict[str, Tensor]:
    """Return random weights with Hugging Face's names, large enough for every layer to matter."""
    generator = torch.Generator().manual_seed(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens": (config.vocab_size, config.hidden_size), "model.norm": (config.hidden_size,)
    }  # fmt: skip
    if not config.tie_word_embeddings:
        shapes["lm_head"] = (config.vocab_size, config.hidden_size)
    for layer in range(config.num_layers):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in layer_shapes(config).items()}
    return {
        f"{name}.weight": torch.randn(shape, generator=generator) * (2 / shape[-1] ** 0.5 if len(shape) > 1 else 1)
        for name, shape in shapes.items()
    }


@cache
def random_model(seed: int, config: LlamaConfig = CONFIG, dtype: torch.dtype = torch.float32) -> Llama:
    return Llama(config, random_weights(config, seed), dtype)


@cache
def random_heads(seed: int, count: int, config: LlamaConfig = CONFIG) -> MedusaHeads:
    generator = torch.Generator().manual_seed(seed)
    hidden = config.hidden_size
    return MedusaHeads(
        torch.randn((count, hidden, hidden), generator=generator) / hidden**0.5,
        torch.randn((count, hidden), generator=generator),
    )


def forward_all(model: Llama, tokens: list[int]) -> Tensor:
    """Return hidden states [N, H] of a sequence read at once into a fresh cache."""
    return model.forward(torch.tensor(tokens), torch.arange(len(tokens)), model.new_cache(len(tokens)))


def reference_greedy(model: Llama, prompt: list[int], constraint: Constraint, max_tokens: int) -> tuple[list[int], int]:
    """Return textbook greedy tokens, the whole sequence read again for every decision, and their decisions."""
    tokens: list[int] = []
    decisions = 0
    while not constraint.finished() and len(tokens) < max_tokens:
        step = constraint.forced()[: max_tokens - len(tokens)]
        if not step:
            legal = constraint.legal()
            logits = model.lm_head.logits(forward_all(model, prompt + tokens)[-1:])[0].numpy()
            step = [int(legal[np.argmax(logits[legal])])]
            decisions += 1
        constraint.accept(step)
        tokens += step
    return tokens, decisions


def literals() -> st.SearchStrategy[str]:
    return st.text(ALPHABET, min_size=1, max_size=7).map(json.dumps)


def _regexes() -> st.SearchStrategy[str]:
    return st.sampled_from(["/[a-d]{1,4}/", "/( [abe]+){1,3}/", "/g*e?f{2,5}/", "/( [a-g]{1,3}){2}/", "/[ab ]{5}/"])


def _compound(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    some = st.lists(parts, min_size=2, max_size=4)
    return st.one_of(
        some.map(lambda chosen: f"({' '.join(chosen)})"),
        some.map(lambda chosen: f"({' | '.join(chosen)})"),
        parts.map(lambda part: f"({part})?"),
        parts.map(lambda part: f"({part}){{1,3}}"),
    )


def grammars() -> st.SearchStrategy[str]:
    """Draw Lark grammars of finite languages: literals to force, alternatives to decide, and regexes."""
    rules = st.recursive(st.one_of(literals(), _regexes()), _compound, max_leaves=8)
    return st.tuples(literals(), rules, literals()).map(lambda parts: f"start: {' '.join(parts)}")


def prompts() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, CONFIG.vocab_size - 1), min_size=1, max_size=12)


def choices(num_heads: int) -> st.SearchStrategy[list[list[int]]]:
    """Draw prefix-closed lists of choices: empty, chains, wide and deep ones, in any order."""
    paths = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=num_heads), max_size=6)

    def close(chosen: list[list[int]]) -> list[list[int]]:
        prefixes = {tuple(path[:length]) for path in chosen for length in range(1, len(path) + 1)}
        return [list(path) for path in prefixes]

    return paths.map(close).flatmap(st.permutations)


FREE = "start: /[a-g ]{30}/"
NARROW = replace(CONFIG, hidden_size=128, intermediate_size=192, num_heads=4, num_kv_heads=2, head_dim=32, num_layers=3)


def decode_greedy(
    model: CausalLM,
    prompt: Sequence[int],
    grammar: Constraint | Future[Constraint],
    *,
    max_tokens: int,
    cache: KVCache | None = None,
    **options: Any,
) -> Generation:
    """Decode autoregressively, in a cache that is just large enough."""
    target = LlamaTarget(model, cache or model.new_cache(len(prompt) + max_tokens))
    return generate(target, NO_PROPOSER, prompt, grammar, max_tokens=max_tokens, **options)


def decode_medusa(
    model: CausalLM,
    heads: MedusaHeads,
    tree: MedusaTree,
    prompt: Sequence[int],
    grammar: Constraint | Future[Constraint],
    *,
    max_tokens: int,
    predicted: Predicted = (),
    cache: KVCache | None = None,
    **options: Any,
) -> Generation:
    """Decode with Medusa heads, and an optional prediction."""
    target = LlamaTarget(model, cache or _roomy_cache(model, prompt, max_tokens), heads)
    proposer = PredictionProposer(predicted, MedusaProposer(target, tree))
    return generate(target, proposer, prompt, grammar, max_tokens=max_tokens, **options)


def _roomy_cache(model: CausalLM, prompt: Sequence[int], max_tokens: int) -> KVCache:
    return model.new_cache(len(prompt) + max_tokens + MOST_DRAFTED_NODES)


def certain(tokens: Sequence[int]) -> Predicted:
    """Return a prediction that is sure of these tokens."""
    return [(token, 1.0) for token in tokens]


def pending(grammar: Constraint) -> Future[Constraint]:
    """Return a grammar as one that is compiled beside the prompt's forward."""
    made: Future[Constraint] = Future()
    made.set_result(grammar)
    return made


def numbers(tokens: Sequence[int]) -> str:
    """Return token ids as a trace's text."""
    return " ".join(map(str, tokens))


def traced_tokens(generation: Generation) -> list[int]:
    """Return the tokens emitted by the steps of a generation traced with `numbers`."""
    return [int(text) for step in generation.steps for text in step.emitted]


def check_statistics(generation: Generation) -> None:
    statistics = generation.statistics
    assert statistics.plan_tokens == len(generation.tokens)
    assert statistics.decisions + statistics.forced_tokens == statistics.plan_tokens
    assert len(generation.probabilities) == len(generation.tokens)
    assert all(0 < probability <= 1 for probability in generation.probabilities)
    assert len(statistics.accepted_per_step) == statistics.forwards
    assert sum(statistics.accepted_per_step) == (statistics.plan_tokens if statistics.forwards else 0)
