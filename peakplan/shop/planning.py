"""Plans of many questions: by the reader or by the model, with a shop folder's lexicon or without."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.api.app import replica_pool, settings_reader, settings_vocabulary
from service.engines.factory import model_source
from service.planner.plan import Plan
from service.planner.planner import Drafted, IncompletePlanError, Planner, read_plan
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.shop.folder import Lexicon
from service.planner.spelling import use_shop, words
from service.planner.vocabulary import Vocabulary
from service.settings import Settings

Lexicons = Sequence[Lexicon | None]


@contextmanager
def reading_as(lexicon: Lexicon | None) -> Iterator[None]:
    """Read words with this shop's lexicon inside the block, and with none after it."""
    use_shop(lexicon)
    try:
        yield
    finally:
        use_shop(None)


def plans_by_reader(questions: Iterable[Question], model_dir: Path, lexicon: Lexicon | None = None) -> list[Plan]:
    """Return the plans of a model folder's reader. Raises ReaderError, VocabularyError."""
    reader, vocabulary = Reader.of_model(model_dir), Vocabulary.load(model_dir)
    with reading_as(lexicon):
        return [read_plan(PlanTask(question, vocabulary, reader=reader)) for question in questions]


@dataclass(frozen=True, slots=True)
class ModelPlans:
    """The model's plans, once for each lexicon; `by_reader` of them are the reader's, since the model ended none."""

    model_id: str
    plans: list[list[Plan]]
    by_reader: int


def plans_by_model(questions: Sequence[Question], model_dir: Path, lexicons: Lexicons = (None,)) -> ModelPlans:
    """Return the model's plans of every question once for each lexicon.

    A question that is read alike with several of them is drafted once. Raises EngineError.
    """
    return asyncio.run(_plans(questions, Settings(model_dir=model_dir), lexicons))


async def _plans(questions: Sequence[Question], settings: Settings, lexicons: Lexicons) -> ModelPlans:
    config = settings.engine_config.model_copy(update={"kinds": any(lexicon is not None for lexicon in lexicons)})
    pool = replica_pool(settings, model_source(config))
    words()  # are read before the first question: without them no spelling is corrected
    await pool.start()
    try:
        planner = Planner(pool, settings_vocabulary(settings), reader=settings_reader(settings))
        known: dict[tuple[str, str], Drafted | None] = {}  # by what the model sees
        plans, by_reader = list[list[Plan]](), set[int]()
        for lexicon in lexicons:
            with reading_as(lexicon):
                plans.append([])
                for number, task in enumerate(map(planner.task, questions)):
                    seen = task.prompt, task.grammar  # a shop's words may be spelt in another way
                    if seen not in known:
                        known[seen] = await _draft(planner, task)
                    if known[seen] is None:
                        by_reader.add(number)
                    plans[-1].append(_plan(planner, task, known[seen]))
        return ModelPlans(pool.model_id, plans, len(by_reader))
    finally:
        await pool.close()


async def _draft(planner: Planner, task: PlanTask) -> Drafted | None:
    try:
        return await planner.draft(task)
    except IncompletePlanError:
        return None


def _plan(planner: Planner, task: PlanTask, draft: Drafted | None) -> Plan:
    return planner.complete(draft, task).plan if draft else read_plan(task)
