"""What needs teach the vectors of words: `training.word_vectors` goes on with this once they follow the encoder.

`data/needs.txt` has 23,850 needs ("icy toes at night"), each with the category that meets it. They draw a need's words
and its category's name together, among all categories of a batch (the in-batch softmax of van den Oord et al. 2018);
and they tell, beside searches that name things, how much a word speaks of a need. What the needs of a category mean
together is kept as its vector (`general_categories`), so that a shop can tell what it has not got; `python -m
training.needs` writes these anew from the vectors of words that are there.
"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from service.planner.shop.kinds import plain_words
from service.planner.shop.meanings import GENERAL_VECTORS, WORD_VECTORS
from training.data.rows import read_rows
from training.data.written import product_names

_Row = TypeVar("_Row")
NEEDS: Final = Path(__file__).parent / "data" / "needs.txt"
NAMED_LEVELS: Final = 2  # of a category's path that name it; what is above them tells little
_EPOCHS: Final = 6
_BATCH: Final = 256
_RATE: Final = 2e-3
_TEMPERATURE: Final = 0.07
_DROPPED: Final = 0.1  # of a need's words, so that none decides alone
_HELD: Final = 0.3  # how strongly a word's vector is held to what the encoder made of it
_MOST_NAMES: Final = 12_000  # of our own kinds of product
_ASKED: Final = ("{name}", "{name}", "a {name}", "i need a {name}", "looking for a {name}", "do you have {name}")
_MOST_NAMED: Final = {"queryner_train": 7816, "webshop_instructions": 8000, "plan_synth_taxonomy": 8000}


class Need(NamedTuple):
    """What a shopper says who needs something of a category, by its path; of none where the path is empty."""

    path: tuple[str, ...]
    text: str


def read_needs(file: Path = NEEDS) -> list[Need]:
    """Return the needs, one a line, under their category's path in brackets, of levels parted by " > "."""
    found, path = list[Need](), None
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("["):
            path = tuple(filter(None, line.strip("[]").split(" > ")))
        elif path is None or not line.strip():
            raise ValueError(f"{file.name}:{number}: {line!r} is no need under a category")
        else:
            found.append(Need(path, line))
    return found


def draw_together(words: Sequence[str], vectors: torch.Tensor, needs: Sequence[Need]) -> torch.Tensor:
    """Return the vectors, [words, size], trained so that the sum of a need's is close to that of its category's."""
    torch.manual_seed(0)
    number = {word: at for at, word in enumerate(words)}
    start = vectors / vectors.norm(dim=1).mean()
    named = {need.path: word_numbers(number, " ".join(need.path[-NAMED_LEVELS:])) for need in needs if need.path}
    told = [(need.path, word_numbers(number, need.text)) for need in needs if need.path]
    told = [(path, said) for path, said in told if said and named[path]]
    bags = torch.nn.EmbeddingBag.from_pretrained(start.clone(), freeze=False, mode="sum")
    adam = torch.optim.Adam(bags.parameters(), lr=_RATE)
    chance = random.Random(0)
    for epoch in range(_EPOCHS):
        for group in adam.param_groups:
            group["lr"] = _RATE * (1 - epoch / _EPOCHS)
        losses = []
        for batch in _batches(told, chance):
            losses.append(_apart_from_others(bags, batch, named, start, chance))
            adam.zero_grad()
            losses[-1].backward()  # type: ignore[no-untyped-call]
            adam.step()
        print(f"needs, epoch {epoch + 1}: loss {torch.stack(losses).mean().item():.3f}", flush=True)
    return bags.weight.detach()


def _apart_from_others(
    bags: torch.nn.EmbeddingBag,
    batch: Sequence[tuple[tuple[str, ...], list[int]]],
    named: dict[tuple[str, ...], list[int]],
    start: torch.Tensor,
    chance: random.Random,
) -> torch.Tensor:
    """Return how hard it is to tell each need's category from the batch's others, and how far words have moved."""
    paths = list(dict.fromkeys(path for path, _ in batch))
    places = {path: at for at, path in enumerate(paths)}
    said = [[word for word in words if chance.random() >= _DROPPED] or words for _, words in batch]
    close = summed(bags, said) @ summed(bags, [named[path] for path in paths]).T
    right = torch.tensor([places[path] for path, _ in batch])
    used = torch.tensor(sorted({word for path, words in batch for word in (*words, *named[path])}))
    moved = ((bags.weight[used] - start[used]) ** 2).sum(1).mean()
    return functional.cross_entropy(close / _TEMPERATURE, right) + _HELD * moved


def named_products(chance: random.Random | None = None) -> list[str]:
    """Return texts that name our own kinds of product, shuffled, each as a shopper may say it."""
    chance = chance or random.Random(0)
    found = [chance.choice(_ASKED).format(name=name) for name, _ in product_names()]
    chance.shuffle(found)
    return found[:_MOST_NAMES]


def named_things(data: Path) -> list[str]:
    """Return texts of shoppers who name what they want: of the data folder, and names of our own kinds of product."""
    chance = random.Random(0)
    found = named_products(chance)
    for name, most in _MOST_NAMED.items():
        rows = list(read_rows(data / f"{name}.jsonl.gz"))
        if name == "webshop_instructions":
            texts = [text for row in rows for text in (row["instruction"], *row["human_queries"])]
        else:
            texts = [row["query" if name == "queryner_train" else "text"] for row in rows]
        chance.shuffle(texts)
        found += texts[:most]
    return found


def general_categories(words: Sequence[str], vectors: NDArray[np.float32], needs: Sequence[Need]) -> NDArray[np.int8]:
    """Return a vector for each category, [categories, size]: what its needs mean together, in the space of the words.

    A cosine does not see their scale.
    """
    number = {word: at for at, word in enumerate(words)}
    found: dict[tuple[str, ...], NDArray[np.float32]] = {}
    for need in needs:
        told = vectors[word_numbers(number, need.text)].sum(0)
        if need.path and (length := float(np.linalg.norm(told))):
            found[need.path] = found.get(need.path, 0) + told / length
    together = np.stack(list(found.values()))
    rounded: NDArray[np.int8] = np.round(together / np.abs(together).max(1, keepdims=True) * 127).astype(np.int8)
    return rounded


def summed(bags: torch.nn.EmbeddingBag, told: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return the sum of each text's vectors, with length 1, [texts, size]."""
    starts = torch.tensor([0, *map(len, told[:-1])]).cumsum(0)
    return functional.normalize(bags(torch.tensor([word for each in told for word in each]), starts), dim=-1)


def word_numbers(number: dict[str, int], text: str) -> list[int]:
    """Return the numbers of a text's words, each once, without those that have no vector."""
    return [number[word] for word in dict.fromkeys(plain_words(text)) if word in number]


def _batches(rows: list[_Row], chance: random.Random) -> Iterator[list[_Row]]:
    """Yield whole batches of the rows in a new order; one of all of them where they are few."""
    chance.shuffle(rows)
    size = min(_BATCH, len(rows))
    for first in range(0, len(rows) - size + 1, size):
        yield rows[first : first + size]


def write_general(word_vectors: Path = WORD_VECTORS) -> None:
    """Write the vectors of `general_categories` beside those of words."""
    with np.load(word_vectors) as file:
        words, vectors = file["words"].tobytes().decode().split("\n"), file["vectors"].astype(np.float32)
    np.save(word_vectors.with_name(GENERAL_VECTORS.name), general_categories(words, vectors, read_needs()))


if __name__ == "__main__":
    write_general()
