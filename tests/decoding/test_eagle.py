"""EAGLE-3 drafts: greedy's tokens whatever the head, and the head's own arithmetic beside a plain reference of it."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from service.decoding.draft_model import ChainShape
from service.decoding.eagle import LAYER, EagleHead, EagleLayer, EagleModel, EagleTarget
from service.decoding.llama_config import LlamaConfig
from service.decoding.native_llama import NativeLlama
from service.decoding.target import CausalLM
from service.decoding.tree import TokenTree
from tests.decoding.decode import DEEP, EAGER, FREE, NARROW, check_statistics, decode_drafted, decode_greedy
from tests.decoding.tiny import compile_grammar, grammars, prompts, random_model, random_weights
from tests.eagle_heads import random_head

CAPACITY = 256
PROMPT = [3, 1, 4, 1, 5, 9]


def drafting(model: CausalLM, head: EagleHead, shape: ChainShape = EAGER) -> EagleModel:
    layer = EagleLayer(head, model)
    return EagleModel(model, layer, layer.new_cache(CAPACITY), shape)


@given(
    grammars(), prompts(), st.integers(0, 7), st.integers(1, 40), st.sampled_from([0, 5]), st.booleans(),
    st.builds(ChainShape, longest=st.integers(0, 7), p_min=st.sampled_from([0.0, 0.5, 1.0])),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_any_head_drafts_what_greedy_writes(
    grammar: str, prompt: list[int], seed: int, max_tokens: int, vocabulary: int, before: bool, shape: ChainShape
) -> None:
    model = random_model(seed, DEEP)
    draft = drafting(model, random_head(seed, DEEP, vocabulary=vocabulary, before=before), shape)
    greedy = decode_greedy(model, prompt, compile_grammar(grammar), max_tokens=max_tokens)

    for _ in range(2):  # its cache is used again
        drafted = decode_drafted(draft, prompt, compile_grammar(grammar), max_tokens=max_tokens)
        assert drafted.tokens == greedy.tokens
        assert drafted.statistics.decisions == greedy.statistics.decisions
        assert drafted.statistics.forwards <= greedy.statistics.forwards
        check_statistics(drafted)


def test_over_the_int8_kernels_tokens_are_greedy_s(library: ctypes.CDLL) -> None:
    for seed in range(6):
        model = NativeLlama(NARROW, random_weights(NARROW, seed), library)
        draft = drafting(model, random_head(seed, NARROW))
        greedy = decode_greedy(model, PROMPT, compile_grammar(FREE), max_tokens=40)
        drafted = decode_drafted(draft, PROMPT, compile_grammar(FREE), max_tokens=40)
        assert drafted.tokens == greedy.tokens
        assert drafted.statistics.draft_forwards > 0


class Plain:
    """The head as vLLM computes it (models/llama_eagle3.py), over a whole sequence of entries each time."""

    def __init__(self, head: EagleHead, target: LlamaConfig, embedding: Tensor) -> None:
        self.head, self.embedding = head, embedding
        self.target = random_model(0, target)

    def weight(self, name: str) -> Tensor:
        return self.head.weights[f"{name}.weight"]

    def norm(self, states: Tensor, name: str) -> Tensor:
        return F.rms_norm(states, (states.shape[-1],), self.weight(name), self.head.config.rms_norm_eps)

    def attend(self, entry: Tensor) -> Tensor:
        config, count = self.head.config, len(entry)
        query, key, value = (
            (entry @ self.weight(f"{LAYER}self_attn.{name}_proj").T).view(count, -1, config.head_dim).transpose(0, 1)
            for name in "qkv"
        )
        angles = torch.outer(torch.arange(count).float(), torch.tensor(config.rope_frequencies))
        cosine, sine = (torch.cat((each, each), 1) for each in (angles.cos(), angles.sin()))

        def turn(states: Tensor) -> Tensor:
            first, second = states.chunk(2, -1)
            return states * cosine + torch.cat((-second, first), -1) * sine

        groups = config.num_heads // config.num_kv_heads
        key, value = turn(key).repeat_interleave(groups, 0), value.repeat_interleave(groups, 0)
        attended = F.scaled_dot_product_attention(turn(query), key, value, is_causal=True)
        return attended.transpose(0, 1).reshape(count, -1) @ self.weight(f"{LAYER}self_attn.o_proj").T

    def states(self, tokens: list[int], features: Tensor) -> Tensor:
        """Return the states of entries of the tokens after each feature's position."""
        normed = self.norm(features, f"{LAYER}hidden_norm")
        embedded = self.norm(self.embedding[tokens], f"{LAYER}input_layernorm")
        residual = normed if self.head.norm_before_residual else features
        hidden = residual + self.attend(torch.cat((embedded, normed), 1))
        inner = self.norm(hidden, f"{LAYER}post_attention_layernorm")
        gate, up = (inner @ self.weight(f"{LAYER}mlp.{name}_proj").T for name in ("gate", "up"))
        return hidden + (F.silu(gate) * up) @ self.weight(f"{LAYER}mlp.down_proj").T

    def scores(self, tokens: list[int], features: Tensor) -> Tensor:
        """Return the scores of what follows `tokens`, whose last ones have no feature of the target's."""
        features = features @ self.weight("fc").T
        while len(features) < len(tokens) - 1:
            features = torch.cat((features, self.states(tokens[1 : len(features) + 1], features)[-1:]))
        state = self.norm(self.states(tokens[1:], features)[-1:], "norm")
        return (state @ self.weight("lm_head").T)[0]


