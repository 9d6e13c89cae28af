"""A head that predicts how an answer begins from the prompt's token embeddings, before any layer has run.

Medusa heads (Cai et al., arXiv 2401.10774) need a hidden state, and while the prompt is read there is none. Yet many
answers begin with one of a few phrases and then copy a word of the prompt. This head predicts from the embeddings which
phrase and which word; the guess is part of the forward that reads the prompt, and is verified like any other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from service.decoding.prefill_draft import PrefillDraft

MOST_POSITIONS = 32  # of the prompt, counted from its start
_LONGEST_WORD = 8  # in tokens
_PARTS = ("around", "mean", "position", "bias", "copy", "alone", "summary", "first", "prior")


@dataclass(frozen=True)
class PrefillHeadWeights:
    """Weights of a prefill head for K phrases, R features and embeddings of width H, all float32.

    A position's features are SiLU of `around` [R, 3H] (the embeddings before, at and after it), `mean` [R, H] (the
    prompt's mean), `position` [MOST_POSITIONS, R] and `bias` [R]. `copy` [K, R] turns them into the score that the
    answer is a phrase and then this token; `alone` [K, R], on the features of the mean only, that it copies nothing.
    `summary` [K, H] (of the mean), `first` [K, H] (of the first token) and `prior` [K] are added to both.
    """

    around: Tensor
    mean: Tensor
    position: Tensor
    bias: Tensor
    copy: Tensor
    alone: Tensor
    summary: Tensor
    first: Tensor
    prior: Tensor

    def scores(self, embeddings: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores [B, T, K] of copying each token after each phrase, and [B, K] of copying none.

        `embeddings` [B, T + 1, H] start with the prompt's beginning-of-sequence token; the last one follows the last
        token that may be copied. `mask` [B, T] is true where a token is; the first one is never copied.
        """
        here = embeddings[:, :-1]
        before = F.pad(here, (0, 0, 1, 0))[:, :-1]
        mean = (here * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        mixed = mean @ self.mean.T
        window = torch.cat([before, here, embeddings[:, 1:]], -1)
        features = F.silu(window @ self.around.T + mixed[:, None] + self.position[: here.shape[1]] + self.bias)
        either = mean @ self.summary.T + embeddings[:, 1] @ self.first.T + self.prior
        copied = features @ self.copy.T + either[:, None]
        return copied.masked_fill(~mask[..., None], -torch.inf), F.silu(mixed) @ self.alone.T + either


class PrefillHead:
    """The phrases with which answers begin, and the weights that choose among them."""

    def __init__(self, phrases: Sequence[Sequence[int]], weights: PrefillHeadWeights, p_min: float) -> None:
        """Draft only guesses that are at least as likely as `p_min`.

        Raises ValueError where the numbers of phrases and of weights for them differ.
        """
        if len(phrases) != weights.prior.shape[0]:
            raise ValueError(f"{len(phrases)} phrases, and weights for {weights.prior.shape[0]}")
        self._phrases = [tuple(phrase) for phrase in phrases]
        self._beginnings = sorted({phrase[: end + 1] for phrase in self._phrases for end in range(len(phrase))})
        shared = [[phrase[: len(begun)] == begun for phrase in self._phrases] for begun in self._beginnings]
        self._shared = torch.tensor(shared).float()  # [beginnings, K]
        self._weights = weights
        self.p_min = p_min

    @property
    def hidden_size(self) -> int:
        """Width of the embeddings that it reads."""
        return self._weights.summary.shape[1]

    def at_least(self, probability: float) -> "PrefillHead":
        """Return the same head with another `p_min`."""
        return PrefillHead(self._phrases, self._weights, probability)

    @torch.inference_mode()
    def guess(
        self, prompt: Sequence[int], embed: Callable[[Tensor], Tensor], goes_on: Callable[[int], bool]
    ) -> PrefillDraft:
        """Return the beginnings worth drafting for a prompt (its beginning-of-sequence token included).

        `embed` maps tokens [N] to the model's input embeddings [N, H]. A word is copied whole: `goes_on` tells whether
        a token continues the word of the token before it.
        """
        tokens = torch.tensor([*prompt[: MOST_POSITIONS + 1]])
        if len(tokens) < 3:
            return PrefillDraft()
        embeddings = embed(tokens).float()[None]
        mask = torch.ones((1, len(tokens) - 1), dtype=torch.bool)
        mask[0, 0] = False
        copied, alone = self._weights.scores(embeddings, mask)
        shares = torch.cat([copied[0], alone]).flatten().softmax(0).view(-1, len(self._phrases))  # [T + 1, K]
        of_phrases = shares.sum(0)
        begun = (self._shared @ of_phrases >= self.p_min).nonzero().flatten().tolist()
        sequences = [self._beginnings[index] for index in begun]
        for phrase in (of_phrases >= self.p_min).nonzero().flatten().tolist():
            sequences += self._continued(phrase, shares[:-1, phrase].tolist(), prompt, goes_on)
        return PrefillDraft.from_sequences(sequences)

    def _continued(
        self, phrase: int, shares: list[float], prompt: Sequence[int], goes_on: Callable[[int], bool]
    ) -> list[tuple[int, ...]]:
        """Return the continuations of a phrase with the words that it likely copies."""
        sequences: list[tuple[int, ...]] = []
        for position, share in enumerate(shares):
            if share < self.p_min:
                continue
            end = position + 1
            while end < min(len(prompt), position + _LONGEST_WORD) and goes_on(prompt[end]):
                end += 1
            # Each further token of a word costs one row, and the whole word saves one step.
            end = end if share >= self.p_min * (end - position) else position + 1
            sequences.append((*self._phrases[phrase], *prompt[position:end]))
        return sequences


def load_prefill_head_weights(path: Path) -> PrefillHeadWeights:
    """Read a .safetensors file. Raises ValueError where a tensor is missing or unknown."""
    state = load_file(path)
    if set(state) != set(_PARTS):
        raise ValueError(f"{path.name} is no prefill head: {', '.join(sorted(set(state) ^ set(_PARTS)))}")
    return PrefillHeadWeights(**{name: tensor.float() for name, tensor in state.items()})
