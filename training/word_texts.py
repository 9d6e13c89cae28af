"""The words that get vectors, and the texts that those are trained on (`training.word_vectors`).

Dictionary definitions and examples (WordNet: things and food, what one does with them, and some of all else), product
searches, instructions and questions of shoppers, and names of the public taxonomy. Nothing of the sample shop is read.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from service.planner.shop.kinds import plain_words
from training.data.rows import read_rows

_PARTS: Final = ("noun", "verb", "adj", "adv")
_THINGS: Final = (6, 13)  # WordNet's lexicographer files noun.artifact and noun.food
_NEAR_THINGS: Final = (4, 5, 8, 12, 20, 26)  # acts, animals, bodies, feelings, plants, states
_SHARES: Final = {"near": 0.25, "verb": 0.4, "adj": 0.15, "example": 0.6}
_LONGEST_DEFINITION, _LONGEST_EXAMPLE, _LONGEST_TEXT = 22, 15, 24  # words
_MOST_WORDS: Final = 24_000
_MOST_NAMES: Final = 6000  # of things, that have several words
_SHOPPERS: Final = 4  # a shopper's text counts as so many of the dictionary's for a word's frequency
_MOST: Final = {
    "queryner_train": 7816, "webshop_instructions": 4500, "pqa_questions": 2500, "clinc_train_sample": 1500,
    "bitext_support": 600, "taxonomy_categories": 6000, "plan_synth_taxonomy": 3500,
}  # fmt: skip


class Texts(NamedTuple):
    """Words, the most frequent first; names of things that have several words; whole texts."""

    words: list[str]
    names: list[str]
    texts: list[str]


class _Entry(NamedTuple):
    part: str
    file: int
    names: list[str]
    definition: str
    examples: list[str]


def word_texts(data: Path, wordnet: Path) -> Texts:
    """Return the same for the same data folder and WordNet folder. Raises OSError where a file is missing."""
    chance = random.Random(0)
    frequency: Counter[str] = Counter()
    texts: list[str] = []
    names: dict[str, None] = {}
    for entry in _entries(wordnet):
        for text in (entry.definition, *entry.examples, *entry.names):
            frequency.update(set(plain_words(text)))
        if len(entry.definition.split()) > _LONGEST_DEFINITION:
            continue
        if entry.part == "noun" and entry.file in _THINGS:
            names |= dict.fromkeys(name for name in entry.names if " " in name)
            texts.append(entry.definition)
        elif _is_taken(entry, chance.random):
            texts.append(entry.definition)
        if entry.part == "verb":
            texts += [
                each
                for each in entry.examples
                if len(each.split()) <= _LONGEST_EXAMPLE and chance.random() < _SHARES["example"]
            ]
    for name, most in _MOST.items():
        found = [text for text in dict.fromkeys(_shoppers(data, name)) if text and len(text.split()) <= _LONGEST_TEXT]
        for text in found:
            frequency.update(dict.fromkeys(set(plain_words(text)), _SHOPPERS))
        chance.shuffle(found)
        texts += found[:most]
    known = [word for word, count in frequency.items() if count >= _SHOPPERS and _is_word(word)]
    words = sorted(known, key=lambda word: (-frequency[word], word))
    texts, several = list(dict.fromkeys(texts)), list(names)
    chance.shuffle(texts)
    chance.shuffle(several)
    return Texts(words[:_MOST_WORDS], several[:_MOST_NAMES], texts)


def _is_word(text: str) -> bool:
    return len(text) > 1 and not text.isdigit()


def _is_taken(entry: _Entry, chance: Callable[[], float]) -> bool:
    part = "near" if entry.part == "noun" and entry.file in _NEAR_THINGS else entry.part
    return part in _SHARES and chance() < _SHARES[part]


def _entries(wordnet: Path) -> Iterator[_Entry]:
    for part in _PARTS:
        for line in (wordnet / f"data.{part}").read_text(encoding="utf-8").splitlines():
            if line.startswith("  "):  # the licence
                continue
            head, _, gloss = line.partition(" | ")
            fields = head.split()
            names = [fields[4 + 2 * at].replace("_", " ").split("(")[0] for at in range(int(fields[3], 16))]
            examples = re.findall(r'"([^"]+)"', gloss)
            yield _Entry(part, int(fields[1]), names, gloss.strip().split('; "')[0], examples)


def _shoppers(data: Path, name: str) -> Iterable[str]:
    rows = list(read_rows(data / f"{name}.jsonl.gz"))
    if name == "taxonomy_categories":
        return [" ".join(row["path"].split(" > ")[-2:]) for row in rows]
    if name == "webshop_instructions":
        return [row["instruction"] for row in rows] + [query for row in rows for query in row["human_queries"]]
    key = {"queryner_train": "query", "pqa_questions": "question"}.get(name, "text")
    return [row[key] for row in rows]
