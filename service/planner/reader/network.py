"""The reader's network: convolutions over neighbours and attention over the conversation, some two million weights.

It runs in numpy, so that a gateway needs no torch for it: a millisecond for a question of ten words. Matrices are kept
in int8 with a scale for each row, and computed with in float32; of the tables of words and letters only what is looked
up becomes float32.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from service.planner.question import Question

Array = NDArray[np.float32]
LEFT_OUT, GOES_ON, BEGINS = 0, 1, 2  # tags of words; BEGINS + k begins a value of kind k
DISTANCES: Final = 16  # further words are as far
_NEVER: Final = -1e9  # a logarithm
_EPSILON: Final = 1e-5
_CACHED_WORDS: Final = 8192
_TABLES: Final = ("words.", "letters.")


GRAM_SIZES: Final = (3, 4, 5)
MOST_GRAMS: Final = 40  # of a word: as many as one of some 16 letters has
MOST_TURNS: Final = 8  # messages further back are alike
UNKNOWN: Final = 0  # the number of a word that is not in the list
_MARKS: Final = ",.?!;:"
_OPENING: Final = "\"'([{“‘-"
NO_MARK, OTHER_MARK, OPENED, FIRST, LAST = 0, len(_MARKS) + 1, len(_MARKS) + 2, len(_MARKS) + 3, len(_MARKS) + 4
MARKS: Final = LAST + 1
MOST_MARKS: Final = 4  # that one word has
_DIGIT: Final = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Seen:
    """The T words of a question: `texts` with digits alike, the `MOST_MARKS` `marks` of each, how many `turns` back."""

    texts: list[str]
    marks: list[tuple[int, ...]]
    turns: list[int]

    def after(self, count: int) -> "Seen":
        return Seen(self.texts[count:], self.marks[count:], self.turns[count:])


def seen(question: Question) -> Seen:
    texts, marks, turns = list[str](), list[tuple[int, ...]](), list[int]()
    newest = len(question.utterances) - 1
    before = -1
    words = question.words
    for at, word in enumerate(words):
        utterance = question.utterances[word.utterance]
        found = []
        behind = utterance[word.end : word.end + 1]
        if behind and behind != " ":
            found.append(_MARKS.index(behind) + 1 if behind in _MARKS else OTHER_MARK)
        if word.start and utterance[word.start - 1] in _OPENING:
            found.append(OPENED)
        if word.utterance != before:
            found.append(FIRST)
        if at + 1 == len(words) or words[at + 1].utterance != word.utterance:
            found.append(LAST)
        before = word.utterance
        texts.append(alike(word.text))
        marks.append((*found, *[NO_MARK] * (MOST_MARKS - len(found))))  # padded as in training
        turns.append(min(newest - word.utterance, MOST_TURNS - 1))
    return Seen(texts, marks, turns)


def alike(text: str) -> str:
    """Return a word as it is looked up: every digit is 0, every apostrophe the plain one."""
    return _DIGIT.sub("0", text).replace("’", "'")


@lru_cache(_CACHED_WORDS)
def grams(text: str, buckets: int) -> tuple[int, ...]:
    """Return the places of a word's runs of letters in a table of so many."""
    whole = f"<{text}>"
    runs = dict.fromkeys(whole[at : at + size] for size in GRAM_SIZES for at in range(len(whole) - size + 1))
    runs = runs or {whole: None}
    return tuple(crc32(run.encode()) % buckets for run in list(runs)[:MOST_GRAMS])


def numbers(texts: Sequence[str], listed: Mapping[str, int]) -> list[int]:
    """Return the number of each word in the list; `UNKNOWN` for one that is not there."""
    return [listed.get(text, UNKNOWN) for text in texts]


