"""Self-speculation: the model's own first layers draft, and the layers after them verify.

Draft & Verify (Zhang et al., arXiv 2309.08168) and LayerSkip (Elhoushi et al., arXiv 2404.16710): a state that leaves
the model after its first layers goes through the final norm and the LM head, and guesses the next token. The draft has
no weights of its own but a lens on that state, and nothing is computed twice: the keys and values of the first layers
lie where the target wants them, in its own cache, and the target goes on from the states where the draft stopped.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import load_file
from torch import Tensor

from service.decoding.draft import TokenTree
from service.decoding.kv_cache import KVCache
from service.decoding.linear import Linear, linear
from service.decoding.lm_head import HiddenScores, Scores
from service.decoding.model import TargetModel
from service.decoding.speculation import ChainShape, Speculation


class LayeredModel(TargetModel, Protocol):
    """A model that can stop between two layers and go on later: `Llama` or `NativeLlama`."""

    def run_layers(self, hidden: Tensor, positions: Tensor, cache: KVCache, layers: range) -> Tensor:
        """`hidden` [N, H] of a chain, which may be overwritten, after some more layers. Else as `Model.forward`."""
        ...

    def final_norm(self, hidden: Tensor) -> Tensor:
        """The final norm of [N, H]."""
        ...


class TunedLens:
    """`x + W x + b`: a state that leaves early, as it might leave the last layer (Belrose et al., arXiv 2303.08112)."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """`weight` [H, H], `bias` [H]."""
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
        """The same with its product made by `make`, such as `Model.linear`."""
        made = copy(self)
        made._product = make(self._weight)
        return made

    def __call__(self, hidden: Tensor) -> Tensor:  # [N, H] -> [N, H] float32
        return self._product(hidden.to(self._product.dtype)).float().add_(self._bias).add_(hidden)


@dataclass(frozen=True, slots=True)
class EarlyExit:
    """After how many layers the draft leaves the model, how far it guesses, and what makes a guess of its state.

    Without a `tuned_lens` the final norm alone must do.
    """

    layers: int
    shape: ChainShape
    tuned_lens: TunedLens | None = None


@dataclass(frozen=True, slots=True)
class SelfDraft:
    """The first layers of the target as its draft."""

    target: LayeredModel
    early_exit: EarlyExit

    def __post_init__(self) -> None:
        """Raises ValueError where this exit is none of this model."""
        layers, hidden, tuned_lens = (
            self.target.config.num_layers,
            self.target.config.hidden_size,
            self.early_exit.tuned_lens,
        )
        if not 0 < self.early_exit.layers < layers:
            raise ValueError(f"an exit after {self.early_exit.layers} layers is not inside a model of {layers}")
        if tuned_lens is not None and tuned_lens.hidden_size != hidden:
            raise ValueError(f"a lens for states of {tuned_lens.hidden_size} does not fit a model's of {hidden}")

    def speculate(self, cache: KVCache) -> Speculation:
        """A new generation, whose draft and target both read into `cache`."""
        shared = SharedForward(self.target, self.early_exit, cache)
        return Speculation(shared, shared, self.early_exit.shape)


class SharedForward:
    """One generation's forward in two parts: the draft's (a `DraftReader`), and the target's (a `Model`) after it."""

    def __init__(self, model: LayeredModel, early_exit: EarlyExit, cache: KVCache) -> None:
        self.config = model.config
        self.precision = model.precision
        self.device = model.device
        self.lm_head = model.lm_head
        self.new_cache = model.new_cache
        self.embed = model.embed
        self.linear = model.linear
        self.logits = model.logits
        self.draft_forwards = 0
        self._model = model
        self._lens = early_exit.tuned_lens
        self._cache = cache
        self._first = range(early_exit.layers)
        self._rest = range(early_exit.layers, model.config.num_layers)
        self._states: list[Tensor] = []  # [n, H] each, after the first layers: of the chain, as far as it is read
        self._read = 0

    def begin(self, nodes: TokenTree) -> None:
        del nodes  # nothing of it has been read
        self._states, self._read = [], 0

    @torch.inference_mode()
    def read(self, nodes: TokenTree) -> Scores:
        self._run_first(torch.tensor(nodes.tokens[self._read :], device=self.device))
        self.draft_forwards += 1
        hidden = self._model.final_norm(self._states[-1][-1:])
        return HiddenScores(self.lm_head, hidden if self._lens is None else self._lens(hidden))

    @torch.inference_mode()
    def forward(self, tokens: Tensor, positions: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor:
        """As `Model.forward`, of the chain that was drafted: what the draft has read goes through the rest alone."""
        if mask is not None or cache is not self._cache:
            raise ValueError("self-speculation verifies chains, in the cache where they were drafted")
        if self._read < len(tokens):
            self._run_first(tokens[self._read :])
        hidden = torch.cat(self._states)
        return self._model.final_norm(self._model.run_layers(hidden, positions, cache, self._rest))

    def _run_first(self, tokens: Tensor) -> None:
        """Read the next tokens of the chain, after what is kept of the cache and what was read before."""
        start = self._cache.length
        self._cache.length += self._read
        positions = torch.arange(self._cache.length, self._cache.length + len(tokens), device=self.device)
        self._states.append(self._model.run_layers(self._model.embed(tokens), positions, self._cache, self._first))
        self._cache.length = start
        self._read += len(tokens)
