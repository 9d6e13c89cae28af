"""Batches of encoded examples, bucketed by length to limit padding, and the loss over their targets."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from training.data.examples import IGNORED, EncodedExample

_BUCKET = 1024  # examples


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch: tokens, targets and positions [B, T], right-padded; mask [B, 1, T, T], 0 where a token may attend."""

    tokens: Tensor
    targets: Tensor
    positions: Tensor
    mask: Tensor

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.tokens.to(device), self.targets.to(device), self.positions.to(device), self.mask.to(device))


def collate(examples: Sequence[EncodedExample], padding: int) -> Batch:
    """Right-pad examples to the length of the longest. A plan sees what was said before it, and itself."""
    length = max(len(example.tokens) for example in examples)
    tokens = torch.full((len(examples), length), padding)
    targets = torch.full((len(examples), length), IGNORED)
    positions = torch.zeros((len(examples), length), dtype=torch.long)
    segments = torch.full((len(examples), length), -1)
    for row, example in enumerate(examples):
        size = len(example.tokens)
        tokens[row, :size] = torch.tensor(example.tokens)
        targets[row, :size] = torch.tensor(example.targets)
        positions[row, :size] = torch.tensor(example.positions)
        segments[row, :size] = torch.tensor(example.segments)
    asking, asked = segments[:, :, None], segments[:, None, :]
    sees = ((asked == 0) | (asked == asking)) & torch.ones(length, length, dtype=torch.bool).tril()
    mask = torch.zeros(sees.shape).masked_fill(~sees, torch.finfo(torch.float32).min)
    return Batch(tokens, targets, positions, mask[:, None])


def batches(examples: Sequence[EncodedExample], size: int, rng: random.Random) -> Iterator[Sequence[EncodedExample]]:
    """Yield shuffled batches of similar lengths and at most `size` tokens, padding counted, or of one example."""
    made: list[Sequence[EncodedExample]] = []
    for start in range(0, len(examples), _BUCKET):
        bucket = sorted(examples[start : start + _BUCKET], key=lambda example: len(example.tokens))
        batch: list[EncodedExample] = []
        for example in bucket:
            if batch and (len(batch) + 1) * len(example.tokens) > size:
                made.append(batch)
                batch = []
            batch.append(example)
        made.append(batch)
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
