"""Plans of many questions: by rule or by the model, with a shop folder's lexicon or without."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.api.app import replica_pool, settings_vocabulary
from service.engines.factory import model_source
from service.planner.fallback.making.plans import plan_by_rule
from service.planner.fallback.reading import readers
from service.planner.fallback.reading.conversation import Conversation
from service.planner.plan import Plan
from service.planner.planner import Drafted, IncompletePlanError, Planner
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.shop.lexicon import Lexicon
from service.planner.spelling import words
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
    _prepare()
    with reading_as(lexicon):
        return [plan_by_rule(Conversation(question), vocabulary) for question in questions]


def _prepare() -> None:
    """Read what reads before the first question: without the words no spelling is corrected."""
    words()
    readers.prepare()


@dataclass(frozen=True, slots=True)
class ModelPlans:
    """The model's plans, once for each lexicon; `by_rule` of them are the rules', since the model ended none."""

    model_id: str
    plans: list[list[Plan]]
    by_rule: int


def plans_by_model(questions: Sequence[Question], model_dir: Path, lexicons: Lexicons = (None,)) -> ModelPlans:
    """Return the model's plans of every question once for each lexicon.

    A question that is read alike with several of them is drafted once. Raises EngineError.
    """
    return asyncio.run(_plans(questions, Settings(model_dir=model_dir), lexicons))


async def _plans(questions: Sequence[Question], settings: Settings, lexicons: Lexicons) -> ModelPlans:
    config = settings.engine_config.model_copy(update={"kinds": any(lexicon is not None for lexicon in lexicons)})
    pool = replica_pool(settings, model_source(config))
    _prepare()
    await pool.start()
    try:
        planner = Planner(pool, settings_vocabulary(settings))
        known: dict[tuple[str, str], Drafted | None] = {}  # by what the model sees
        plans, by_rule = list[list[Plan]](), set[int]()
        for lexicon in lexicons:
            with reading_as(lexicon):
                plans.append([])
                for number, task in enumerate(map(planner.task, questions)):
                    seen = task.prompt, task.grammar  # a shop's words may be spelt in another way
                    if seen not in known:
                        known[seen] = await _draft(planner, task)
                    if known[seen] is None:
                        by_rule.add(number)
                    plans[-1].append(_plan(planner, task, known[seen]))
        return ModelPlans(pool.model_id, plans, len(by_rule))
    finally:
        await pool.close()


async def _draft(planner: Planner, task: PlanTask) -> Drafted | None:
    try:
        return await planner.draft(task)
    except IncompletePlanError:
        return None


def _plan(planner: Planner, task: PlanTask, draft: Drafted | None) -> Plan:
    return planner.complete(draft, task).plan if draft else plan_by_rule(task.conversation, task.vocabulary)
