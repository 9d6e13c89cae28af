"""Targets: the model that decides the tokens of a generation, with the state of what it has read."""

from collections.abc import Sequence
from typing import Protocol, Self

import torch
from torch import Tensor

from service.decoding.kv_cache import KVCache, PrefixCache
from service.decoding.linear import HiddenScores, Linear, LmHead, Scores
from service.decoding.llama import ForwardInput, Interruption
from service.decoding.llama_config import LlamaConfig
from service.decoding.medusa import MedusaHeads
from service.decoding.proposer import MOST_DRAFTED_NODES
from service.decoding.tree import TokenTree


class Target(Protocol):
    """The target model with the state of one generation: `LlamaTarget` or `CompiledTarget`."""

    @property
    def length(self) -> int:
        """Number of positions that are kept."""
        ...

    @property
    def most_run(self) -> int:
        """Number of tokens already emitted that the next forward can read."""
        ...

    def room(self, run: int) -> int:
        """Return how many drafted nodes the next forward can read below so many tokens already emitted."""
        ...

    def begin(self, prompt: Sequence[int], max_tokens: int) -> int:
        """Forget everything and prepare a new generation; return how many of its first tokens need not be read.

        Raises ValueError where it does not fit.
        """
        ...

    @classmethod
    def forward(cls, targets: Sequence[Self], trees: Sequence[TokenTree]) -> list[Scores]:
        """Read a tree of each of several generations at once.

        Returns for each tree scores with a row for its root and one for each node after it.
        """
        ...

    def commit(self, path: Sequence[int]) -> int:
        """Keep the run of the tree just read and the nodes of a path from its root; return the number of the latter.

        It may be smaller than the path's length: the other nodes have to be read again.
        """
        ...

    def prompt_states(self) -> Tensor | None:
        """Return the states [N, H] of the prompt, and perhaps of more after it; None where they are not all known."""
        ...


class CausalLM(Protocol):
    """A causal language model that can read a tree of new positions: Llama or NativeLlama."""

    @property
    def config(self) -> LlamaConfig: ...

    @property
    def precision(self) -> str:
        """The number format of its products: "int8", "bfloat16", ..."""

    @property
    def kernel(self) -> str:
        """The kernel that multiplies: ours ("avx2", "neon", ..., see native/library.py) or "torch"."""

    @property
    def row_cost(self) -> float:
        """Cost of one more row as a share of a forward's, where it is known: a less likely guess is not worth one."""

    @property
    def is_row_independent(self) -> bool:
        """Whether the keys, values and state of a node are the same to the last bit whatever is read with it."""

    @property
    def device(self) -> torch.device: ...

    @property
    def lm_head(self) -> LmHead: ...

    def new_cache(self, max_positions: int) -> KVCache: ...

    def stop_when(self, interruption: Interruption) -> None:
        """Have forwards raise ForwardStoppedError between two layers, from now on, where `interruption` says so."""
        ...

    def forward(self, tokens: Tensor, positions: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor: ...

    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Tensor]:
        """Do several forwards over caches of their own, at once where that is cheaper."""

    def linear(self, weight: Tensor) -> Linear: ...


class TargetWithHeads:
    """The part of a target that turns hidden states into scores: the LM head, and Medusa heads where it has them."""

    _run: int  # number of run nodes in the tree just read
    _hidden: Tensor  # [N, H], states of its nodes
    _last: Tensor  # [H], state of the last accepted position
    read_again: int = 0  # see `HeadsOfTarget`
    _of_prompt: Tensor | None = None  # [N, H], states of the prompt; before the first forward, of its known prefix

    def __init__(self, lm_head: LmHead, heads: MedusaHeads | None) -> None:
        self._lm_head = lm_head
        self._heads = heads

    @property
    def num_heads(self) -> int:
        return self._heads.num_heads if self._heads else 0

    def head_scores(self) -> Scores:
        """Return the heads' scores after the last accepted position. Raises ValueError for a model without heads."""
        if self._heads is None:
            raise ValueError("this target has no Medusa heads")
        return self._heads.scores(self._lm_head, self._last)

    def prompt_states(self) -> Tensor | None:
        """See `Target.prompt_states`: a prompt that one forward does not hold is not known whole."""
        return self._of_prompt

    def accept(self, path: Sequence[int]) -> None:
        """Guess from the last node of an accepted path, or of the run, from now on."""
        self._last = self._hidden[path[-1] if path else self._run - 1]

    def take(self, tree: TokenTree, hidden: Tensor) -> Scores:
        """Take the hidden states [N, H] of the tree just read, and return its scores."""
        self._run, self._hidden = tree.run, hidden
        if tree.first:
            read = hidden[: tree.run]
            self._of_prompt = read if self._of_prompt is None else torch.cat((self._of_prompt, read))
        return HiddenScores(self._lm_head, hidden[tree.root :])


class LlamaTarget(TargetWithHeads):
    """A model on PyTorch with the K/V cache of one generation."""

    most_drafted_nodes = MOST_DRAFTED_NODES

    def __init__(
        self,
        model: CausalLM,
        cache: KVCache,
        heads: MedusaHeads | None = None,
        prefixes: PrefixCache | None = None,
        salt: str = "",
    ) -> None:
        """Use `cache`. It should have room for a tree beyond prompt and plan: nodes without room are not drafted.

        `prefixes` has prompts that `model` has read, and gets this one; only those under `salt` are used.
        """
        super().__init__(model.lm_head, heads)
        self.model = model
        self.cache = cache
        self._prefixes, self._salt = prefixes, salt
        self._unsaved: list[int] = []  # the prompt, until it has been read

    @property
    def length(self) -> int:
        return self.cache.length

    @property
    def most_run(self) -> int:
        return self.cache.capacity - self.cache.length

    def room(self, run: int) -> int:
        return min(self.most_run - run, self.most_drafted_nodes)

    def begin(self, prompt: Sequence[int], max_tokens: int) -> int:
        """See `Target.begin`. Raises ValueError where prompt and plan fit neither the model nor the cache."""
        if len(prompt) + max_tokens > min(self.model.config.max_position_embeddings, self.cache.capacity):
            raise ValueError(f"{len(prompt)} prompt tokens and {max_tokens} more do not fit the model or the cache")
        self.cache.reset()
        self._of_prompt = None
        if self._prefixes is not None:
            self._unsaved = list(prompt)
            self._of_prompt = self._prefixes.restore(self._salt, prompt, self.cache)
        return self.cache.length

    @classmethod
    def forward(cls, targets: Sequence[Self], trees: Sequence[TokenTree]) -> list[Scores]:
        states = cls._read(targets, trees)
        return [target.take(tree, hidden) for target, tree, hidden in zip(targets, trees, states, strict=True)]

    def commit(self, path: Sequence[int]) -> int:
        self.cache.keep([*range(self._run), *path])
        if self._prefixes is not None and self._unsaved and self._of_prompt is not None:
            prompt, self._unsaved = self._unsaved, []
            self._prefixes.add(self._salt, prompt, self.cache, self._of_prompt[: len(prompt)])
        self.accept(path)
        return len(path)

    @classmethod
    def _read(cls, targets: Sequence[Self], trees: Sequence[TokenTree]) -> list[Tensor]:
        model = targets[0].model
        inputs = []
        for target, tree in zip(targets, trees, strict=True):
            tokens, positions, mask = tree.tensors(model.device)
            inputs.append(ForwardInput(tokens, positions, target.cache, mask))
        return model.forward_batch(inputs)
