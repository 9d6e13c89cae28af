"""The vectors of a shop's categories: what their products' titles and texts and their own names mean, together."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path as FilePath
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.planner.shop.kinds import plain_words
from service.planner.shop.meanings import GENERAL_VECTORS, WORD_VECTORS, write_meanings

Path = tuple[str, ...]
Floats = NDArray[np.float32]
_NAME_WEIGHT: Final = 0.5  # of a category's own name, beside its products' titles and their texts


class WordVectors(NamedTuple):
    """The number of each word, and its vector."""

    numbers: dict[str, int]
    vectors: NDArray[np.int8]


@cache
def word_vectors() -> WordVectors:
    """Return what `training.word_vectors` wrote."""
    with np.load(WORD_VECTORS) as file:
        words = file["words"].tobytes().decode().split("\n")
        return WordVectors({word: number for number, word in enumerate(words)}, file["vectors"])


class KindVectors:
    """Adds up what products mean, by category."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._numbers, self._vectors = word_vectors()
        self._places = {path: place for place, path in enumerate(paths)}
        size = len(paths), self._vectors.shape[1]
        self._titles, self._texts = np.zeros(size, np.float32), np.zeros(size, np.float32)

    def add(self, path: Path, title: Iterable[str], text: Iterable[str]) -> None:
        """Add a product of a category by the words of its title and text."""
        self._titles[self._places[path]] += self._meaning(title)
        self._texts[self._places[path]] += self._meaning(text)

    def write(self, folder: FilePath) -> None:
        """Write the files of `service.planner.shop.meanings`."""
        names = [self._meaning(word for level in path for word in plain_words(level)) for path in self._places]
        titles, texts, named = (_apart(each) for each in (self._titles, self._texts, np.stack(names)))
        kinds = unit(titles + texts + _NAME_WEIGHT * named)
        write_meanings(folder, list(self._numbers), self._vectors, kinds, np.load(GENERAL_VECTORS))

    def _meaning(self, words: Iterable[str]) -> Floats:
        known = [self._numbers[word] for word in dict.fromkeys(words) if word in self._numbers]
        return unit(self._vectors[known].astype(np.float32).sum(0))


def unit(vectors: Floats) -> Floats:
    """Return vectors of length 1; zero vectors stay."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), np.float32)


def _apart(vectors: Floats) -> Floats:
    """Return unit vectors without the mean of all categories, which only says "something to buy"."""
    units = unit(vectors)
    return unit(units - units.mean(0))
