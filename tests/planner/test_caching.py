"""Tests of which plans come from the model, the caches and the reader."""

import asyncio
import hashlib
import json
import re
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engines.protocol import EngineError, EngineUnavailableError, GenerationRequest, GenerationResult
from service.gateway.request_queue import CapacityError
from service.planner import caching as caching_module
from service.planner import planner as planner_module
from service.planner.caching import CachedPlanText, CachingPlanner, FlightLateError, PlanCache, SingleFlight
from service.planner.plan import Plan
from service.planner.planner import Planner
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.shop import current
from service.planner.shop.folder import ShopFolder
from service.planner.vocabulary import Vocabulary, shipped_vocabulary
from service.telemetry.logs import JsonFormatter
from tests.fake_engines import settle
from tests.fake_models import result
from tests.readers import FakeReader, by_length, write_folder

pytestmark = pytest.mark.anyio
TEXT = " find Color red Type shoes Any"


class Engine:
    """An engine that answers with one text under one version, and counts."""

    model_id = "scripted"

    def __init__(self) -> None:
        self.calls = 0
        self.text = TEXT
        self.version = "v1"
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def generate(self, request: GenerationRequest) -> GenerationResult:  # noqa: ARG002
        self.calls += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return replace(result(self.text), model_version=self.version)


class Shared(dict[str, CachedPlanText]):
    """A second cache level in a dictionary."""

    async def get(self, key: str) -> CachedPlanText | None:  # type: ignore[override]
        return super().get(key)

    def put(self, key: str, remembered: CachedPlanText) -> None:
        self[key] = remembered


def task(text: str, history: Sequence[str] = ()) -> PlanTask:
    return PlanTask(Question.parse(text, history), shipped_vocabulary())


def planner(engine: Engine, shared: Shared | None = None, entries: int = 100, **more: Any) -> CachingPlanner:
    memory = PlanCache(entries, 60.0)
    return CachingPlanner(Planner(engine, shipped_vocabulary()), lambda: engine.version, memory, shared, **more)


def busy(*_: object) -> CapacityError:
    return CapacityError("far too much", "capacity")


async def test_a_question_is_asked_once_and_keeps_its_shoppers_spelling() -> None:
    engine = Engine()
    caching = planner(engine)
    first = await caching.plan(task("RED Shoes"))
    again = await caching.plan(task("  RED   Shoes "))
    assert (first.source, again.source, again.degraded) == ("model", "cache", False)
    assert again.plan.facets == {"color": ["RED"], "type": ["Shoes"]}
    assert (again.model_id, again.strategy, again.result) == ("scripted", "medusa", None)
    assert engine.calls == 1
    assert caching.counts == {"misses": 1, "hits": 1}


async def test_identical_questions_in_flight_share_one_generation() -> None:
    engine = Engine()
    engine.gate.clear()
    caching = planner(engine)
    asked = [asyncio.create_task(caching.plan(task(text))) for text in ("RED SHOES", " RED SHOES", "RED  SHOES ")]
    while not engine.calls:
        await asyncio.sleep(0)
    engine.gate.set()
    planned = await asyncio.gather(*asked)
    assert engine.calls == 1
    assert [one.source for one in planned] == ["model", "cache", "cache"]
    assert planned[2].plan.facets == {"color": ["RED"], "type": ["SHOES"]}
    assert caching.counts == {"misses": 1, "joined": 2}


async def test_failures_are_planned_without_the_model_and_not_remembered() -> None:
    engine = Engine()
    engine.error = EngineUnavailableError("gone")
    caching = planner(engine)
    assert (await caching.plan(task("red shoes"))).source == "fallback"
    engine.error = None
    assert (await caching.plan(task("red shoes"))).source == "model"


async def test_an_answer_of_the_next_model_is_kept_under_its_own_name() -> None:
    engine = Engine()
    caching = CachingPlanner(Planner(engine, shipped_vocabulary()), lambda: "v1", PlanCache(10, 60.0))
    engine.version = "v2"
    for _ in range(2):
        assert (await caching.plan(task("red shoes"))).source == "model"


