"""Train the reader (`service/planner/reader`): a small network that writes plan text without the model.

It learns from the same mix as the model, and from plans that the tuned model wrote itself, whose drafts it makes.
`python -m training.reader` adds one to a finished model folder.
"""

import argparse
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from service.planner.plan_text import PlanTextError, parse
from service.planner.question import Question
from service.planner.reader.network import BEGINS, GOES_ON, LEFT_OUT, MOST_MARKS, dequantised, grams, numbers, seen
from service.planner.reader.reading import (
    CARD,
    OFFERS,
    SORTS,
    WEIGHTS,
    WORDS,
    Choices,
    write_card,
)
from service.planner.vocabulary import MARK_WORDS, PART_WORDS, Vocabulary
from service.settings import Settings
from service.weights.checkpoint import EMBEDDING, read_weights
from service.weights.model_card import read_card
from service.weights.model_folder import base_folder
from service.weights.tokenizer_file import read_tokenizer
from training.data.examples import IGNORED, Example, within
from training.data.mix import Source
from training.reader_network import Batch, ReaderNetwork, Shape
from training.settings import TrainingSettings
from training.tuned import precision

# Lists of sources that rows name for a question about one product.
SOURCES: Final = (
    *(("catalog",), ("reviews",), ("qa",), ("reviews", "qa"), ("qa", "reviews")),
    *(("catalog", "reviews"), ("qa", "catalog"), ("reviews", "catalog")),
)
_COUNTED_EPOCHS: Final = 3
_OWN_TIMES: Final = 3  # that an epoch has each of the model's own plans
_DEVIATION: Final = 0.1  # of the numbers that a new network begins with for words
_DECAY: Final = 0.02
_LEAST_RATE: Final = 0.02
_AVERAGED: Final = 0.999
_INT8: Final = 127
_EPSILON: Final = 1e-12


