"""`make train`: from the data folder to a model folder, in one run of at most four hours on two cores.

Every part is kept in WORK as soon as it is made, and the adapter every hundred steps, so that an interrupted run goes
on where it stopped. The model that ships is what this made, with the seed and the hashes in its `training.json`.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from peakplan_client.progress import progress_on_stderr

from service.planner.vocabulary import FILE_NAME, Vocabulary, VocabularyError, vocabulary_file
from service.settings import Settings
from service.settings.choices import SHIPPED_MODEL
from service.weights.base_weights import BaseWeightsError
from service.weights.head_layouts import LayoutError
from service.weights.model_card import MODEL_CARD, ModelCard, ModelFolderError
from service.weights.model_folder import TooLittleMemoryError
from training.bases import check_base, read_base
from training.data.mix import REFRESHING, Mix, Shares
from training.export import export_recipe
from training.finetune import Finetuning, finetune
from training.heads import train_heads
from training.kind_head import add_kind_head
from training.positions import collect
from training.reader import train_reader
from training.settings import TrainingSettings
from training.tree import calibrate
from training.worth import bound_reader

MAX_PLAN_TOKENS = 96


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="peakplan train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the training data")
    parser.add_argument("--work", type=Path, required=True, help="checkpoints and intermediate results")
    parser.add_argument("--output", type=Path, required=True, help="model folder to write; its name is the model's")
    parser.add_argument(
        "--base", type=Path, help="a checkpoint's folder, or a model's whose base it is; SmolLM2-135M unless given"
    )
    parser.add_argument(
        "--vocabulary", type=Path, default=SHIPPED_MODEL, help="the vocabulary.json to learn, or a folder with one"
    )
    parser.add_argument("--start", type=Path, help="a folder with an adapter to go on from, of the recipe's rank")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="0.01 rehearses the whole recipe with a hundredth of the examples"
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON; progress goes to standard error")
    arguments = parser.parse_args()
    settings = TrainingSettings(
        data=arguments.data.resolve(),
        cache=Settings().cache_dir.resolve(),
        work=arguments.work.resolve(),
        output=arguments.output.resolve(),
        vocabulary=arguments.vocabulary.resolve(),
        base=arguments.base.expanduser().resolve() if arguments.base else None,
        start=arguments.start.resolve() if arguments.start else None,
        shares=REFRESHING if arguments.start else Shares(),
        seed=arguments.seed,
        processes=len(os.sched_getaffinity(0)),
    )
    try:
        with progress_on_stderr(arguments.json):
            minutes = train(settings if arguments.scale == 1 else settings.scaled(arguments.scale))
    except (
        *(VocabularyError, BaseWeightsError, WorkFolderError, FileNotFoundError),
        *(LayoutError, ModelFolderError, TooLittleMemoryError),
    ) as error:
        sys.exit(f"error: {error}")
    ready = f"{settings.output} is ready; `make eval` and `make bench` measure it"
    print(json.dumps({"model": str(settings.output), "minutes": minutes}) if arguments.json else ready)


def train(settings: TrainingSettings) -> dict[str, float]:
    """Make every part of the model in turn, and return how many minutes each took.

    A part that is there already is not made again.
    """
    base = read_base(settings.base, settings.cache)
    vocabulary = Vocabulary.load(settings.vocabulary)
    print(check_base(base, settings, vocabulary), flush=True)
    model = settings.work / "model"
    model.mkdir(parents=True, exist_ok=True)
    card = ModelCard(
        id=settings.output.name,
        base=base.place(model),
        bos_token_id=base.bos,
        eos_token_id=base.eos,
        max_tokens=MAX_PLAN_TOKENS,
    )
    (model / MODEL_CARD).write_text(card.model_dump_json(indent=1) + "\n", encoding="utf-8")
    shutil.copyfile(vocabulary_file(settings.vocabulary), model / FILE_NAME)
    source = partial(Mix, settings.data, settings.shares)
    run = Finetuning(
        base.folder,
        base.bos,
        base.eos,
        vocabulary,
        source,
        settings.adapter,
        settings.work,
        settings.seed,
        settings.start,
    )
    minutes = make_parts(run, settings, model)
    export_recipe(model, settings, minutes)
    return minutes


def make_parts(
    run: Finetuning, settings: TrainingSettings, model: Path, judge: Callable[[], None] | None = None
) -> dict[str, float]:
    """Make every part that the folder `model` lacks; return how many minutes each took.

    `judge` sees the model as soon as it has its adapter, and may raise.
    """
    _claim(settings)
    steps: tuple[tuple[str, str, Callable[[], object]], ...] = (
        (
            "adapter_model.safetensors",
            "the base learns to write plans",
            lambda: finetune(run, model, settings.processes),
        ),
        (
            "medusa_heads.safetensors",
            "Medusa heads learn to foresee the tuned model's own plans",
            lambda: train_heads(collect(settings, model), settings, model),
        ),
        (
            "reader.safetensors",
            "a small reader learns to write plans, too",
            lambda: train_reader(settings, model),
        ),
        (
            "kind_head.safetensors",
            "a head learns what a shop has for a need",
            lambda: add_kind_head(settings, model),
        ),
        (
            "medusa_tree.json",
            "the tree is calibrated on dev plans and this machine's costs",
            lambda: calibrate(settings, model),
        ),
        (
            "bound",
            "what the reader may plan by choice is bounded",
            lambda: bound_reader(model, settings.cache, settings.work, settings.processes, settings.worth),
        ),
    )
    record = _Record(settings.work / "record.json")
    for number, (part, what, make) in enumerate(steps, 1):
        if part not in record.minutes:
            print(f"{number}/{len(steps)} {what}", flush=True)
            started = time.monotonic()
            make()
            record.add(part, time.monotonic() - started)
        if number == 1 and judge is not None:
            judge()
    return record.minutes


def _claim(settings: TrainingSettings) -> None:
    """Note the settings in the work folder. Raises WorkFolderError where another run began."""
    path, own = settings.work / "settings.txt", settings.description
    if path.is_file() and path.read_text(encoding="utf-8") != own:
        raise WorkFolderError(
            f"{settings.work} holds a run with other settings, data or rows ({path.name} has them): remove that folder "
            "to begin anew, or name another with WORK="
        )
    path.write_text(own, encoding="utf-8")


class WorkFolderError(ValueError):
    """Raised where a work folder belongs to another run."""


class _Record:
    """The parts that are whole, and how long each took (the time before an interruption is not counted)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.minutes: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def add(self, part: str, seconds: float) -> None:
        self.minutes[part] = round(seconds / 60, 1)
        partial_file = self._path.with_suffix(".partial")
        partial_file.write_text(json.dumps(self.minutes) + "\n", encoding="utf-8")
        partial_file.replace(self._path)


if __name__ == "__main__":
    main()