async def test_another_process_has_asked_already() -> None:
    shared, first, second = Shared(), Engine(), Engine()
    await planner(first, shared).plan(task("red shoes"))
    caching = planner(second, shared)
    for _ in range(2):
        assert (await caching.plan(task("red shoes"))).source == "cache"
    assert second.calls == 0
    assert caching.counts == {"shared_hits": 1, "hits": 1}


POISON = [
    "", "nonsense", " find", " find Brand nike Any", " find Type credit card number Any",
    " find Type shoes Under 66.6 Any", " find Type shoes Under nan Any", " find Type shoes Under 40 Under 50 Any",
    " find Type shoes Try shoes evil-shop.example Any", " find Type shoes Any Any", " find Type shoes \ud800 Any",
    " find Type shoes",
]  # fmt: skip


@pytest.mark.parametrize("text", POISON)
async def test_a_poisoned_entry_is_no_plan(text: str) -> None:
    shared, engine = Shared(), Engine()
    question = task("red shoes under 50")
    shared.put(question.key("v1"), CachedPlanText(text, "scripted", "medusa"))
    assert (await planner(engine, shared).plan(question)).source == "model"


async def test_an_entry_may_say_the_plan_but_not_which_model_and_strategy_there_are() -> None:
    shared, engine = Shared(), Engine()
    question = task("red shoos under 50")
    text = " find Color red Type shoos Any"
    shared.put(question.key("v1"), CachedPlanText(text, "<script>\ud800", "medusa"))
    planned = await planner(engine, shared).plan(question)
    assert (planned.source, planned.model_id) == ("cache", "scripted")
    assert "red shoes" in planned.plan.queries
    shared.put(question.key("v1"), CachedPlanText(text, "scripted", "\ud800"))
    assert (await planner(engine, shared).plan(question)).source != "cache"


async def test_what_needs_no_waiting_is_planned_at_once() -> None:
    engine, refusals = Engine(), list[CapacityError]()
    caching = planner(engine, refusal=lambda *_: refusals[0] if refusals else None)
    question, other = task("red shoes"), task("blue shoes")
    assert caching.plan_at_once(question) is None  # a model may be had
    await caching.plan(question)
    refusals.append(busy())
    known, ruled = caching.plan_at_once(question), caching.plan_at_once(other)
    assert known is not None
    assert ruled is not None
    assert (known.source, ruled.source, ruled.reason) == ("cache", "fallback", "capacity")
    assert caching.counts == {"misses": 2, "hits": 1}


async def test_memory_is_bounded_and_forgets() -> None:
    now = 0.0
    memory = PlanCache(2, 10.0, lambda: now)
    entries = {key: CachedPlanText(key, "m", "s") for key in "abc"}
    memory.put("a", entries["a"])
    memory.put("b", entries["b"])
    assert memory.get("a") == entries["a"]
    memory.put("c", entries["c"])
    assert (memory.get("b"), memory.get("a"), len(memory)) == (None, entries["a"], 2)
    now = 10.0
    assert memory.get("a") is None
    assert len(memory) == 1


async def test_without_room_nothing_is_remembered() -> None:
    engine = Engine()
    caching = planner(engine, entries=0)
    for _ in range(2):
        assert (await caching.plan(task("red shoes"))).source == "model"


class Writer(Engine):
    """An engine whose text depends on all that it is asked: it names one of the words that the grammar admits."""

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        words = [json.loads(literal) for literal in re.findall(r'^p[0-9]+: ("(?:[^"\\]|\\.)*")', request.grammar, re.M)]
        chosen = words[zlib.crc32(f"{request.prompt}{request.grammar}".encode("utf-8", "replace")) % len(words)]
        return replace(await super().generate(request), text=f" find Max{chosen} Any")


ASKED = st.lists(
    st.sampled_from("red jeans TOP in TRY EUR eur under 40 1.500 50€ | ㎏".split()), min_size=2, max_size=6
)
OTHERS: dict[str, Callable[[Question], Question]] = {
    "case": lambda asked: Question.parse(asked.text.swapcase(), asked.utterances[:-1], asked.locale),
    "locale": lambda asked: Question.parse(asked.text, asked.utterances[:-1], "de-CH"),
    "a word": lambda asked: Question.parse(f"{asked.text} small", asked.utterances[:-1], asked.locale),
    "mark": lambda asked: Question.parse(asked.text.replace("|", "/"), asked.utterances[:-1], asked.locale),
    "turns": lambda asked: Question.parse(asked.words[-1].text, (asked.text,), asked.locale),
    "nothing": lambda asked: Question.parse(f" {asked.text}  ", asked.utterances[:-1], asked.locale),
}


