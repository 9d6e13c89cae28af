"""Train the vectors of words that tell what a need is about: `python -m training.word_vectors TEACHER`.

A sentence encoder (TEACHER: a folder with the model.safetensors and tokenizer.json of all-MiniLM-L6-v2) says what words
and texts mean; a vector for each word is trained so that a text's sum points where the encoder's answer does. The
service then needs a look-up a word, and no second model. What shoppers need then draws the vectors to the categories
that meet it (`training.needs`). models/word-vectors/README.md has the whole recipe.

Texts are WordNet's definitions and examples (things and food, what one does with them, some of all else), product
searches, instructions and questions of shoppers, and names of the public taxonomy. Nothing of the sample shop is read.
"""

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional

from service.planner.shop.kinds import plain_words
from service.planner.shop.meanings import WORD_VECTORS
from training.data.rows import read_rows
from training.needs import draw_together, read_needs, summed, write_general

_WIDTH: Final = 384
_HEADS: Final = 12
_LAYERS: Final = 6
_EPSILON: Final = 1e-12
_MOST_TOKENS: Final = 40
_ENCODED: Final = 128  # texts that the encoder reads at once


class SentenceEncoder:
    """Says what texts mean, in bfloat16: the cosine with float32's answers is 0.9999 at least."""

    def __init__(self, folder: Path) -> None:
        """Load model.safetensors and tokenizer.json of a folder."""
        self._weights = {
            name: weight.bfloat16() if weight.is_floating_point() else weight
            for name, weight in load_file(folder / "model.safetensors").items()
        }
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MOST_TOKENS)

    @torch.no_grad()
    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        """Return vectors of length 1, [texts, 384]."""
        tokens = [each.ids for each in self._tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(tokens)), key=lambda at: len(tokens[at]))
        found = torch.zeros(len(tokens), _WIDTH)
        for first in range(0, len(order), _ENCODED):
            batch = order[first : first + _ENCODED]
            longest = max(len(tokens[at]) for at in batch)
            ids, mask = torch.zeros(len(batch), longest, dtype=torch.long), torch.zeros(len(batch), longest)
            for row, at in enumerate(batch):
                ids[row, : len(tokens[at])] = torch.tensor(tokens[at])
                mask[row, : len(tokens[at])] = 1
            found[batch] = self._forward(ids, mask).float()
        return found

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        count, length = ids.shape
        states = self._weights["embeddings.word_embeddings.weight"][ids]
        states = states + self._weights["embeddings.position_embeddings.weight"][:length]
        states = self._norm(states + self._weights["embeddings.token_type_embeddings.weight"][0], "embeddings")
        seen = mask[:, None, None, :].bool()
        for layer in range(_LAYERS):
            name = f"encoder.layer.{layer}"
            parts = (self._linear(states, f"{name}.attention.self.{part}") for part in ("query", "key", "value"))
            query, key, value = (part.view(count, length, _HEADS, -1).transpose(1, 2) for part in parts)
            heard = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
            heard = self._linear(heard.transpose(1, 2).reshape(count, length, _WIDTH), f"{name}.attention.output.dense")
            states = self._norm(heard + states, f"{name}.attention.output")
            inner = functional.gelu(self._linear(states, f"{name}.intermediate.dense"))
            states = self._norm(self._linear(inner, f"{name}.output.dense") + states, f"{name}.output")
        shares = (mask / mask.sum(1, keepdim=True))[..., None]
        return functional.normalize((states * shares).sum(1), dim=-1)

    def _linear(self, states: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(states, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _norm(self, states: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = self._weights[f"{name}.LayerNorm.weight"], self._weights[f"{name}.LayerNorm.bias"]
        return functional.layer_norm(states, (_WIDTH,), weight, bias, _EPSILON)


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


_SIZE: Final = 128  # numbers a word
_EPOCHS: Final = 8
_BATCH: Final = 256
_RATE: Final = 2e-3
_HELD_OUT: Final = 25  # one text in so many
_FREQUENT: Final = 1e-3  # a word in more of the texts than this begins shorter (Arora et al. 2017)
_TEMPERATURE: Final = 0.07
_ORDER_WEIGHT: Final = 0.3  # of the batch's order as the encoder sees it, beside the direction
_SAMPLE: Final = 20_000  # texts and words that the projection is found by
_WIDEST: Final = 0.9999  # quantile of the numbers that int8 still tells apart
_CHUNK: Final = 2048


def teach(texts: Texts, encoder: SentenceEncoder, work: Path) -> dict[str, torch.Tensor]:
    """Return what words, names and texts mean. What an ended run has written into `work` is not done again."""
    work.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, wanted in texts._asdict().items():
        file = work / f"{name}.pt"
        if not file.is_file():
            parts = []
            for first in range(0, len(wanted), _CHUNK):
                parts.append(encoder.encode(wanted[first : first + _CHUNK]).half())
                print(f"{name}: {first + len(parts[-1]):,} of {len(wanted):,}", flush=True)
            torch.save(torch.cat(parts), file)
        found[name] = torch.load(file).float()
        if len(found[name]) != len(wanted):
            raise ValueError(f"{file} is of other texts: remove {work}")
    return found


def distil(texts: Texts, meant: dict[str, torch.Tensor]) -> tuple[torch.Tensor, float]:
    """Return a vector for each word, and the mean cosine of held-out texts with the encoder's answers."""
    torch.manual_seed(0)
    answers = torch.cat([meant["names"], meant["texts"]])
    centre = answers.mean(0)
    everything = torch.cat([answers, meant["words"]]) - centre
    sample = everything[torch.randperm(len(everything))[:_SAMPLE]]
    axes = torch.linalg.svd(sample, full_matrices=False)[2][:_SIZE].T
    number = {word: at for at, word in enumerate(texts.words)}
    told = [
        [number[word] for word in dict.fromkeys(plain_words(text)) if word in number]
        for text in (*texts.names, *texts.texts)
    ]
    answers = functional.normalize((answers - centre) @ axes, dim=-1)[[at for at, each in enumerate(told) if each]]
    told = [each for each in told if each]
    start = functional.normalize((meant["words"] - centre) @ axes, dim=-1) * _importance(told, len(texts.words))
    vectors = torch.nn.EmbeddingBag.from_pretrained(start, freeze=False, mode="sum")
    held_out = list(range(0, len(told), _HELD_OUT))
    training = [at for at in range(len(told)) if at % _HELD_OUT]
    adam = torch.optim.Adam(vectors.parameters(), lr=_RATE)
    agreed = 0.0
    for epoch in range(_EPOCHS):
        random.Random(epoch).shuffle(training)
        for group in adam.param_groups:
            group["lr"] = _RATE * (1 - epoch / _EPOCHS)
        for first in range(0, len(training) - _BATCH + 1, _BATCH):
            batch = training[first : first + _BATCH]
            adam.zero_grad()
            _loss(summed(vectors, [told[at] for at in batch]), answers[batch]).backward()  # type: ignore[no-untyped-call]
            adam.step()
        with torch.no_grad():
            agreed = float((summed(vectors, [told[at] for at in held_out]) * answers[held_out]).sum(1).mean())
        print(f"epoch {epoch + 1}: cosine with the encoder on held-out texts {agreed:.4f}", flush=True)
    return vectors.weight.detach(), agreed


def _importance(told: Sequence[Sequence[int]], words: int) -> torch.Tensor:
    counts = torch.bincount(torch.tensor([word for each in told for word in each]), minlength=words)
    return (_FREQUENT / (_FREQUENT + (counts + 1) / len(told)))[:, None]


def _loss(given: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """Return how far vectors are from the encoder's, in direction and in what of the batch is close to what."""
    order = functional.kl_div(
        functional.log_softmax(given @ answers.T / _TEMPERATURE, 1),
        functional.softmax(answers @ answers.T / _TEMPERATURE, 1),
        reduction="batchmean",
    )
    return 1 - (given * answers).sum(1).mean() + _ORDER_WEIGHT * order


def write(path: Path, words: Sequence[str], vectors: torch.Tensor) -> None:
    """Write the words and their vectors in int8 (a cosine does not see their scale)."""
    numbers = vectors.numpy()
    scale = np.quantile(np.abs(numbers), _WIDEST) / 127
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        path,
        words=np.frombuffer("\n".join(words).encode(), np.uint8),
        vectors=np.clip(np.round(numbers / scale), -127, 127).astype(np.int8),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--wordnet", type=Path, default=Path("/usr/share/wordnet"), help="Debian's wordnet-base")
    parser.add_argument(
        "--work", type=Path, default=Path("build/word-vectors"), help="what the encoder said stays here"
    )
    parser.add_argument("--output", type=Path, default=WORD_VECTORS)
    given = parser.parse_args()
    texts = word_texts(given.data, given.wordnet)
    print(json.dumps({name: len(found) for name, found in texts._asdict().items()}), flush=True)
    vectors, _ = distil(texts, teach(texts, SentenceEncoder(given.teacher), given.work))
    write(given.output, texts.words, draw_together(texts.words, vectors, read_needs()))
    write_general(given.output)


if __name__ == "__main__":
    main()