def choices_of(vocabulary: Vocabulary, sources: Sequence[tuple[str, ...]], least_probability: float) -> Choices:
    """Return what a reader of a vocabulary chooses from; `sources` are the lists of sources that rows name."""
    facets = [(facet, refused) for facet in vocabulary.facets for refused in (False, True)]
    return Choices(
        kinds=(*facets, *((mark, False) for mark in MARK_WORDS)),
        intents=tuple(vocabulary.intents),
        sources=tuple(sources),
        verticals=(*vocabulary.verticals, None),
        least_probability=least_probability,
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One question, T words: what is seen of it, and what is to be learnt; `IGNORED` where it is unknown."""

    texts: tuple[str, ...]
    marks: NDArray[np.int64]  # [T, MOST_MARKS]
    turns: NDArray[np.int64]  # [T]
    tags: NDArray[np.int64]  # [T]
    parts: NDArray[np.int64]  # [T]
    ends: tuple[int, ...]  # intent, mode, sources, sort, vertical
    offers: tuple[int, ...]


def row_of(example: Example, choices: Choices, vocabulary: Vocabulary) -> Row:
    """Return what the reader learns of an example."""
    question, draft = example.question(), example.draft
    found = seen(question)
    length = len(found.texts)
    marks = np.zeros((length, MOST_MARKS), np.int64)
    for at, each in enumerate(found.marks):
        marks[at, : len(each)] = each
    products = vocabulary.intents[draft.intent].products
    tags = np.full(
        length, LEFT_OUT if example.knows_facets and example.knows_intent and products else IGNORED, np.int64
    )
    parts = np.full(length, IGNORED, np.int64)
    for span in (*draft.spans, *draft.marks) if example.knows_facets else ():
        tags[span.first] = BEGINS + choices.kinds.index((span.facet, span.refused))
        tags[span.first + 1 : span.last + 1] = GOES_ON
        parts[span.first] = span.part
    chosen = tuple(draft.sources)
    open_sources = products and vocabulary.intents[draft.intent].sources is None and example.knows_sources
    vertical = choices.verticals.index(draft.vertical) if draft.vertical in choices.verticals else IGNORED
    ends = (
        choices.intents.index(draft.intent) if example.knows_intent else IGNORED,
        int(draft.mode == "keyword") if example.knows_mode else IGNORED,
        choices.sources.index(chosen) if open_sources and chosen in choices.sources else IGNORED,
        SORTS.index(draft.sort) if products and example.knows_closing else IGNORED,
        vertical if products and example.knows_vertical and not draft.foreign else IGNORED,
    )
    offers = tuple(int(o in draft.offers) if products and example.knows_closing else IGNORED for o in OFFERS)
    return Row(tuple(found.texts), marks, np.array(found.turns, np.int64), tags, parts, ends, offers)


def batch_of(rows: Sequence[Row], listed: dict[str, int], buckets: int) -> Batch:
    """Return rows side by side."""
    unique: dict[str, int] = {}
    longest = max(len(row.texts) for row in rows)
    words = np.zeros((len(rows), longest), np.int64)
    marks = np.zeros((len(rows), longest, MOST_MARKS), np.int64)
    turns = np.zeros((len(rows), longest), np.int64)
    mask = np.zeros((len(rows), longest), bool)
    for at, row in enumerate(rows):
        count = len(row.texts)
        words[at, :count] = [unique.setdefault(text, len(unique)) for text in row.texts]
        marks[at, :count], turns[at, :count], mask[at, :count] = row.marks, row.turns, True
    letters = [grams(text, buckets) for text in unique]
    starts = np.cumsum([0, *(len(each) for each in letters[:-1])])
    return Batch(
        torch.tensor(numbers(list(unique), listed)),
        torch.tensor([bucket for each in letters for bucket in each]),
        torch.from_numpy(starts),
        torch.from_numpy(words),
        torch.from_numpy(marks),
        torch.from_numpy(turns),
        torch.from_numpy(mask),
    )


def batches(rows: Sequence[Row], words: int, rng: random.Random) -> Iterator[list[Row]]:
    """Yield batches of about so many words, of questions that are about as long, in any order."""
    ordered = sorted(rows, key=lambda row: (len(row.texts), rng.random()))
    found: list[list[Row]] = [[]]
    for row in ordered:
        if len(row.texts) * (len(found[-1]) + 1) > words and found[-1]:
            found.append([])
        found[-1].append(row)
    rng.shuffle(found)
    yield from found


def losses(network: ReaderNetwork, rows: Sequence[Row], listed: dict[str, int]) -> Tensor:
    """Return the mean negative log-likelihood of a question's known choices."""
    batch = batch_of(rows, listed, network.shape.buckets)
    tags, parts, ends = network(batch)
    length = batch.mask.shape[1]

    def padded(values: Sequence[NDArray[np.int64]]) -> Tensor:
        out = np.full((len(rows), length), IGNORED, np.int64)
        for at, value in enumerate(values):
            out[at, : len(value)] = value
        return torch.from_numpy(out)

    total = _summed(tags.flatten(0, 1), padded([row.tags for row in rows]).flatten())
    total = total + _summed(parts.flatten(0, 1), padded([row.parts for row in rows]).flatten())
    known = torch.tensor([row.ends for row in rows])
    for scores, column in zip((*ends[:4], ends[5]), known.T, strict=True):
        total = total + _summed(scores, column)
    offers = torch.tensor([row.offers for row in rows])
    told = offers != IGNORED
    if told.any():
        total = total + functional.binary_cross_entropy_with_logits(
            ends[4].float()[told], offers[told].float(), reduction="sum"
        )
    return total / len(rows)


def _summed(scores: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(scores.float(), targets, reduction="sum", ignore_index=IGNORED)


def train_reader(settings: TrainingSettings, model_dir: Path) -> None:
    """Write a reader's files into a model folder. An interrupted run goes on after its last whole epoch."""
    chosen, kept = settings.reader, settings.work / "reader.pt"
    settings.work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(settings.seed)
    torch.set_num_threads(settings.processes)
    vocabulary = Vocabulary.load(model_dir)
    if settings.reader_start is None:
        words = frequent_words(settings)
        choices = choices_of(vocabulary, SOURCES, chosen.least_probability)
        network = new_network(choices, words, settings, model_dir)
    else:
        network, words, before = read_network(settings.reader_start)
        choices = choices_of(vocabulary, before.sources, before.least_probability)
        network = with_choices(network, before, choices)
    own = [row_of(example, choices, vocabulary) for example in plans_of_model(settings, model_dir)]
    run = _Run(network, {word: at for at, word in enumerate(words, 1)}, settings)
    if kept.is_file():
        run.resume(torch.load(kept, weights_only=True))
    with ProcessPoolExecutor(1) as pool:  # draws an epoch while the one before is learnt
        following = pool.submit(_epoch, settings, choices, vocabulary, run.epoch)
        for epoch in range(run.epoch, chosen.epochs):
            rows = following.result()
            if epoch + 1 < chosen.epochs:
                following = pool.submit(_epoch, settings, choices, vocabulary, epoch + 1)
            loss = run.learn([*rows, *own * _OWN_TIMES], epoch)
            torch.save(run.state(), kept)
            print(f"reader: epoch {epoch + 1}/{chosen.epochs}, {len(rows):,} rows, loss {loss:.4f}", flush=True)
    write_reader(run.average, words, choices, model_dir)


@lru_cache(1)
def _source(settings: TrainingSettings) -> Source:
    return settings.open_source()  # once a process: it reads for a quarter of a minute


def _epoch(settings: TrainingSettings, choices: Choices, vocabulary: Vocabulary, number: int) -> list[Row]:
    """Return the rows of one epoch."""
    rng = random.Random(f"{settings.seed}/reader/{number}")
    drawn = (within(turn, vocabulary) for turns in _source(settings).epoch(rng) for turn in turns)
    rows = (row_of(turn, choices, vocabulary) for turn in drawn if turn is not None)
    return [row for row in rows if row.texts]


def plans_of_model(settings: TrainingSettings, model_dir: Path) -> list[Example]:
    """Return the plans that the heads learnt from, where the work folder has them (`training/positions.py`)."""
    found: list[Example] = []
    shards = sorted((settings.work / "positions").glob("*.pt"))
    if not shards:
        return found
    vocabulary = Vocabulary.load(model_dir)
    tokenizer = read_tokenizer(base_folder(read_card(model_dir), model_dir, settings.cache) / "tokenizer.json")
    for path in shards:
        kept = torch.load(path, weights_only=True)
        prompts = torch.split(kept["prompts"], kept["prompt_lengths"].tolist())
        plans = torch.split(kept["tokens"], kept["lengths"].tolist())
        for prompt, plan in zip(prompts, plans, strict=True):
            said = [text.strip() for text in tokenizer.decode(prompt[1:].tolist()).split("|")[:-1]]
            question = Question.parse(said[-1], said[:-1])
            try:
                draft = parse(tokenizer.decode(plan.tolist()), question, vocabulary)
            except PlanTextError:  # a word that a prompt writes in another way
                continue
            found.append(Example(said[-1], draft, tuple(said[:-1]), knows_closing=True, knows_vertical=True))
    return found


def frequent_words(settings: TrainingSettings) -> list[str]:
    """Return the words that three epochs have often enough, the most frequent first."""
    chosen, source, counts = settings.reader, settings.open_source(), Counter[str]()
    for number in range(_COUNTED_EPOCHS):
        for turns in source.epoch(random.Random(f"{settings.seed}/words/{number}")):
            for turn in turns:
                counts.update(set(seen(turn.question()).texts))
    return [word for word, count in counts.most_common(chosen.most_words) if count >= chosen.least_seen]


def new_network(choices: Choices, words: Sequence[str], settings: TrainingSettings, model_dir: Path) -> ReaderNetwork:
    """Return a network that knows of words what the base's input embeddings say of them."""
    network = ReaderNetwork(shape_of(choices, len(words), settings.reader.buckets))
    base = base_folder(read_card(model_dir), model_dir, settings.cache)
    embeddings = read_weights(base)[EMBEDDING].float()
    tokenizer = read_tokenizer(base / "tokenizer.json")
    tokens = [tokenizer.encode(f" {word}", add_special_tokens=False).ids for word in words]
    vectors = torch.stack([embeddings[ids].mean(0) for ids in tokens])
    vectors -= vectors.mean(0)
    axes = torch.linalg.svd(vectors, full_matrices=False)[2][: network.shape.word_width]
    vectors = vectors @ axes.T
    with torch.no_grad():
        network.words.weight[1:, : vectors.shape[1]] = vectors / vectors.std() * _DEVIATION
    return network


def shape_of(choices: Choices, words: int, buckets: int) -> Shape:
    """Return the sizes of a network for these choices."""
    return Shape(
        words=words,
        buckets=buckets,
        tags=BEGINS + len(choices.kinds),
        parts=len(PART_WORDS) + 1,
        ends=choices.ends,
    )


def with_choices(network: ReaderNetwork, before: Choices, after: Choices) -> ReaderNetwork:
    """Return a network for other choices, which knows of those that stay what it knew."""
    if before.model_dump(exclude={"bound", "differs"}) == after.model_dump(exclude={"bound", "differs"}):
        return network
    old = [("tag", 0), ("tag", 1), *before.kinds]
    new = [("tag", 0), ("tag", 1), *after.kinds]
    other = ReaderNetwork(shape_of(after, network.shape.words, network.shape.buckets))
    state, kept = other.state_dict(), network.state_dict()
    for name, value in kept.items():
        if name.startswith("tags."):
            _take(state[name], value, new, old)
        elif name.startswith("ends."):
            _take(state[name], value, _end_names(after), _end_names(before))
        else:
            state[name] = value
    other.load_state_dict(state)
    return other


def _take(into: Tensor, of: Tensor, names: Sequence[object], known: Sequence[object]) -> None:
    for at, name in enumerate(names):
        if name in known:
            into[at] = of[known.index(name)]


def _end_names(choices: Choices) -> list[object]:
    modes = [("mode", at) for at in range(choices.ends[1])]
    sorts, offers = [("sort", name) for name in SORTS], [("offer", name) for name in OFFERS]
    return [*choices.intents, *modes, *choices.sources, *sorts, *offers, *(("vertical", v) for v in choices.verticals)]


class _Run:
    """One training: the network, the average of its weights, and the optimizer."""

    def __init__(self, network: ReaderNetwork, listed: dict[str, int], settings: TrainingSettings) -> None:
        self.network, self.average = network, deepcopy(network).eval()
        self._listed, self._chosen = listed, settings.reader
        tables = [network.words.weight, network.letters.weight]
        body = [value for name, value in network.named_parameters() if not name.startswith(("words.", "letters."))]
        groups = [{"params": body, "weight_decay": _DECAY}, {"params": tables, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, lr=self._chosen.learning_rate, betas=(0.9, 0.98))
        self.epoch = self._step = 0
        self._seed = settings.seed

    def learn(self, rows: Sequence[Row], epoch: int) -> float:
        """Learn one epoch; return the mean loss."""
        self.network.train()
        found = list(batches(rows, self._chosen.batch_words, random.Random(f"{self._seed}/{epoch}")))
        total, running = len(found) * self._chosen.epochs, 0.0
        fast = precision(torch.device("cpu")) is torch.bfloat16
        for batch in found:
            self._step += 1
            warm = min(1.0, self._step / min(self._chosen.warmup_steps, total / 4))
            falling = max(_LEAST_RATE, 0.5 * (1 + math.cos(math.pi * min(1.0, self._step / total))))
            for group in self._optimizer.param_groups:
                group["lr"] = self._chosen.learning_rate * warm * falling
            with torch.autocast("cpu", torch.bfloat16, enabled=fast):
                loss = losses(self.network, batch, self._listed)
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self._optimizer.step()
            running += loss.item() * len(batch)
            self._add_to_average()
        self.epoch = epoch + 1
        return running / len(rows)

    def _add_to_average(self) -> None:
        share = 1 - min(_AVERAGED, (1 + self._step) / (10 + self._step))
        with torch.no_grad():
            for mean, value in zip(self.average.parameters(), self.network.parameters(), strict=True):
                mean.lerp_(value, share)

    def state(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "epoch": self.epoch,
            "step": self._step,
        }

    def resume(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.epoch, self._step = state["epoch"], state["step"]


def write_reader(network: ReaderNetwork, words: Sequence[str], choices: Choices, folder: Path) -> None:
    """Write a reader's three files into a model folder, matrices in int8 with a scale for each row."""
    weights: dict[str, NDArray[np.generic]] = {}
    for name, value in network.state_dict().items():
        number = value.detach().float().numpy()
        if number.ndim < 2:
            weights[name] = number
            continue
        scale = np.maximum(np.abs(number).max(1), _EPSILON) / _INT8
        weights[name], weights[f"{name}.scale"] = np.round(number / scale[:, None]).astype(np.int8), scale
    save_file(weights, folder / WEIGHTS)
    (folder / WORDS).write_text("\n".join(words) + "\n", encoding="utf-8")
    write_card(choices, folder)


def read_network(folder: Path) -> tuple[ReaderNetwork, list[str], Choices]:
    """Return a network, to be trained on, with the words that it knows and what it chooses from."""
    choices = Choices.model_validate_json((folder / CARD).read_text(encoding="utf-8"))
    words = (folder / WORDS).read_text(encoding="utf-8").splitlines()
    weights = {name: torch.from_numpy(value) for name, value in dequantised(load_file(folder / WEIGHTS)).items()}
    network = ReaderNetwork(shape_of(choices, len(words), len(weights["letters.weight"])))
    network.load_state_dict(weights)
    return network, words, choices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the training data")
    parser.add_argument("--work", type=Path, required=True, help="an empty folder for checkpoints")
    parser.add_argument("--model", type=Path, required=True, help="model folder that gets the reader")
    given = parser.parse_args()
    cache = Settings().cache_dir
    train_reader(TrainingSettings(data=given.data, cache=cache, work=given.work, output=given.model), given.model)


if __name__ == "__main__":
    main()
