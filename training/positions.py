"""Training positions for the heads: the tuned model's own greedy plans, with the hidden state at every position.

Medusa heads must predict what the model will write, not what annotators wrote (Cai et al., 2024, "self-distillation"),
so the questions are real and the plans are the model's. Work is split over one process for each core; finished shards
are kept.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from service.planner.question import Question
from training.data.examples import Example
from training.settings import TrainingSettings
from training.tuned import GreedyPlan, TunedModel, run_processes

_SHARD = 250  # in questions
_NONE: NDArray[np.int64] = np.empty(0, dtype=np.int64)
_MANY = 2048  # where more tokens are legal (an open choice), the choice is treated as open


@dataclass(frozen=True, slots=True)
class Positions:
    """Plans laid end to end: P positions, where a plan's first position is the last of its prompt."""

    hidden: Tensor  # [P, H] after the final norm, bfloat16
    tokens: Tensor  # [P] the token that the model writes after each position
    lengths: Tensor  # [plans] in positions; they sum to P
    forced: Tensor  # [P] bool: the grammar left no choice
    legal: Tensor  # [L] the ids that were legal, position after position
    legal_counts: Tensor  # [P] how many of them belong to each position; 0 where forced or open
    prompts: Tensor  # the prompts' tokens, laid end to end
    prompt_lengths: Tensor  # [plans] in tokens
    prompt_hidden: Tensor  # [tokens of all prompts, H] their states

    @classmethod
    def of(cls, plans: Sequence[GreedyPlan]) -> "Positions":
        """Lay plans end to end."""
        choices = [ids for plan in plans for ids in plan.legal]
        kept = [ids if ids is not None and ids.size <= _MANY else _NONE for ids in choices]
        return cls(
            torch.cat([plan.hidden for plan in plans]).to(torch.bfloat16),
            torch.tensor([token for plan in plans for token in plan.tokens]),
            torch.tensor([len(plan.tokens) for plan in plans]),
            torch.tensor([ids is None for ids in choices]),
            torch.from_numpy(np.concatenate([_NONE, *kept])),
            torch.tensor([ids.size for ids in kept]),
            torch.tensor([token for plan in plans for token in plan.prompt]),
            torch.tensor([len(plan.prompt) for plan in plans]),
            torch.cat([plan.prompt_states for plan in plans]).to(torch.bfloat16),
        )

    @classmethod
    def join(cls, parts: Sequence["Positions"]) -> "Positions":
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def collect(settings: TrainingSettings, model_dir: Path) -> Positions:
    """Return greedy plans of training questions, as many as the heads learn from, reusing finished shards."""
    folder = settings.work / "positions"
    asked = questions_of(settings, settings.heads.questions)
    shards = [asked[start : start + _SHARD] for start in range(0, len(asked), _SHARD)]
    paths = [folder / f"{index}.pt" for index in range(len(shards))]
    folder.mkdir(parents=True, exist_ok=True)
    if not all(path.is_file() for path in paths):
        run_processes(_collect_shards, settings.processes, shards, settings, model_dir, folder)
    return Positions.join([_load(path) for path in paths])


def questions_of(settings: TrainingSettings, count: int) -> list[Question]:
    """Return the first `count` questions that drafts learn from."""
    return [example.question() for example in _examples(settings, count)]


def _examples(settings: TrainingSettings, count: int) -> list[Example]:
    """Return `count` examples, drawn from as many epochs as necessary."""
    source, rng = settings.open_source(), random.Random(f"{settings.seed}/heads")
    examples: list[Example] = []
    while len(examples) < count:
        examples += [turn for turns in source.epoch(rng) for turn in turns]
    return examples[:count]


def sample_questions(sets: dict[str, list[Example]], count: int, seed: int) -> list[Question]:
    """Draw equally many questions of every origin."""
    rng = random.Random(seed)
    each = -(-count // len(sets))
    return [
        example.question() for examples in sets.values() for example in rng.sample(examples, min(each, len(examples)))
    ]


def _collect_shards(
    rank: int, processes: int, shards: list[list[Question]], settings: TrainingSettings, model_dir: Path, folder: Path
) -> None:
    model = TunedModel(model_dir, settings.cache)
    for index in range(rank, len(shards), processes):
        path = folder / f"{index}.pt"
        if not path.is_file():
            plans = [model.greedy(question) for question in shards[index]]
            _save(Positions.of([plan for plan in plans if plan is not None]), path)
            print(f"positions: shard {index + 1}/{len(shards)}", flush=True)


def _save(positions: Positions, path: Path) -> None:
    unfinished = path.with_suffix(".partial")
    torch.save({field.name: getattr(positions, field.name) for field in fields(positions)}, unfinished)
    unfinished.replace(path)


def _load(path: Path) -> Positions:
    return Positions(**torch.load(path, weights_only=True))