@pytest.mark.parametrize("before", [False, True])
def test_its_scores_are_those_of_a_plain_reference(*, before: bool) -> None:
    model, weights = random_model(0, DEEP), random_weights(DEEP, 0)
    head = random_head(1, DEEP, vocabulary=9, before=before)
    plain = Plain(head, DEEP, weights["model.embed_tokens.weight"])
    target, _ = drafting(model, head).begin(model.new_cache(CAPACITY))
    assert isinstance(target, EagleTarget)

    def features(tokens: list[int]) -> Tensor:
        cache, positions = model.new_cache(CAPACITY), torch.arange(len(tokens))
        states = [
            model.run_layers(model.embed(torch.tensor(tokens)), positions, cache, range(count)).clone()
            for count in head.layers
        ]
        return torch.cat(states, 1)

    with torch.inference_mode():
        target.begin(len(PROMPT), 30)
        kept = list(PROMPT)
        tree = TokenTree(PROMPT)
        EagleTarget.forward([target], [tree])
        target.commit([])
        for run, guessed, accepted in (([7], [2, 6], 1), ([5, 8, 3], [4], 0), ([2], [1, 3, 9], 3)):
            tree = TokenTree(run, len(kept))
            target.begin_chain(tree)
            for token in [*guessed, None]:
                found = target.guess(tree).of(0, head.tokens.numpy())
                expected = plain.scores(kept + tree.tokens, features(kept))
                torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-4)
                if token is not None:
                    tree.add(len(tree.tokens) - 1, token)
            EagleTarget.forward([target], [tree])
            target.commit(range(len(run), len(run) + accepted))
            kept += tree.tokens[: len(run) + accepted]


def test_a_token_outside_its_vocabulary_is_never_its_guess() -> None:
    model, head = random_model(0, DEEP), random_head(0, DEEP, vocabulary=4)
    target, _ = drafting(model, head).begin(model.new_cache(CAPACITY))
    assert isinstance(target, EagleTarget)
    with torch.inference_mode():
        target.begin(len(PROMPT), 20)
        EagleTarget.forward([target], [TokenTree(PROMPT)])
        target.commit([])
        tree = TokenTree([2], len(PROMPT))
        target.begin_chain(tree)
        scores = target.guess(tree).of(0, np.arange(DEEP.vocab_size))
    assert set(np.argsort(scores)[-4:].tolist()) == set(head.tokens.tolist())
    assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (random_head(0, replace(DEEP, hidden_size=64)), "for states of 64 does not fit a model's of 32"),
        (random_head(0, DEEP, layers=(1, 2, 5)), "after layers 1, 2, 5 does not fit a model of 4"),
        (random_head(0, replace(DEEP, vocab_size=90)), "does not fit a vocabulary of"),
    ],
)
def test_a_head_of_another_model_is_refused(head: EagleHead, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        EagleLayer(head, random_model(0, DEEP))
