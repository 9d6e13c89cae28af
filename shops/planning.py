"""Plans of many questions: by rule or by the model, with a shop folder's lexicon or without."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.api.app import replica_pool, settings_vocabulary
from service.engines.factory import model_source
from service.planner.making.plans import plan_by_rule
from service.planner.plan import Plan
from service.planner.planner import Drafted, IncompletePlanError, Planner
from service.planner.question import Question
from service.planner.reading import readers
from service.planner.reading.conversation import Conversation
from service.planner.reading.en.spelling import words
from service.planner.shop.lexicon import Lexicon
from service.planner.vocabulary import Vocabulary
from service.settings import Settings

Lexicons = Sequence[Lexicon | None]


@contextmanager
def reading_as(lexicon: Lexicon | None) -> Iterator[None]:
    """Read words as this shop's inside, and as nobody's after it."""
    readers.use_shop(lexicon)
    try:
        yield
    finally:
        readers.use_shop(None)


def plans_by_rule(questions: Iterable[Question], vocabulary: Vocabulary, lexicon: Lexicon | None = None) -> list[Plan]:
    """Return the rules' plans."""
    words()  # are read before the first question: without them no spelling is corrected
    readers.prepare()
    with reading_as(lexicon):
        return [plan_by_rule(Conversation(question), vocabulary) for question in questions]


@dataclass(frozen=True, slots=True)
class ModelPlans:
    """The model's plans, once for each lexicon; `by_rule` of them are the rules', since the model ended none."""

    model_id: str
    plans: list[list[Plan]]
    by_rule: int


def plans_by_model(questions: Sequence[Question], model_dir: Path, lexicons: Lexicons = (None,)) -> ModelPlans:
    """Let the model draft every question, and complete each draft once for each lexicon. Raises EngineError."""
    return asyncio.run(_plans(questions, Settings(model_dir=model_dir), lexicons))


async def _plans(questions: Sequence[Question], settings: Settings, lexicons: Lexicons) -> ModelPlans:
    config = settings.engine_config.model_copy(update={"kinds": any(lexicon is not None for lexicon in lexicons)})
    pool = replica_pool(settings, model_source(config))
    await pool.start()
    try:
        planner = Planner(pool, settings_vocabulary(settings))
        drafts = [await _draft(planner, question) for question in questions]
        plans = []
        for lexicon in lexicons:
            with reading_as(lexicon):
                plans.append([_plan(planner, *each) for each in zip(questions, drafts, strict=True)])
        return ModelPlans(pool.model_id, plans, drafts.count(None))
    finally:
        await pool.close()


async def _draft(planner: Planner, question: Question) -> Drafted | None:
    try:
        return await planner.draft(planner.task(question))
    except IncompletePlanError:
        return None


def _plan(planner: Planner, question: Question, draft: Drafted | None) -> Plan:
    task = planner.task(question)
    return planner.complete(draft, task).plan if draft else plan_by_rule(task.conversation, task.vocabulary)
