"""Self-speculation: the model's own first layers draft, and the layers after them verify.

Draft & Verify (Zhang et al., arXiv 2309.08168) and LayerSkip (Elhoushi et al., arXiv 2404.16710): a state that leaves
the model after its first layers goes through the final norm and the LM head, and guesses the next token. The draft's
only weights of its own are a tuned lens on that state, and nothing is computed twice: the keys and values of the first
layers are already in the target's cache, and the target continues from the states where the draft stopped.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from safetensors.torch import load_file
from torch import Tensor

from service.decoding.draft_model import ChainProposer, ChainShape
from service.decoding.kv_cache import KVCache
from service.decoding.linear import Linear, linear
from service.decoding.lm_head import HiddenScores, Scores
from service.decoding.proposer import Proposer
from service.decoding.target import CausalLM, LlamaTarget, Target
from service.decoding.tree import TokenTree


class TunedLens:
    """The tuned lens `x + W x + b`: maps an early state to the last layer's (Belrose et al., arXiv 2303.08112)."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """Make a lens of `weight` [H, H] and `bias` [H]."""
        self._weight = weight
        self._bias = bias.float()
        self._product = linear(weight)

    @classmethod
    def load(cls, path: Path) -> "TunedLens":
        """Read a .safetensors file with `weight` and `bias`. Raises ValueError for other names or shapes."""
        state = load_file(path)
        shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        hidden = shapes.get("bias", (0,))[0]
        if shapes != {"weight": (hidden, hidden), "bias": (hidden,)}:
            raise ValueError(f"{path.name} is no lens: it needs a weight [H, H] and a bias [H], and has {shapes}")
        return cls(state["weight"], state["bias"])

    @property
    def hidden_size(self) -> int:
        return self._weight.shape[0]

    def with_product(self, make: Callable[[Tensor], Linear]) -> "TunedLens":
        """Return the same lens with its matrix product made by `make`, such as `CausalLM.linear`."""
        made = copy(self)
        made._product = make(self._weight)
        return made

    def __call__(self, hidden: Tensor) -> Tensor:  # [N, H] -> [N, H] float32
        return self._product(hidden.to(self._product.dtype)).float().add_(self._bias).add_(hidden)


@dataclass(frozen=True, slots=True)
class EarlyExit:
    """Number of layers the draft runs, how far it guesses, and the lens that maps its state.

    Without a `tuned_lens` the final norm alone is applied.
    """

    layers: int
    shape: ChainShape
    tuned_lens: TunedLens | None = None


@dataclass(frozen=True, slots=True)
class EarlyExitModel:
    """The first layers of the target as its draft model."""

    target: CausalLM
    early_exit: EarlyExit

    def __post_init__(self) -> None:
        """Check the exit against the model. Raises ValueError where they do not fit."""
        config, tuned_lens = self.target.config, self.early_exit.tuned_lens
        if not 0 < self.early_exit.layers < config.num_layers:
            raise ValueError(
                f"an exit after {self.early_exit.layers} layers is not inside a model of {config.num_layers}"
            )
        if tuned_lens is not None and tuned_lens.hidden_size != config.hidden_size:
            raise ValueError(
                f"a lens for states of {tuned_lens.hidden_size} does not fit a model's of {config.hidden_size}"
            )

    def begin(self, cache: KVCache) -> tuple[Target, Proposer]:
        """Begin a new generation, in which draft and target share `cache`."""
        target = EarlyExitTarget(self.target, self.early_exit, cache)
        return target, ChainProposer(target, self.early_exit.shape)


class EarlyExitTarget(LlamaTarget):
    """One generation's forward in two parts: the draft's layers (a `DraftReader`), then the target's remaining ones."""

    def __init__(self, model: CausalLM, early_exit: EarlyExit, cache: KVCache) -> None:
        super().__init__(model, cache)
        self.draft_forwards = 0
        self._lens = early_exit.tuned_lens
        self._first = range(early_exit.layers)
        self._rest = range(early_exit.layers, model.config.num_layers)
        self._chain: TokenTree | None = None
        self._states: list[Tensor] = []  # [n, H] each, after the first layers, of the nodes that are read
        self._count = 0  # number of chain nodes that have been read

    def begin_chain(self, tree: TokenTree) -> None:
        self._chain, self._states, self._count = tree, [], 0

    def guess(self, tree: TokenTree) -> Scores:
        """Read the rest of the chain through the first layers only; row 0 scores the token after its last node."""
        self._run_first(torch.tensor(tree.tokens[self._count :], device=self.model.device))
        self.draft_forwards += 1
        hidden = self.model.final_norm(self._states[-1][-1:])
        return HiddenScores(self.model.lm_head, hidden if self._lens is None else self._lens(hidden))

    @classmethod
    def _read(cls, targets: Sequence[Self], trees: Sequence[TokenTree]) -> list[Tensor]:
        """Return the hidden states [N, H] of each chain, read one after another."""
        return [target._read_chain(tree) for target, tree in zip(targets, trees, strict=True)]

    def _read_chain(self, tree: TokenTree) -> Tensor:
        """Return the hidden states [N, H] of a chain; what the draft has read goes only through the other layers."""
        tokens, positions, mask = tree.tensors(self.model.device)
        if mask is not None:
            raise ValueError("self-speculation verifies chains, and this is a tree")
        if tree is not self._chain:
            self.begin_chain(tree)
        if self._count < len(tokens):
            self._run_first(tokens[self._count :])
        hidden = torch.cat(self._states)
        return self.model.final_norm(self.model.run_layers(hidden, positions, self.cache, self._rest))

    def _run_first(self, tokens: Tensor) -> None:
        """Read the next tokens of the chain, after the cache's kept positions and the nodes read before."""
        start = self.cache.length
        self.cache.length += self._count
        positions = torch.arange(self.cache.length, self.cache.length + len(tokens), device=self.model.device)
        self._states.append(self.model.run_layers(self.model.embed(tokens), positions, self.cache, self._first))
        self.cache.length = start
        self._count += len(tokens)
