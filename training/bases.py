"""The base that a run trains: what it is, whether it and its tokenizer fit, and what the run will take.

Everything is looked at before anything is made: hours into a training is no time to learn that the memory is too small.
"""

import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from service.decoding.llama_config import LlamaConfig
from service.planner.vocabulary import Vocabulary
from service.settings.choices import SHIPPED_MODEL
from service.weights.base_weights import BASE_NAME, ensure_base_weights
from service.weights.checkpoint import check_shapes, copy_base, expected_shapes, read_config, read_shapes
from service.weights.importing import special_tokens
from service.weights.model_card import BASE_FOLDER, read_card
from service.weights.model_folder import base_folder, require_memory
from service.weights.tokenizer_file import read_tokenizer
from training.settings import TrainingSettings
from training.tuned import precision

_SHIPPED_LAYERS = 106_168_320  # weights in the linear layers of the shipped base, which the recorded minutes are of
_PARTIAL = f"{BASE_FOLDER}.partial"
_CORES = 2  # that they were taken on


@dataclass(frozen=True, slots=True)
class Base:
    """A base: its checkpoint, its architecture and its special tokens."""

    folder: Path
    config: LlamaConfig
    bos: int
    eos: int
    is_shipped: bool

    @property
    def parameters(self) -> int:
        """Number of its weights."""
        return sum(math.prod(shape) for shape in expected_shapes(self.config).values())

    @property
    def linear(self) -> int:
        """Number of the weights in its layers' products, which time goes with."""
        shapes = expected_shapes(self.config)
        return sum(math.prod(shape) for name, shape in shapes.items() if "_proj.weight" in name)

    def adapter(self, rank: int) -> int:
        """Return the number of weights of a LoRA adapter on every linear layer."""
        shapes = expected_shapes(self.config)
        return sum(rank * sum(shape) for name, shape in shapes.items() if "_proj.weight" in name)

    def place(self, model: Path) -> str:
        """Put the base into a model folder, once, and return how its card names it; the shipped one is fetched."""
        if self.is_shipped:
            return BASE_NAME
        if not (model / BASE_FOLDER / "config.json").is_file():
            for name in (BASE_FOLDER, _PARTIAL):  # of a run that was broken off here
                shutil.rmtree(model / name, ignore_errors=True)
            copy_base(self.folder, model / _PARTIAL)
            (model / _PARTIAL).rename(model / BASE_FOLDER)
        return BASE_FOLDER


def read_base(given: Path | None, cache: Path) -> Base:
    """Return the base in a checkpoint's or a model's folder, or the shipped one.

    Raises LayoutError, ModelFolderError or BaseWeightsError with what to do.
    """
    if given is None:
        folder = ensure_base_weights(cache)
        return Base(folder, read_config(folder), 1, 2, is_shipped=True)  # <|im_start|> and <|im_end|>
    if (given / "model.json").is_file():
        card = read_card(given)
        folder = base_folder(card, given, cache)
        bos, eos, is_shipped = card.bos_token_id, card.eos_token_id, card.base == BASE_NAME
    else:
        folder, is_shipped = given, False
        bos, eos = special_tokens(given, read_config(given).vocab_size)
    config = read_config(folder)
    check_shapes(read_shapes(folder), config, folder)
    return Base(folder, config, bos, eos, is_shipped=is_shipped)


def check_base(base: Base, settings: TrainingSettings, vocabulary: Vocabulary) -> str:
    """Return what a run will take, as lines for its owner.

    Raises VocabularyError where the tokenizer splits a word of the vocabulary, TooLittleMemoryError where the least
    that the run needs is more than is free.
    """
    vocabulary.check_tokens(read_tokenizer(base.folder / "tokenizer.json"), settings.vocabulary)
    adapter, hidden = base.adapter(settings.adapter.rank), base.config.hidden_size
    # Each process holds the base with the adapter, its average, gradient and Adam's two moments; later, its weights in
    # float16 and in int8. What a batch takes beside them is not counted.
    each = max(precision(torch.device("cpu")).itemsize * base.parameters + 20 * adapter, 3 * base.parameters)
    require_memory(settings.processes * each, f"training {base.folder.name} in {settings.processes} processes")
    recorded = json.loads((SHIPPED_MODEL / "training.json").read_text(encoding="utf-8"))["minutes"]
    hours = (
        sum(recorded.values()) / 60 * base.linear / _SHIPPED_LAYERS * settings.examples * _CORES / settings.processes
    )
    return (
        f"base: {base.folder} ({base.config.model_type}, {base.parameters / 1e6:,.0f} million weights)\n"
        f"adapter: {2 * adapter / 1e6:.1f} MB; heads: {settings.heads.heads * 2 * hidden * (hidden + 1) / 1e6:.1f} MB; "
        f"memory: {settings.processes} processes, at least {each / 1e9:.1f} GB each\n"
        f"time: some {hours:.1f} hours, if this machine is as fast as the one that trained the shipped model "
        f"({settings.processes} of its cores); a guess from the number of weights"
    )
