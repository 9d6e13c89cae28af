"""Train the kind head (`service/decoding/kind_head.py`): what a question is about, read from the model's own states.

It learns from the needs that also teach the vectors of words (`training.needs`), whose vectors stay as they are: a
need's words and the head together must point at the name of the category that meets it. Half of the words are left out,
each time others, so that the head learns to tell what they do not. Whether a text tells a need at all is a logistic
regression on the same states, beside searches that name things and questions that no shop sells anything for.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from service.decoding.kind_head import KindHeadWeights, features_of
from service.decoding.llama import ForwardInput
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.shop.meanings import WORD_VECTORS, space_of
from service.planner.vocabulary import Vocabulary
from service.weights.seal import seal_again
from training.data.rows import read_rows
from training.data.written import asked_examples
from training.needs import NAMED_LEVELS, Need, named_products, named_things, read_needs, summed, word_numbers
from training.settings import TrainingSettings
from training.tuned import TunedModel

_FEATURES: Final = 512
_EPOCHS: Final = 6
_BATCH: Final = 256
_RATE: Final = 1e-3
_DECAY: Final = 0.01
_TEMPERATURE: Final = 0.07
_WORDS_DROPPED: Final = 0.5
_DROPPED: Final = 0.3  # of what the head reads and of its features
_GATE_EPOCHS: Final = 5
_GATE_DECAY: Final = 0.05
_TURNED_AWAY: Final = {"clinc_train_sample": 1500, "bitext_support": 1000}  # texts for which no shop sells anything
_TURNED_AWAY_WEIGHT: Final = 2.0  # of each of them, beside 1 of any other text
_LEAST_SCALE: Final = 1e-3
_SEQUENCES: Final = 24  # that are read at once
_LONGEST: Final = 110  # tokens


class Words(NamedTuple):
    """The word vectors among which a head points: the number of each word, and its vector."""

    numbers: dict[str, int]
    vectors: Tensor  # [words, size]
    space: str


def read_words(file: Path = WORD_VECTORS) -> Words:
    """Return the vectors that `training.word_vectors` wrote."""
    with np.load(file) as found:
        words, vectors = found["words"].tobytes().decode().split("\n"), found["vectors"]
    numbers = {word: number for number, word in enumerate(words)}
    return Words(numbers, torch.from_numpy(vectors.astype(np.float32)), space_of(words, vectors))


def read_states(model: TunedModel, texts: Sequence[str]) -> Tensor:
    """Return what a head reads of each text, [texts, 2H], as the model is served."""
    caches = [model.llama.new_cache(_LONGEST) for _ in range(_SEQUENCES)]
    found = []
    for first in range(0, len(texts), _SEQUENCES):
        inputs = []
        for text, cache in zip(texts[first : first + _SEQUENCES], caches, strict=False):
            prompt = PlanTask(Question.parse(text), model.vocabulary).prompt
            tokens = torch.tensor([*model.tokens_of(prompt)][:_LONGEST])
            cache.reset()
            inputs.append(ForwardInput(tokens, torch.arange(len(tokens)), cache, None))
        found += [features_of(states) for states in model.llama.forward_batch(inputs)]
        if not first % (_SEQUENCES * 100):
            print(f"states: {len(found):,} of {len(texts):,}", flush=True)
    return torch.stack(found)


class _Head(nn.Module):
    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, _FEATURES)
        self.outer = nn.Linear(_FEATURES, size)
        nn.init.normal_(self.outer.weight, std=1e-3)  # it begins by adding nothing
        nn.init.zeros_(self.outer.bias)

    def forward(self, read: Tensor) -> Tensor:  # [N, 2H] -> [N, S]
        inner = functional.gelu(self.inner(functional.dropout(read, _DROPPED, self.training)))
        added: Tensor = self.outer(functional.dropout(inner, _DROPPED, self.training))
        return added


def train_head(read: Tensor, needs: Sequence[Need], words: Words) -> _Head:
    """Return a head trained on normalised states [needs, 2H] of needs that each have a category."""
    torch.manual_seed(0)
    chance = random.Random(0)
    bags = nn.EmbeddingBag.from_pretrained(words.vectors, freeze=True, mode="sum")
    named = {need.path: word_numbers(words.numbers, " ".join(need.path[-NAMED_LEVELS:])) for need in needs}
    said = [word_numbers(words.numbers, need.text) for need in needs]
    rows = [row for row, need in enumerate(needs) if said[row] and named[need.path]]
    head = _Head(read.shape[1], words.vectors.shape[1])
    adam = torch.optim.AdamW(head.parameters(), lr=_RATE, weight_decay=_DECAY)
    batch_size = min(_BATCH, len(rows))
    for epoch in range(_EPOCHS):
        for group in adam.param_groups:
            group["lr"] = _RATE * (1 - epoch / _EPOCHS)
        chance.shuffle(rows)
        losses = []
        for first in range(0, len(rows) - batch_size + 1, batch_size):
            batch = rows[first : first + batch_size]
            paths = list(dict.fromkeys(needs[row].path for row in batch))
            places = {path: at for at, path in enumerate(paths)}
            kept = [[word for word in said[row] if chance.random() >= _WORDS_DROPPED] or said[row] for row in batch]
            pointed = functional.normalize(summed(bags, kept) + head(read[batch]), dim=-1)
            close = pointed @ summed(bags, [named[path] for path in paths]).T
            right = torch.tensor([places[needs[row].path] for row in batch])
            losses.append(functional.cross_entropy(close / _TEMPERATURE, right))
            adam.zero_grad()
            losses[-1].backward()  # type: ignore[no-untyped-call]
            adam.step()
        print(f"kind head, epoch {epoch + 1}: loss {torch.stack(losses).mean().item():.3f}", flush=True)
    return head.eval()


def train_gate(read: Tensor, labels: Tensor, weights: Tensor) -> nn.Linear:
    """Return the logistic regression that tells needs (label 1) from all else, on normalised states [N, 2H]."""
    torch.manual_seed(0)
    gate = nn.Linear(read.shape[1], 1)
    adam = torch.optim.AdamW(gate.parameters(), lr=_RATE, weight_decay=_GATE_DECAY)
    for _ in range(_GATE_EPOCHS):
        for batch in torch.randperm(len(read)).split(_BATCH):  # type: ignore[no-untyped-call]
            odds = gate(read[batch])[:, 0]
            loss = functional.binary_cross_entropy_with_logits(odds, labels[batch], weights[batch])
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
    return gate


def turned_away(data: Path) -> list[str]:
    """Return texts of the data folder that are about an order, or about nothing that a shop has."""
    chance = random.Random(0)
    found = []
    for name, most in _TURNED_AWAY.items():
        texts = [row["text"] for row in read_rows(data / f"{name}.jsonl.gz")]
        found += chance.sample(texts, min(most, len(texts)))
    chance.shuffle(found)
    return found


def turned_away_of_ours(vocabulary: Vocabulary) -> list[str]:
    """Return our own sentences about no product, for a recipe whose data folder holds somebody's rows."""
    intents = vocabulary.intents
    said = ((each.draft.intent, each.query) for each in asked_examples("train"))
    found = [text for intent, text in said if intent in intents and not intents[intent].products]
    random.Random(0).shuffle(found)
    return found


