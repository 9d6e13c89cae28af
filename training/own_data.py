"""`make finetune`: go on from a model with rows of one's own (docs/own-data.md), measured before and after.

The adapter and the reader learn from the rows and from a rehearsal of our own material; heads and tree are then made
anew for the adapter. A tenth of the rows, by a hash of their words, is held out: a model that is worse on them is not
written. Restartable, like `make train`; the output folder appears whole or not at all.
"""

import json
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from peakplan_client.progress import progress_on_stderr

from service.planner.plan_text import PlanDraft, PlanTextError, parse
from service.planner.question import Question
from service.planner.reader.reading import CARD
from service.planner.vocabulary import FILE_NAME, Vocabulary, VocabularyError, vocabulary_file
from service.settings import Settings
from service.settings.choices import SHIPPED_MODEL
from service.weights.base_weights import BaseWeightsError
from service.weights.head_layouts import LayoutError
from service.weights.model_folder import ModelFolderError, base_folder, read_card
from service.weights.tokenizer_file import read_tokenizer
from training.bases import read_base
from training.data import conversations
from training.data.examples import Example, within
from training.data.own_rows import ORIGIN, OURS, OwnMix, OwnRows, RowsError
from training.export import export_model, part_sizes, part_table, sha256
from training.finetune import Finetuning
from training.own_check import JUDGED, KIND_HEAD_TEXTS, Work, checked, parser, told
from training.own_check import main as check
from training.recipe import WorkFolderError, make_parts
from training.settings import (
    AdapterSettings,
    HeadSettings,
    KindHeadSettings,
    ReaderSettings,
    TrainingSettings,
    WorthSettings,
)
from training.tuned import TunedModel
from training.worth import rebound

_ADAPTER = "adapter_model.safetensors"
_READER_PASSES = 3  # of the reader's, for each of the adapter's
ENOUGH_TO_TELL = 20  # held-out rows
_TIMED = 12  # plans, before a run begins
UNLEARNT = 0.03  # of the questions of ours: what a model may lose there
_CARD = """# {id}

{before}, gone on with from {rows:,} rows of one's own (`make finetune`, docs/own-data.md; `training.json`
has digests of rows and parts). It writes the plan text of `service/planner/plan_text.py` in the words of its own
`vocabulary.json`.

| part | what | size |
|---|---|---:|
{parts}

{measured}
"""


class OwnDataError(ValueError):
    """Raised where a fine-tuning cannot begin, or its result should not be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for: rows, the model to go on from, and where the new one goes."""

    rows: Path
    start: Path
    output: Path
    work: Path
    vocabulary: Path
    epochs: int
    rehearsal: float  # share of the own rows, or of LEAST_REHEARSED where these are fewer
    questions: int  # that heads learn from
    measured: int  # questions of theirs, and of ours, at most
    seed: int
    accept_worse: bool


def main() -> None:
    given = parser().parse_args()
    if given.check:
        check()
        return
    if given.output is None:
        parser().error("--output is needed: the model folder to write")
    output = given.output.resolve()
    wish = Wish(
        rows=given.rows,
        start=given.start.resolve(),
        output=output,
        work=(given.work or Path("runs") / output.name).resolve(),
        vocabulary=(given.vocabulary or given.start).resolve(),
        epochs=given.epochs,
        rehearsal=given.rehearsal,
        questions=given.questions,
        measured=given.measured,
        seed=given.seed,
        accept_worse=given.accept_worse,
    )
    try:
        with progress_on_stderr(given.json):
            record = finetune_own(wish, *checked(wish.rows, wish.vocabulary))
    except (
        *(RowsError, VocabularyError, ModelFolderError, BaseWeightsError, WorkFolderError, OwnDataError),
        LayoutError,
    ) as error:
        sys.exit(f"error: {error}")
    ready = f"{wish.output} is ready: PEAKPLAN_MODEL_DIR={wish.output} make serve"
    print(json.dumps({"model": str(wish.output), **record}) if given.json else ready)