@settings(deadline=None)
@given(ASKED, st.sampled_from(sorted(OTHERS)), st.sampled_from(["", "en-US"]))
def test_questions_that_differ_in_one_respect_are_planned_as_without_a_cache(
    words: list[str], respect: str, locale: str
) -> None:
    asked = Question.parse(" ".join(words), (), locale)
    engine, questions = Writer(), [asked, OTHERS[respect](asked)]
    caching, without = planner(engine), planner(Writer(), entries=0)

    async def plans(of: CachingPlanner) -> list[Plan]:
        return [(await of.plan(PlanTask(question, shipped_vocabulary()))).plan for question in questions]

    assert asyncio.run(plans(caching)) == asyncio.run(plans(without))
    assert engine.calls == (1 if questions[0] == questions[1] else 2)


async def test_another_shop_vocabulary_arm_caller_or_model_is_another_question(tmp_path: Path) -> None:
    engine = Writer()
    caching, plain, of_arm = planner(engine), task("red muga shoes"), task("red muga shoes")
    of_arm.cached_for = "newer"
    document = shipped_vocabulary().model_dump()
    document["facets"]["brand"]["description"] = "another"
    of_vocabulary = PlanTask(plain.question, Vocabulary.model_validate(document))
    of_caller = PlanTask(plain.question, plain.vocabulary, caller="somebody")
    for number, asked in enumerate((plain, of_arm, of_vocabulary, of_caller), 1):
        assert (await caching.plan(asked)).source == "model"
        assert engine.calls == number
    engine.version = "v2"
    assert ((await caching.plan(plain)).source, engine.calls) == ("model", 5)
    for number, kind in enumerate(("brand", "type"), 6):
        with current.reading(ShopFolder.load(write_folder(tmp_path / kind, {"muga": kind})).lexicon):
            assert (await caching.plan(task("red muga shoes"))).source == "model"
            assert (await caching.plan(task("red muga shoes"))).source == "cache"
        assert engine.calls == number


def _failing(*_: object) -> Plan:
    raise IndexError("a bug")


