"""EAGLE-3 (Li et al., arXiv 2503.01840): one layer drafts a chain from what the target's own layers have seen.

Entry i of the draft reads the token at position i + 1 beside a feature of position i, and guesses the token at i + 2.
The feature comes from the states after three of the target's layers, where the target has read the position, and is
the draft's own output where it has not: such entries are read anew once the target has. As with any draft, the target
decides which tokens come (`verification.py`).
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.constraint import Constraint
from service.decoding.draft_model import ChainProposer, ChainShape
from service.decoding.kv_cache import KVCache
from service.decoding.linear import Linear
from service.decoding.llama import rotary_table
from service.decoding.llama_config import LlamaConfig
from service.decoding.lm_head import LmHead, Scores
from service.decoding.proposer import Budget, Proposer
from service.decoding.target import CausalLM, LlamaTarget, Target
from service.decoding.tree import TokenTree

_UNKNOWN = np.float32(-1e30)  # the score of a token that the draft's vocabulary lacks; finite, so that shares are, too
LAYER = "midlayer."


@dataclass(frozen=True, eq=False)
class EagleHead:
    """An EAGLE-3 head as its file has it.

    `config` is its layer's, `weights` are named as SafeAILab/EAGLE and vLLM name them ("midlayer."), with
    `embed_tokens` only where they are not the target's. `layers` say after how many of the target's layers states are
    taken. `tokens` [draft vocabulary] int64 are the target's ids of the tokens that `lm_head` scores.
    """

    config: LlamaConfig
    weights: Mapping[str, Tensor]
    layers: tuple[int, ...]
    tokens: Tensor
    norm_before_residual: bool = False


class EagleLayer:
    """The head's layer and LM head, laid out as its target's own products are."""

    def __init__(self, head: EagleHead, target: CausalLM) -> None:
        """Fit a head to its target. Raises ValueError where it is another model's."""
        _refuse_other_target(head, target.config)
        self.config, self.layers = head.config, head.layers
        self._norm_before_residual = head.norm_before_residual
        self._target = target
        self._embedding = head.weights.get("embed_tokens.weight")
        self._norms = {
            name: head.weights[f"{name}.weight"].float()
            for name in ("norm", *(f"{LAYER}{each}" for each in ("input_layernorm", "hidden_norm")))
        }
        self._norms["post"] = head.weights[f"{LAYER}post_attention_layernorm.weight"].float()

        def product(*names: str) -> Linear:
            return target.linear(torch.cat([head.weights[f"{name}.weight"] for name in names]).float())

        attention, mlp = f"{LAYER}self_attn.", f"{LAYER}mlp."
        self._fuse = product("fc")
        self._qkv = product(*(f"{attention}{name}_proj" for name in "qkv"))
        self._output = product(f"{attention}o_proj")
        self._gate_up = product(f"{mlp}gate_proj", f"{mlp}up_proj")
        self._down = product(f"{mlp}down_proj")
        self._lm_head = LmHead(head.weights["lm_head.weight"].float())
        self._rotary = rotary_table(self.config, target.device)
        self._index = np.full(target.config.vocab_size, -1, np.int64)  # of each of the target's tokens in the draft's
        self._index[head.tokens.numpy()] = np.arange(len(head.tokens))

    def new_cache(self, positions: int) -> KVCache:
        shape = (1, 2, self.config.num_kv_heads, positions, self.config.head_dim)
        return KVCache(torch.zeros(shape, device=self._target.device))

    def fused(self, states: Tensor) -> Tensor:
        """Return the features [N, H] of the states [N, 3H] of the target's layers."""
        return self._fuse(states).float()

    def embedded(self, tokens: Sequence[int]) -> Tensor:
        """Return the tokens' embeddings [N, H] float32."""
        ids = torch.tensor(tokens, device=self._target.device)
        if self._embedding is None:
            return self._target.embed(ids).float()
        return self._embedding.index_select(0, ids).float()

    def read(self, embedded: Tensor, features: Tensor, cache: KVCache) -> Tensor:
        """Read N entries [N, H] after those that the cache keeps, and keep them; return the states [N, H]."""
        count, start = len(features), cache.length
        normed = self._normalised(features, f"{LAYER}hidden_norm")
        entry = torch.cat((self._normalised(embedded, f"{LAYER}input_layernorm"), normed), 1)
        hidden = normed if self._norm_before_residual else features
        hidden = hidden + self._output(self._attended(self._qkv(entry).float(), cache)).float()
        gate, up = self._gate_up(self._normalised(hidden, "post")).float().chunk(2, 1)
        cache.keep(range(count))
        assert cache.length == start + count
        return hidden + self._down(F.silu(gate) * up).float()

    def scores(self, state: Tensor) -> Scores:
        """Return the scores of the token after one state [H]."""
        return _DraftScores(self._lm_head, self._normalised(state, "norm"), self._index)

    def _normalised(self, states: Tensor, norm: str) -> Tensor:
        weight = self._norms[norm]
        return F.rms_norm(states, weight.shape, weight, self.config.rms_norm_eps)

    def _attended(self, qkv: Tensor, cache: KVCache) -> Tensor:
        """Write the entries' keys and values, and return what their queries attend to, [N, heads x head_dim]."""
        count, heads, kv_heads = len(qkv), self.config.num_heads, self.config.num_kv_heads
        width, visible = self.config.head_dim, cache.length + len(qkv)
        each = qkv.view(count, heads + 2 * kv_heads, width)
        cosine, sine = self._rotary[cache.length : visible].unsqueeze(2).unbind(1)  # [N, 1, head_dim] each
        turned = each[:, : heads + kv_heads]
        turned = turned * cosine + turned.roll(width // 2, -1) * sine
        keys, values, new = cache.window(count, visible)[0]
        new.copy_(torch.stack((turned[:, heads:], each[:, heads + kv_heads :])).transpose(1, 2))
        unseen = torch.ones((count, visible), dtype=torch.bool, device=qkv.device).triu(1 + cache.length)
        # The heads that share keys are stacked as rows of one product, as in `Llama`.
        asked = turned[:, :heads].reshape(count, kv_heads, -1, width).permute(1, 2, 0, 3).reshape(kv_heads, -1, width)
        weights = (asked @ keys * width**-0.5).masked_fill(unseen.repeat(heads // kv_heads, 1), float("-inf"))
        attended: Tensor = weights.softmax(-1) @ values
        return attended.view(heads, count, width).transpose(0, 1).reshape(count, heads * width)


class _DraftScores:
    """`Scores` of one state [H] over a draft vocabulary: `index` has a token's place there, or -1."""

    def __init__(self, lm_head: LmHead, state: Tensor, index: NDArray[np.int64]) -> None:
        self._lm_head, self._state, self._index = lm_head, state, index

    def of(self, row: int, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        assert row == 0
        places = self._index[token_ids]
        known = places >= 0
        scores = np.full(token_ids.size, _UNKNOWN)
        scores[known] = self._lm_head.of_tokens(self._state, places[known])
        return scores


@dataclass(frozen=True, slots=True)
class EagleModel:
    """An EAGLE-3 head as its target's draft model. `cache` is its layer's, as long as the target's."""

    target: CausalLM
    layer: EagleLayer
    cache: KVCache
    shape: ChainShape

    def begin(self, cache: KVCache) -> tuple[Target, Proposer]:
        """Begin a new generation in the target's `cache`."""
        target = EagleTarget(self.target, self.layer, self.cache, cache)
        return target, EagleProposer(target, self.shape)


class EagleProposer(ChainProposer):
    """Drafts from the first forward after the prompt's on: before it, the target has seen nothing."""

    def propose(self, tree: TokenTree, grammar: Constraint | Future[Constraint], budget: Budget) -> None:
        if tree.start:
            super().propose(tree, grammar, budget)


class EagleTarget(LlamaTarget):
    """One generation's target, which keeps the states of its layers for the draft, and the draft's `DraftReader`."""

    def __init__(self, model: CausalLM, layer: EagleLayer, draft_cache: KVCache, cache: KVCache) -> None:
        super().__init__(model, cache)
        self.draft_forwards = 0
        self._layer = layer
        self._drafted = draft_cache
        self._tokens: list[int] = []  # that the target has kept
        self._chain: list[int] = []  # that it has read last, and their states [N, 3H]
        self._states = self._unread = self._none  # the latter of kept positions that the draft has not read
        self._true = 0  # entries read whose features are the target's
        self._state = self._true_state = self._none  # [H] after the last entry, and after the last true one

    def begin(self, prompt_tokens: int, max_tokens: int) -> None:
        super().begin(prompt_tokens, max_tokens)
        self._drafted.reset()
        self._tokens, self._true, self._unread = [], 0, self._none

    def commit(self, path: Sequence[int]) -> int:
        rows = [*range(self._run), *path]
        self._tokens += [self._chain[row] for row in rows]
        self._unread = torch.cat((self._unread, self._states[rows]))
        return super().commit(path)

    def begin_chain(self, tree: TokenTree) -> None:
        """Forget the entries of the last chain, whose features were the draft's own."""
        assert tree.start == len(self._tokens)
        self._drafted.length = self._true

    def guess(self, tree: TokenTree) -> Scores:
        """Read the entries of the chain that are not read yet; row 0 scores the token after its last node."""
        tokens = self._tokens + tree.tokens
        if len(self._unread):
            after = tokens[self._true + 1 : self._true + 1 + len(self._unread)]
            self._read_entries(after, self._layer.fused(self._unread))
            self._true, self._true_state = self._drafted.length, self._state
            self._unread = self._unread[:0]
        elif self._drafted.length == self._true:
            self._state = self._true_state
        while self._drafted.length < len(tokens) - 1:
            self._read_entries([tokens[self._drafted.length + 1]], self._state[None])
        return self._layer.scores(self._state)

    @classmethod
    def _read(cls, targets: Sequence[Self], trees: Sequence[TokenTree]) -> list[Tensor]:
        """Return the hidden states [N, H] of each chain, read one after another."""
        return [target._read_chain(tree) for target, tree in zip(targets, trees, strict=True)]

    def _read_chain(self, tree: TokenTree) -> Tensor:
        """Return the hidden states [N, H] of a chain, and keep those after the head's layers."""
        tokens, positions, mask = tree.tensors(self.model.device)
        if mask is not None:
            raise ValueError("EAGLE-3 drafts chains, and this is a tree")
        hidden, done, seen = self.model.embed(tokens), 0, []
        for layers in (*self._layer.layers, self.model.config.num_layers):
            if layers > done:
                hidden = self.model.run_layers(hidden, positions, self.cache, range(done, layers))
                done = layers
            seen.append(hidden.float().clone())  # what is run on may be overwritten
        self._states = torch.cat(seen[:-1], 1)  # the last is what the target itself goes on with
        self._chain = list(tree.tokens)
        return self.model.final_norm(hidden)

    def _read_entries(self, tokens: Sequence[int], features: Tensor) -> None:
        self._state = self._layer.read(self._layer.embedded(tokens), features, self._drafted)[-1]
        self.draft_forwards += 1

    @property
    def _none(self) -> Tensor:
        return torch.zeros((0, len(self._layer.layers) * self.model.config.hidden_size), device=self.model.device)


def _refuse_other_target(head: EagleHead, target: LlamaConfig) -> None:
    """Raise ValueError unless the head is of this target's shape."""
    if head.config.hidden_size != target.hidden_size:
        raise ValueError(
            f"an EAGLE-3 head for states of {head.config.hidden_size} does not fit a model's of {target.hidden_size}"
        )
    if int(head.tokens.min()) < 0 or int(head.tokens.max()) >= target.vocab_size:
        raise ValueError(
            f"an EAGLE-3 head that drafts tokens {int(head.tokens.min())} to {int(head.tokens.max())} does not fit a "
            f"vocabulary of {target.vocab_size}"
        )
    taken = list(head.layers)
    if taken != sorted(set(taken)) or taken[0] < 1 or taken[-1] > target.num_layers:
        raise ValueError(
            f"an EAGLE-3 head that reads states after layers {', '.join(map(str, taken))} does not fit a model of "
            f"{target.num_layers}"
        )