def finetune_own(wish: Wish, vocabulary: Vocabulary, rows: OwnRows) -> dict[str, Any]:
    """Make the model, and return the record of its making.

    Raises OwnDataError, ModelFolderError, BaseWeightsError, WorkFolderError, VocabularyError.
    """
    if wish.output.exists():
        raise OwnDataError(f"{wish.output} exists already: remove it, or name another OUTPUT=")
    cache = Settings().cache_dir.resolve()
    card = read_card(wish.start)
    base = base_folder(card, wish.start, cache)
    vocabulary.check_tokens(read_tokenizer(base / "tokenizer.json"), wish.vocabulary)
    model = wish.work / "model"
    model.mkdir(parents=True, exist_ok=True)
    start = read_base(wish.start, cache)
    named = {"id": wish.output.name, "base": start.place(model)}
    (model / "model.json").write_text(json.dumps(card.model_dump() | named, indent=1) + "\n", encoding="utf-8")
    shutil.copyfile(vocabulary_file(wish.vocabulary), model / FILE_NAME)

    before = TunedModel(wish.start, cache)
    do = Work(len(rows.train), len(rows.dev), wish.epochs, wish.rehearsal, wish.questions, wish.measured)
    print(told(do, plan_seconds(rows.train, before)), flush=True)
    before_it = wish.start if (wish.start / _ADAPTER).is_file() else None  # an imported base has none
    train = with_context(rows.train, before) if before_it else rows.train
    source = _source(wish, OwnRows(train, rows.dev), do.rehearsed)
    settings = _settings(wish, cache, source)
    bos, eos = card.bos_token_id, card.eos_token_id
    run = Finetuning(base, bos, eos, vocabulary, source, settings.adapter, wish.work, wish.seed, before_it)
    tables: dict[str, Any] = {}
    minutes = make_parts(run, settings, model, lambda: _judge(wish, before, TunedModel(model, cache), rows.dev, tables))
    said = rebound(model, rows.dev, cache, wish.work, settings.processes)
    print(said, flush=True)
    digest = sha256(wish.rows)
    record = {
        "from": {"id": card.id, "adapter": sha256(before_it / _ADAPTER) if before_it else None},
        "rows": {"file": wish.rows.name, "sha256": digest, "train": len(rows.train), "held out": len(rows.dev)},
        "seed": wish.seed, "torch": torch.__version__, "minutes": minutes, "measured": tables,
    }  # fmt: skip
    text = _CARD.format(
        id=wish.output.name,
        before=card.id,
        rows=len(rows.train),
        parts=part_table(part_sizes(model)),
        measured="\n\n".join([*(_table(title, *shares) for title, shares in tables.items()), said]),
    )
    export_model(model, wish.output, cache, record, text)
    return record


def plan_seconds(examples: Sequence[Example], model: TunedModel) -> float:
    """Return how long a greedy plan takes here now, on average over some; the first one warms up."""
    model.greedy(examples[0].question())
    began, asked = time.monotonic(), examples[:_TIMED]
    for example in asked:
        model.greedy(example.question())
    return (time.monotonic() - began) / len(asked)


def _source(wish: Wish, rows: OwnRows, rehearsed: int) -> partial[OwnMix]:
    path = wish.work / "rows.pickle"
    return partial(OwnMix, path, OwnMix.save(rows, path), rehearsed)


def _settings(wish: Wish, cache: Path, source: partial[OwnMix]) -> TrainingSettings:
    """Return the recipe's settings, gentler where there is something to lose."""
    config, own, kind_head = wish.start / "adapter_config.json", AdapterSettings(), KindHeadSettings()
    before = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    return TrainingSettings(
        data=wish.rows.parent,
        cache=cache,
        work=wish.work,
        output=wish.output,
        vocabulary=wish.vocabulary,
        seed=wish.seed,
        processes=len(os.sched_getaffinity(0)),
        adapter=AdapterSettings(
            rank=before.get("r", own.rank),
            alpha=before.get("lora_alpha", own.alpha),
            epochs=wish.epochs,
            learning_rate=2e-4,
            warmup_steps=20,
            average_decay=0.99,
        ),
        heads=HeadSettings(questions=wish.questions),
        source=source,
        kind_head=kind_head.scaled(min(1.0, KIND_HEAD_TEXTS * wish.questions / kind_head.texts)),
        reader=ReaderSettings(epochs=_READER_PASSES * wish.epochs, learning_rate=5e-4, warmup_steps=20),
        reader_start=wish.start if (wish.start / CARD).is_file() else SHIPPED_MODEL,
        worth=WorthSettings(conversations=JUDGED, asked=JUDGED),
    )


def with_context(examples: Sequence[Example], model: TunedModel) -> list[Example]:
    """Return the examples with what rows do not say, as the model writes it.

    Beside known facets: prices, ratings, needs, sort and offers, which are learnt again. Before a known vertical: the
    spans, as context.
    """
    return [_in_context(example, model) for example in examples]