@dataclass(frozen=True, slots=True)
class Scores:
    """What the network says of T words: log-probabilities of tags [T, tags] and parts [T, 5], and of the whole.

    `ends` are scores of intent, mode, sources, sort, offers and vertical; offers are logits each for itself.
    """

    tags: Array
    parts: Array
    ends: tuple[Array, ...]

    def behind(self, count: int) -> "Scores":
        """Return the scores with so many words before these, which are left out for sure."""
        tags = np.full((count, self.tags.shape[1]), _NEVER, np.float32)
        tags[:, LEFT_OUT] = 0.0
        parts = np.zeros((count, self.parts.shape[1]), np.float32)
        return Scores(np.concatenate([tags, self.tags]), np.concatenate([parts, self.parts]), self.ends)


@dataclass(frozen=True, slots=True)
class _Block:
    """The weights of one block, [in, out] each, with biases; `asks` and `inner` have the norm before them inside."""

    near_norm: tuple[Array, Array]
    near: tuple[Array, Array]
    asks: tuple[Array, Array]
    told: tuple[Array, Array]
    inner: tuple[Array, Array]
    outer: tuple[Array, Array]
    distance: Array  # [heads, 2 * DISTANCES + 1]

    def over(self, x: Array, distances: NDArray[np.int64]) -> Array:
        length, width = x.shape
        near = np.zeros((length + 2, width), np.float32)
        near[1:-1] = _normed(x, self.near_norm)
        both = _product(np.concatenate([near[:-2], near[1:-1], near[2:]], 1), self.near)
        x = x + both[:, :width] * _sigmoid(both[:, width:])
        heads = self.distance.shape[0]
        asked = _product(_centred(x), self.asks).reshape(length, 3, heads, width // heads)
        query, key, value = np.ascontiguousarray(asked.transpose(1, 2, 0, 3))
        close = query @ key.transpose(0, 2, 1)
        close += self.distance[:, distances]
        weights = _softmax(close, 2)
        x = x + _product((weights @ value).transpose(1, 0, 2).reshape(length, width), self.told)
        return x + _product(_silu(_product(_centred(x), self.inner)), self.outer)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of vectors [N, width] in int8, with the scale [N] of each."""

    numbers: NDArray[np.int8]
    scale: Array

    @classmethod
    def of(cls, weights: Mapping[str, NDArray[np.generic]], name: str) -> "_Table":
        return cls(np.asarray(weights[name], np.int8), np.asarray(weights[f"{name}.scale"], np.float32))

    def rows(self, places: Sequence[int]) -> Array:
        found: Array = self.numbers[list(places)].astype(np.float32) * self.scale[list(places), None]
        return found


class Network:
    """A trained network. Never changes."""

    def __init__(self, weights: Mapping[str, NDArray[np.generic]], ends: tuple[int, ...]) -> None:
        """Take weights by the names of `training/reader_network.py`. Raises KeyError and ValueError for others."""
        self._words, self._letters = (_Table.of(weights, f"{name}.weight") for name in ("words", "letters"))
        floats = dequantised({name: value for name, value in weights.items() if not name.startswith(_TABLES)})
        self._marks, self._turns = floats["marks.weight"], floats["turns.weight"]
        self._norm = _norm(floats, "norm")
        self._enter, self._tags, self._parts, self._pool, self._whole, self._ends = (
            _linear(floats, name) for name in ("enter", "tags", "parts", "pool", "whole", "ends")
        )
        count = 1 + max(int(name.split(".")[1]) for name in floats if name.startswith("blocks."))
        self._blocks = [_block(floats, f"blocks.{at}") for at in range(count)]
        self._cuts = np.cumsum(ends)[:-1]
        if self._ends[1].size != sum(ends):
            raise ValueError(f"its weights choose from {self._ends[1].size} ends, and there are {sum(ends)}")
        self._entered = lru_cache(_CACHED_WORDS)(self._enter_word)

    @property
    def listed(self) -> int:
        return len(self._words.numbers) - 1

    @property
    def tags(self) -> int:
        return self._tags[1].size

    def scores(self, seen: Seen, numbers: list[int]) -> Scores:
        """Return the scores of T words, one at least; `numbers` [T] are theirs in the list."""
        words = np.stack([self._entered(text, number) for text, number in zip(seen.texts, numbers, strict=True)])
        x = words + self._marks[np.array(seen.marks)].sum(1) + self._turns[seen.turns]
        places = np.arange(len(numbers))
        distances = np.clip(places[None] - places[:, None], -DISTANCES, DISTANCES) + DISTANCES
        for block in self._blocks:
            x = block.over(x, distances)
        x = _normed(x, self._norm)
        pooled = _softmax(_product(x, self._pool), 0).T @ x
        ends = _product(_silu(_product(pooled.reshape(1, -1), self._whole)), self._ends)[0]
        tags, parts = _product(x, self._tags), _product(x, self._parts)
        return Scores(log_softmax(tags), log_softmax(parts), tuple(np.split(ends, self._cuts)))

    def _enter_word(self, text: str, number: int) -> Array:
        """Return what a word adds to the state at its place: most words are common, and are asked for again."""
        letters = self._letters.rows(grams(text, len(self._letters.numbers))).mean(0)
        return _product(letters + self._words.rows((number,))[0], self._enter)


def dequantised(weights: Mapping[str, NDArray[np.generic]]) -> dict[str, Array]:
    """Return weights in float32, without the scales of those that were kept in int8."""
    found: dict[str, Array] = {}
    for name, value in weights.items():
        scale = weights.get(f"{name}.scale")
        if not name.endswith(".scale"):
            found[name] = np.asarray(value, np.float32)
            if scale is not None:
                found[name] *= np.asarray(scale, np.float32)[:, None]
    return found


def _linear(floats: Mapping[str, Array], name: str) -> tuple[Array, Array]:
    return np.ascontiguousarray(floats[f"{name}.weight"].T), floats[f"{name}.bias"]


def _norm(floats: Mapping[str, Array], name: str) -> tuple[Array, Array]:
    return floats[f"{name}.weight"], floats[f"{name}.bias"]


def _block(floats: Mapping[str, Array], name: str) -> _Block:
    near, asks, told, inner, outer = (
        _linear(floats, f"{name}.{part}") for part in ("near", "asks", "told", "inner", "outer")
    )
    near_norm, far_norm, own_norm = (_norm(floats, f"{name}.{part}_norm") for part in ("near", "far", "own"))
    asks, inner = _after_norm(far_norm, asks), _after_norm(own_norm, inner)
    distance = np.ascontiguousarray(floats[f"{name}.distance"].T)
    width, heads = told[1].size, len(distance)
    for part in asks:  # the scale of attention, in what asks
        part[..., :width] *= np.float32((width // heads) ** -0.5)
    return _Block(near_norm, near, asks, told, inner, outer, distance)


def _after_norm(norm: tuple[Array, Array], layer: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return one layer for a norm's weights and those of the layer after it."""
    return np.ascontiguousarray(norm[0][:, None] * layer[0]), layer[1] + norm[1] @ layer[0]


def log_softmax(scores: Array) -> Array:
    moved: Array = scores - scores.max(-1, keepdims=True)
    logarithms: Array = moved - np.log(np.exp(moved).sum(-1, keepdims=True))
    return logarithms


def _softmax(scores: Array, axis: int) -> Array:
    raised: Array = np.exp(scores - scores.max(axis, keepdims=True))
    raised /= raised.sum(axis, keepdims=True)
    return raised


def _product(x: Array, layer: tuple[Array, Array]) -> Array:
    product: Array = x @ layer[0]
    product += layer[1]
    return product


def _centred(x: Array) -> Array:
    """Return rows with mean 0 and deviation 1."""
    moved: Array = x - x.mean(-1, keepdims=True)
    squares = np.einsum("tw,tw->t", moved, moved) / np.float32(x.shape[1])
    moved /= np.sqrt(squares + np.float32(_EPSILON))[:, None]
    return moved


def _normed(x: Array, norm: tuple[Array, Array]) -> Array:
    return _centred(x) * norm[0] + norm[1]


def _sigmoid(x: Array) -> Array:
    raised: Array = np.exp(-x)
    raised += np.float32(1)
    return np.reciprocal(raised, out=raised)


def _silu(x: Array) -> Array:
    raised = _sigmoid(x)
    raised *= x
    return raised
