"""Readers of random weights, written as training writes them: they mark anything, and decide at random."""

from collections.abc import Sequence
from pathlib import Path

import torch

from service.planner.reader.reading import Choices, Reader
from service.planner.vocabulary import Vocabulary, shipped_vocabulary
from training.reader import SOURCES, choices_of, shape_of, write_reader
from training.reader_network import ReaderNetwork, Shape

# Enough for a table that is written in int8.
WORDS = ("red", "shoes", "nike", "under", "not", "$00", "size", *(f"other{number}" for number in range(200)))
_BUCKETS = 256
_DECIDED = 30.0  # times the weights that a network begins with, whose scores hardly differ


def choices(vocabulary: Vocabulary | None = None, least_probability: float = 0.0) -> Choices:
    return choices_of(vocabulary or shipped_vocabulary(), SOURCES, least_probability)


def random_network(seed: int, chosen: Choices, decided: float = _DECIDED) -> ReaderNetwork:
    torch.manual_seed(seed)
    of = shape_of(chosen, len(WORDS), _BUCKETS)
    shape = Shape(of.words, of.buckets, of.tags, of.parts, of.ends, width=48, word_width=24, blocks=2)
    network = ReaderNetwork(shape).eval()
    with torch.no_grad():
        for layer in (network.tags, network.parts, network.ends):
            layer.weight.mul_(decided)
    return network


def write(folder: Path, seed: int = 0, chosen: Choices | None = None, words: Sequence[str] = WORDS) -> Path:
    """Write the three files of a random reader."""
    chosen = chosen or choices()
    write_reader(random_network(seed, chosen), words, chosen, folder)
    return folder


def random_reader(folder: Path, seed: int, chosen: Choices | None = None) -> Reader:
    return Reader.load(write(folder, seed, chosen))
