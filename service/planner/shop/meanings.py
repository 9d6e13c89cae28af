"""How close a question is in meaning to each category of a shop, by the words it has.

A text is the sum of its words' vectors, whose lengths say how much each tells (`training.word_vectors`). A model that
has read the question points among the vectors, too (`decoding/kind_head.py`). Some category of a shop is always the
closest one: whether the shop has anything that meets a need is told by categories of shops in general, by how near it
comes to those that the need is close to. `peakplan shop learn` writes the words into the shop folder beside the vectors
of its categories, so that both always fit.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # a gateway without a shop folder loads no numpy
    import numpy as np
    from numpy.typing import NDArray

WORD_VECTORS: Final = Path(__file__).parents[3] / "models" / "word-vectors" / "word_vectors.npz"  # a learner's source
WORDS_FILE: Final = "meanings.marisa"
VECTORS_FILE: Final = "meanings-words.npy"  # int8, a row for each word by its number in the trie
KINDS_FILE: Final = "meanings-kinds.npy"  # float32, a row of length 1 for each category by its number
GENERAL_VECTORS: Final = WORD_VECTORS.with_name("general_categories.npy")  # int8, a row for each; a learner's source
GENERAL_FILE: Final = "meanings-general.npy"  # float16, a row of length 1 for each category of shops in general
NEARNESS_FILE: Final = "meanings-nearness.npy"  # float32: the largest cosine of each of those with one of the shop's
SPACE_FILE: Final = "meanings.json"  # the name of the space that the vectors are in
_MOST_WORDS: Final = 32  # of a question that are looked up
# What tells of a need: fitted as the shares in kinds.py.
_CLOSENESS_WEIGHT: Final = 16.0  # of a cosine, in nats
_WORDS_WEIGHT: Final = 0.1  # of the evidence of words, which say the same thing several times
# How near a shop must come to what a need is about, a mean over so many categories of shops in general: fitted to the
# first four sets of rehearsal/bench/kinds_questions.jsonl, asked of the sample shop and of it without what is right.
_LEAST_NEARNESS: Final = 0.43
_GENERAL_ASKED: Final = 10
_KINDS_AT_ONCE: Final = 4096  # whose nearness is computed at once, for the sake of memory
_SPACE_DIGITS: Final = 16
_TIMES_CHANCE: Final = 2  # as large as were all categories alike, at least


@cache
def _tries() -> Any:
    return import_module("marisa_trie")


@cache
def _numpy() -> Any:
    return import_module("numpy")


class Meanings:
    def __init__(self, files: Mapping[str, bytes]) -> None:
        """Take the files of a folder. Raises RuntimeError, TypeError, ValueError or KeyError where they are damaged."""
        self._words = _tries().Trie().frombytes(files[WORDS_FILE])
        self._vectors, self._kinds = _array(files[VECTORS_FILE]), _array(files[KINDS_FILE])
        if self._vectors.shape != (len(self._words), self._kinds.shape[1]):
            raise ValueError(f"{VECTORS_FILE} does not fit its words")
        # A folder that was learnt before there were categories of shops in general meets every need.
        self._general = _array(files[GENERAL_FILE]) if GENERAL_FILE in files else None
        self._nearness = _array(files[NEARNESS_FILE]) if GENERAL_FILE in files else _numpy().zeros(0)
        if self._general is not None and self._general.shape != (len(self._nearness), self._kinds.shape[1]):
            raise ValueError(f"{GENERAL_FILE} does not fit {NEARNESS_FILE}")
        # Of one that was learnt before models pointed among the vectors no model knows the space.
        self.space = str(json.loads(files[SPACE_FILE])["space"]) if SPACE_FILE in files else ""

    def closeness(self, words: list[str], pointed: Sequence[float] = ()) -> "NDArray[np.float32] | None":
        """Return the cosine of words, as `kinds.plain_words` has them, with each category; None where none is known.

        `pointed` is where a model points, which adds to the words' direction.
        """
        direction = self._direction(words, pointed)
        return None if direction is None else self._kinds @ direction

    def meets(self, words: list[str], pointed: Sequence[float] = ()) -> bool:
        """Return whether the shop has anything like what meets such a need elsewhere; `pointed` as in `closeness`."""
        direction = self._direction(words, pointed)
        if direction is None or self._general is None:
            return True
        numpy = _numpy()
        close = self._general @ direction
        most = min(_GENERAL_ASKED, len(close))
        asked = numpy.argpartition(-close, most - 1)[:most]
        shares = numpy.exp(_CLOSENESS_WEIGHT * (close[asked] - close[asked].max()))
        return float(shares @ self._nearness[asked] / shares.sum()) >= _LEAST_NEARNESS

    def _direction(self, words: list[str], pointed: Sequence[float]) -> "NDArray[np.float32] | None":
        """Return where words and a model point together, with length 1; None where nowhere."""
        numpy = _numpy()
        known = [self._words[word] for word in list(dict.fromkeys(words))[:_MOST_WORDS] if word in self._words]
        summed: NDArray[np.float32] = self._vectors[known].astype(numpy.float32).sum(0)
        summed /= float(numpy.linalg.norm(summed)) or 1.0
        if len(pointed) == len(summed):
            summed += numpy.asarray(pointed, numpy.float32)
        length = float(numpy.linalg.norm(summed))
        return summed / length if length else None

    def of_need(
        self,
        words: list[str],
        told: Mapping[int, float],
        least: float,
        part_of_best: float,
        pointed: Sequence[float] = (),
    ) -> list[int]:
        """Return the numbers of the categories that a need is about, best first; none where none is sure.

        `told` is what the words tell of each category, `least` the share from which on the best one is believed; others
        are worth naming from a part of its share on. `pointed` as in `closeness`.
        """
        logits = self.closeness(words, pointed)
        if logits is None:
            return []
        numpy = _numpy()
        logits *= _CLOSENESS_WEIGHT
        logits[list(told)] += _WORDS_WEIGHT * numpy.fromiter(told.values(), numpy.float32, len(told))
        shares = numpy.exp(logits - logits.max())
        shares /= shares.sum()
        if shares.max() < max(least, _TIMES_CHANCE / len(shares)):
            return []
        numbers = numpy.flatnonzero(shares >= part_of_best * shares.max())
        return [int(number) for number in numbers[numpy.argsort(-shares[numbers], kind="stable")]]


def _array(content: bytes) -> "NDArray[Any]":
    array: NDArray[Any] = _numpy().load(BytesIO(content))
    return array


def write_meanings(
    folder: Path,
    words: list[str],
    vectors: "NDArray[np.int8]",
    kinds: "NDArray[np.float32]",
    general: "NDArray[np.int8] | None" = None,
) -> None:
    """Write the files that `Meanings` maps: a vector for each word, and one for each category by its number.

    `general` has a row for each category of shops in general, in the space of the words.
    """
    numpy = _numpy()
    trie = _tries().Trie(words)
    trie.save(str(folder / WORDS_FILE))
    order = numpy.empty(len(words), numpy.int64)
    order[[trie[word] for word in words]] = numpy.arange(len(words))
    numpy.save(folder / VECTORS_FILE, vectors[order])
    numpy.save(folder / KINDS_FILE, kinds.astype(numpy.float32))
    if general is not None:
        units = general.astype(numpy.float32)
        units /= numpy.maximum(numpy.linalg.norm(units, axis=1, keepdims=True), 1e-9)
        chunks = (kinds[first : first + _KINDS_AT_ONCE] for first in range(0, len(kinds), _KINDS_AT_ONCE))
        nearness = numpy.max([(units @ chunk.T).max(1) for chunk in chunks], axis=0)
        numpy.save(folder / GENERAL_FILE, units.astype(numpy.float16))
        numpy.save(folder / NEARNESS_FILE, nearness.astype(numpy.float32))
    (folder / SPACE_FILE).write_text(json.dumps({"space": space_of(words, vectors)}) + "\n", encoding="utf-8")


def space_of(words: Sequence[str], vectors: "NDArray[np.int8]") -> str:
    """Return the name of the space that these vectors are in: another for others, whatever their order."""
    order = sorted(range(len(words)), key=words.__getitem__)
    digest = hashlib.sha256("\n".join(words[number] for number in order).encode())
    digest.update(_numpy().ascontiguousarray(vectors[order]).tobytes())
    return digest.hexdigest()[:_SPACE_DIGITS]
