"""Batches of encoded examples, bucketed by length to limit padding, and the loss over their targets."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from training.data.examples import IGNORED, EncodedExample

_BATCHES_A_BUCKET = 24


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch: tokens and targets [B, T] (right-padded), mask [B, T] true where a token is."""

    tokens: Tensor
    targets: Tensor
    mask: Tensor

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.tokens.to(device), self.targets.to(device), self.mask.to(device))


def collate(examples: Sequence[EncodedExample], padding: int) -> Batch:
    """Right-pad examples to the length of the longest."""
    length = max(len(example.tokens) for example in examples)
    tokens = torch.full((len(examples), length), padding)
    targets = torch.full((len(examples), length), IGNORED)
    for row, example in enumerate(examples):
        tokens[row, : len(example.tokens)] = torch.tensor(example.tokens)
        targets[row, : len(example.targets)] = torch.tensor(example.targets)
    lengths = torch.tensor([len(example.tokens) for example in examples])
    return Batch(tokens, targets, torch.arange(length)[None, :] < lengths[:, None])


def batches(examples: Sequence[EncodedExample], size: int, rng: random.Random) -> Iterator[Sequence[EncodedExample]]:
    """Yield shuffled batches of similar lengths: sorted inside buckets, then the batches are shuffled."""
    made: list[Sequence[EncodedExample]] = []
    span = size * _BATCHES_A_BUCKET
    for start in range(0, len(examples), span):
        bucket = sorted(examples[start : start + span], key=lambda example: len(example.tokens))
        made += [bucket[index : index + size] for index in range(0, len(bucket), size)]
    rng.shuffle(made)
    yield from made


def plan_loss(logits: Tensor, targets: Tensor, target_sets: dict[int, Tensor]) -> Tensor:
    """Return the mean negative log-likelihood of targets; a negative target is any token of its set.

    logits [P, V] at the supervised positions, targets [P]; target_sets maps each set's code to its token ids.
    """
    log_probabilities = functional.log_softmax(logits.float(), dim=-1)
    chosen = log_probabilities.gather(1, targets.clamp(min=0)[:, None]).squeeze(1)
    for code, ids in target_sets.items():
        of_set = targets == code
        if of_set.any():
            chosen = torch.where(of_set, torch.logsumexp(log_probabilities[:, ids], dim=-1), chosen)
    return -chosen.mean()