def _in_context(example: Example, model: TunedModel) -> Example:
    draft = example.draft
    if draft.foreign or not (example.knows_facets or example.knows_vertical):
        return example
    said = planned(example.question(), model)
    if said is None:
        return example
    if not example.knows_facets:
        sources = draft.sources if example.knows_sources else said.sources
        return replace(example, draft=replace(draft, spans=said.spans, marks=said.marks, sources=sources))
    taken = {index for span in draft.spans for index in span.indices}
    marks = [mark for mark in said.marks if taken.isdisjoint(mark.indices)]
    known = replace(draft, marks=marks, sort=said.sort, offers=said.offers)
    return replace(example, draft=known, knows_closing=True)


def planned(question: Question, model: TunedModel) -> PlanDraft | None:
    """Return the model's plan, decoded as in service; None where it writes no whole one."""
    plan = model.greedy(question)
    try:
        return None if plan is None else parse(model.text(plan.tokens), question, model.vocabulary)
    except PlanTextError:
        return None


def right(example: Example, draft: PlanDraft | None) -> Iterator[tuple[str, bool]]:
    """Yield (label, whether it is right) for every label that the example knows, and "all of a row" last."""
    wanted, question, every = example.draft, example.question(), []
    known = {
        "intent": example.knows_intent,
        "facets": example.knows_facets,
        "vertical": example.knows_vertical,
        "first source": example.knows_sources and wanted.sources[:1] != [],
    }
    for label in (label for label, is_known in known.items() if is_known):
        is_right = draft is not None and _part(label, draft, question) == _part(label, wanted, question)
        every.append(is_right)
        yield label, is_right
    yield "all of a row", all(every)


def _part(label: str, draft: PlanDraft, question: Question) -> Any:
    if label == "facets":  # wherever a value was said
        return {(span.facet, question.spelled(span.indices), span.refused, span.part) for span in draft.spans}
    if label == "vertical":
        return draft.vertical, draft.foreign
    return draft.intent if label == "intent" else draft.sources[:1]


def measure(examples: Sequence[Example], model: TunedModel) -> dict[str, list[bool]]:
    """Plan the questions; return what was right, by label."""
    found: dict[str, list[bool]] = {}
    for example in examples:
        for label, is_right in right(example, planned(example.question(), model)):
            found.setdefault(label, []).append(is_right)
    return found


def _judge(wish: Wish, before: TunedModel, after: TunedModel, dev: list[Example], tables: dict[str, Any]) -> None:
    """Measure both models on held-out rows and on questions of ours. Raises OwnDataError where the new one is worse."""
    shares: dict[str, tuple[float, float]] = {}
    ours = list(chain.from_iterable(conversations.examples("dev")))
    for origin, title, examples in (
        (ORIGIN, "held-out rows of yours", dev),
        (OURS, "questions of ours, which the model should not unlearn", ours),
    ):
        drawn = random.Random(0).sample(examples, min(wish.measured, len(examples)))
        asked = [said for example in drawn if (said := within(example, after.vocabulary)) is not None]
        if not asked:
            continue
        old, new = measure(asked, before), measure(asked, after)
        tables[title] = [{label: _share(values) for label, values in found.items()} for found in (old, new)]
        print(_table(title, *tables[title]), flush=True)
        shares[origin] = (_share(old["all of a row"]), _share(new["all of a row"]))
    worse = [
        f"{share[0]:.1%} of {what} were right before and {share[1]:.1%} are now"
        for origin, what, least in ((ORIGIN, "your held-out rows", 0.0), (OURS, "the questions of ours", UNLEARNT))
        if (share := shares.get(origin, (0.0, 0.0)))[1] < share[0] - least
    ]
    if len(dev) < ENOUGH_TO_TELL:
        print(f"warning: {len(dev)} held-out rows are too few to tell; {ENOUGH_TO_TELL} or more would be", flush=True)
    if worse and not wish.accept_worse:
        raise OwnDataError(
            f"{wish.output} is not written, for the model became worse: {'; '.join(worse)}. More or cleaner rows help, "
            "or fewer passes (--epochs); --accept-worse goes on from here all the same"
        )


def _share(values: Sequence[bool]) -> float:
    return round(sum(values) / max(1, len(values)), 4)


def _table(title: str, old: dict[str, float], new: dict[str, float]) -> str:
    rows = [f"| {label} | {old[label]:.1%} | {new[label]:.1%} |" for label in new]
    return "\n".join([f"| {title} | before | after |", "|---|---:|---:|", *rows])


if __name__ == "__main__":
    main()