@pytest.mark.parametrize("reader", [None, by_length()], ids=["no reader", "reader"])
async def test_whatever_fails_at_a_question_it_is_answered_counted_and_told_once(
    reader: Reader | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(planner_module, "plan_from_draft", _failing)
    caching, asked = planner(Engine()), task("red secret shoes")
    asked.reader = reader
    planned = await caching.plan(asked)
    assert (planned.source, planned.degraded, planned.reason) == ("fallback", True, "fault")
    assert planned.plan.intent == "find_product"
    assert planned.plan.queries[0] == "red secret shoes"
    assert planned.plan.sources
    assert caching.counts == {"misses": 1}
    (told,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert vars(told)["question"] == hashlib.blake2b(b" red secret shoes |", digest_size=8).hexdigest()
    assert "IndexError" in vars(told)["exception"]
    assert "secret" not in JsonFormatter().format(told)


async def test_a_cached_plan_that_fails_is_answered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    caching = planner(Engine())
    await caching.plan(task("red shoes"))
    monkeypatch.setattr(caching_module, "plan_from_draft", _failing)
    at_once = caching.plan_at_once(task("red shoes"))
    assert at_once is not None
    assert (at_once.source, at_once.reason) == ("fallback", "fault")
    assert (await caching.plan(task("red shoes"))).reason == "fault"
    assert caching.counts == {"misses": 3}


async def test_a_reader_that_fails_without_a_model_still_answers() -> None:
    caching, asked = planner(Engine(), refusal=busy), task("red shoes")
    asked.reader = FakeReader.of(lambda _: 1 / 0)
    planned = caching.plan_at_once(asked)
    assert planned is not None
    assert (planned.reason, planned.plan.queries) == ("fault", ["red shoes"])
    assert caching.counts == {"misses": 1}


def test_of_a_long_question_the_reader_reads_what_an_ordinary_one_has() -> None:
    asked = task("red shoes " * 60, ["something else"])
    asked.reader = by_length()
    planned = planner(Engine()).plan_briefly(asked, busy())
    assert (planned.source, planned.reason) == ("fallback", "capacity")
    assert len(asked.question.words) > 60
    assert len(planned.plan.queries[0].split()) <= 48
    asked.reader = FakeReader.of(lambda _: 1 / 0)
    assert planner(Engine()).plan_briefly(asked, busy()).reason == "fault"


class Work:
    """Work that ends when told to; counts its starts and cancellations."""

    def __init__(self) -> None:
        self.starts = 0
        self.cancelled = 0
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> str:
        self.starts += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        return f"outcome {self.starts}"


async def test_the_same_key_is_worked_on_once() -> None:
    flights, work = SingleFlight[str](), Work()
    asked = [asyncio.create_task(flights.share("key", None, work)) for _ in range(5)]
    other = asyncio.create_task(flights.share("other", None, work))
    await settle()
    assert work.starts == 2
    work.gate.set()
    outcomes = [await task for task in asked]
    assert [shared for _, shared in outcomes] == [False, True, True, True, True]
    assert (await other)[1] is False
    assert (await flights.share("key", None, work))[1] is False


async def test_the_first_is_wanted_while_anybody_else_waits() -> None:
    flights, work = SingleFlight[str](), Work()
    first, *rest = asked = [asyncio.create_task(flights.share("key", None, work)) for _ in range(3)]
    await settle()
    unwanted = asyncio.create_task(flights.unwanted(first))
    for task in rest:
        await flights.unwanted(task)  # who only waits may leave at once
        assert not unwanted.done()
        task.cancel()
        await settle()
    assert unwanted.done()
    work.gate.set()
    assert await asked[0] == ("outcome 1", False)


async def test_work_whose_worker_is_cancelled_is_taken_up_by_one_of_the_rest() -> None:
    flights, work = SingleFlight[str](), Work()
    first, second, third = (asyncio.create_task(flights.share("key", None, work)) for _ in range(3))
    await settle()
    first.cancel()
    await settle()
    assert (work.starts, work.cancelled) == (2, 1)
    work.gate.set()
    assert [await second, await third] == [("outcome 2", False), ("outcome 2", True)]


async def test_work_that_is_cancelled_is_joined_by_nobody() -> None:
    flights, work = SingleFlight[str](), Work()
    first = asyncio.create_task(flights.share("key", None, work))
    await settle()
    first.cancel()
    await asyncio.wait({first})
    late = asyncio.create_task(flights.share("key", None, work))
    await settle()
    assert (work.starts, work.cancelled) == (2, 1)
    work.gate.set()
    assert await late == ("outcome 2", False)


async def test_who_joins_keeps_their_own_deadline() -> None:
    flights, work = SingleFlight[str](), Work()
    first = asyncio.create_task(flights.share("key", None, work))
    await settle()
    with pytest.raises(FlightLateError):
        await flights.share("key", time.monotonic() + 0.01, work)
    work.gate.set()
    assert (await first)[0] == "outcome 1"


async def test_a_failure_is_everybodys_but_who_has_more_time_tries_again() -> None:
    flights, work = SingleFlight[str](), Work()
    work.error = EngineError("no")
    now = time.monotonic()
    first, hasty, patient = (asyncio.create_task(flights.share("key", now + seconds, work)) for seconds in (10, 9, 20))
    await settle()
    work.gate.set()
    for task in (first, hasty, patient):
        with pytest.raises(EngineError, match="no"):
            await task
    assert work.starts == 2


@pytest.mark.parametrize(
    ("of_work", "of_other", "starts"), [(None, None, 1), (None, 10, 1), (10, 10, 1), (10, None, 2), (10, 11, 2)]
)
async def test_only_who_has_more_time_than_the_work_had_tries_again(
    of_work: float | None, of_other: float | None, starts: int
) -> None:
    flights, work = SingleFlight[str](), Work()
    work.error = EngineError("no")
    now = time.monotonic() + 1000
    deadlines = [None if seconds is None else now + seconds for seconds in (of_work, of_other)]
    asked = [asyncio.create_task(flights.share("key", deadline, work)) for deadline in deadlines]
    await settle()
    work.gate.set()
    assert {str(error) for error in await asyncio.gather(*asked, return_exceptions=True)} == {"no"}
    assert work.starts == starts
