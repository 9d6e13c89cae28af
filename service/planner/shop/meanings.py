"""How close a question is in meaning to each category of a shop, by vectors of words.

A text is the sum of its words' vectors, whose lengths say how much each tells (`training.word_vectors`). `peakplan shop
learn` writes the words' vectors into the shop folder beside those of its categories, so that both always fit.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

WORDS_FILE: Final = "meanings.marisa"
VECTORS_FILE: Final = "meanings-words.npy"  # int8, a row for each word by its number in the trie
KINDS_FILE: Final = "meanings-kinds.npy"  # float32, a row of length 1 for each category by its number
_MOST_WORDS: Final = 32  # of a question that are looked up
Floats = NDArray[np.float32]


@cache
def _tries() -> Any:
    return import_module("marisa_trie")


class Meanings:
    """The vectors of one shop folder, mapped. Never changes."""

    def __init__(self, folder: Path) -> None:
        """Map the files of a folder. Raises OSError, RuntimeError or ValueError where they are damaged."""
        self._words = _tries().Trie()
        self._words.mmap(str(folder / WORDS_FILE))
        self._vectors = np.load(folder / VECTORS_FILE, mmap_mode="r")
        self._kinds = np.load(folder / KINDS_FILE, mmap_mode="r")
        if self._vectors.shape != (len(self._words), self._kinds.shape[1]):
            raise ValueError(f"{folder / VECTORS_FILE} does not fit its words")

    def closeness(self, words: list[str]) -> Floats | None:
        """Return the cosine of words, as `kinds.plain_words` has them, with each category; None where none is known."""
        known = [self._words[word] for word in list(dict.fromkeys(words))[:_MOST_WORDS] if word in self._words]
        summed = self._vectors[known].astype(np.float32).sum(0) if known else np.zeros(1, np.float32)
        length = float(np.linalg.norm(summed))
        return np.asarray(self._kinds @ (summed / length), np.float32) if length else None


def write_meanings(folder: Path, words: list[str], vectors: NDArray[np.int8], kinds: Floats) -> None:
    """Write the files that `Meanings` maps: a vector for each word, and one for each category by its number."""
    trie = _tries().Trie(words)
    trie.save(str(folder / WORDS_FILE))
    order = np.empty(len(words), np.int64)
    order[[trie[word] for word in words]] = np.arange(len(words))
    np.save(folder / VECTORS_FILE, vectors[order])
    np.save(folder / KINDS_FILE, kinds.astype(np.float32))
