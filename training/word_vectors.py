"""Train the vectors of words that tell what a need is about: `python -m training.word_vectors TEACHER`.

A sentence encoder (TEACHER: a folder with the model.safetensors and tokenizer.json of all-MiniLM-L6-v2) says what words
and texts mean; a vector for each word is trained so that a text's sum points where the encoder's answer does. The
service then needs a look-up a word, and no second model. What shoppers need then draws the vectors to the categories
that meet it (`training.needs`). models/word-vectors/README.md has the whole recipe.
"""

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch.nn import functional

from service.planner.shop.kinds import plain_words
from service.planner.shop.meanings import WORD_VECTORS
from training.needs import Telling, draw_together, named_things, read_needs, summed, tell_apart, write_general
from training.sentence_encoder import SentenceEncoder
from training.word_texts import Texts, word_texts

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


def write(path: Path, words: Sequence[str], vectors: torch.Tensor, telling: Telling) -> None:
    """Write the words, their vectors in int8 (a cosine does not see their scale), and what they tell."""
    numbers = vectors.numpy()
    scale = np.quantile(np.abs(numbers), _WIDEST) / 127
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        path,
        words=np.frombuffer("\n".join(words).encode(), np.uint8),
        vectors=np.clip(np.round(numbers / scale), -127, 127).astype(np.int8),
        telling=np.vstack([telling.weights.numpy().T, [telling.bias, 0, 0]]).astype(np.float16),
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
    needs = read_needs()
    telling = tell_apart(texts.words, needs, named_things(given.data))
    write(given.output, texts.words, draw_together(texts.words, vectors, needs), telling)
    write_general(given.output)


if __name__ == "__main__":
    main()