def train_kind_head(
    model: TunedModel, needs: Sequence[Need], named: Sequence[str], away: Sequence[str], words: Words
) -> KindHeadWeights:
    """Return the weights of a head that learns from needs, from texts that name things, and from those turned away.

    A need without a category is none.
    """
    texts = [*(need.text for need in needs), *named, *away]
    states = read_states(model, texts)
    centre, scale = states.mean(0), states.std(0) + _LEAST_SCALE
    none = torch.zeros(1)
    blank = KindHeadWeights(centre, scale, none, none, none, none, none, none)
    read = blank.read(states)
    told = [row for row, need in enumerate(needs) if need.path]
    head = train_head(read[told], [needs[row] for row in told], words)
    labels = torch.zeros(len(texts))
    labels[told] = 1.0
    weights = torch.ones(len(texts))
    weights[len(texts) - len(away) :] = _TURNED_AWAY_WEIGHT
    gate = train_gate(read, labels, weights)
    parts = (head.inner.weight, head.inner.bias, head.outer.weight, head.outer.bias, gate.weight, gate.bias)
    return KindHeadWeights(centre, scale, *(part.detach() for part in parts))


def add_kind_head(settings: TrainingSettings, folder: Path) -> None:
    """Train the head of a model folder and write it there; `settings` say from how many texts.

    Own rows have no needs, and their folder no public data: then it learns from texts of ours alone.
    """
    words, many, model = read_words(), settings.kind_head, TunedModel(folder, settings.cache)
    is_public = settings.source is None
    named = named_things(settings.data) if is_public else named_products()
    away = turned_away(settings.data) if is_public else turned_away_of_ours(model.vocabulary)
    needs, chance = read_needs(), random.Random(1)
    chance.shuffle(named)
    if len(needs) > many.needs:
        needs = chance.sample(needs, many.needs)
    weights = train_kind_head(model, needs, named[: many.named], away[: many.turned_away], words)
    write_kind_head(folder, weights, words.space)


def write_kind_head(folder: Path, weights: KindHeadWeights, space: str) -> None:
    """Write the head into a model folder, in bfloat16 but what normalises, and note it in the folder's seal."""
    kept = {"centre", "scale"}
    state = {
        name: (part if name in kept else part.to(torch.bfloat16)).contiguous() for name, part in vars(weights).items()
    }
    save_file(state, folder / "kind_head.safetensors")
    (folder / "kind_head.json").write_text(json.dumps({"space": space}) + "\n", encoding="utf-8")
    seal_again(folder)
