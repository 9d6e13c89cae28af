"""What is fuzzed: everything outside the model that a stranger's words go through.

A target takes a conversation, the newest utterance last, and fails by any exception that is no answer in words, or
where its work is above the budget. `serving` asks the whole service, in this process: every route that takes a body,
over an engine that says what the first utterance does.
"""

import asyncio
import atexit
import contextlib
import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import httpx
from peakplan_client import CatalogueMapping, catalogue, translate
from peakplan_client import Plan as ClientPlan
from peakplan_client.shop import MAPPING, Shop
from peakplan_client.translating import _REQUESTS as TRANSLATORS
from pydantic import TypeAdapter, ValidationError

from rehearsal.bench.question_cost import OPERATIONS, longest_text
from service.api.answers import ANSWER_PATH, EVENTS
from service.api.models import MAX_HISTORY, MAX_TEXT_CHARACTERS, PlanRequest
from service.api.observation import OUTCOMES_PATH
from service.api.outcomes import Report
from service.api.protocol import objection_to_head
from service.api.routes import PLAN_PATH, PLANS_PATH
from service.events.keeper import EventKeeper, Sessions
from service.events.model import ActionName, Event
from service.planner.completion import plan_from_text
from service.planner.plan import Plan
from service.planner.plan_text import PlanTextError
from service.planner.planner import read_plan
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.vocabulary import shipped_vocabulary
from service.settings.choices import SHIPPED_MODEL
from service.settings.groups import OutcomeSettings
from tests.api.client import talking_to
from tests.fake_engines import FakeEngine
from tests.fake_models import result

# Seven requests, one of them of three questions and two streamed, with the client's own work and the event loop's.
SERVING_OPERATIONS = 3 * OPERATIONS

Conversation = Sequence[str]
# Operations of the interpreter: of whatever is done for a question, the budget that SECURITY.md tells; of translating,
# for all engines together and three texts in each field: a stranger reaches one of them, in a thread.
BUDGETS = {
    **dict.fromkeys(("reading", "completing", "longest", "grammar", "requests"), OPERATIONS),
    **dict.fromkeys(("translating", "filters"), 2 * len(TRANSLATORS) * OPERATIONS),
    "events": OPERATIONS,
    "serving": SERVING_OPERATIONS,
}
VOCABULARY = shipped_vocabulary()
READER = Reader.load(SHIPPED_MODEL)
SHOP = CatalogueMapping.load(MAPPING)
_SHORT = 128  # characters, where forms matter and not costs
_BYTES = 16 * 1024  # of a head or a body
_PLAN_WORDS = ("find", "ask", "Color", "Type", "Brand", "Not", "All", "Pets", "Any", "catalog")
_MEILISEARCH = re.compile(
    r"[a-z_]+ (>=|<=) [0-9.]+( AND [a-z_]+ <= [0-9.]+)?|"
    r'[a-z_]+ (NOT )?IN \[("([^"\\]|\\")*"(, "([^"\\]|\\")*")*)?\]'
)
_STATEMENT = re.compile(r"""[A-Za-z0-9_%*+=<>@|&.,:;(){}\[\]'" ]*""")
_TSQUERY = re.compile(r"('([^'\\]|'')*'( \| '([^'\\]|'')*')*)?")
_SOLR = {"bool", "must", "should", "filter", "must_not", "boost", "b", "query", "dismax", "qf", "mm", "tie", "field",
         "f", "lucene"}  # fmt: skip
_REPORTS: TypeAdapter[Any] = TypeAdapter(Report)


class _Says(FakeEngine):
    """An engine that answers at once with `text`."""

    text = ""

    async def generate(self, _: Any) -> Any:
        self.served.clear()
        return result(self.text)


class _Service:
    """A service that keeps outcomes in a folder of its own, with a client, as long as this process lives."""

    def __init__(self) -> None:
        self.engine = _Says()
        self._folder = tempfile.TemporaryDirectory(prefix="peakplan-fuzz-")  # goes with the process
        folder = Path(self._folder.name)
        product = catalogue.Product("p1", "Red Boots", "boot", "footwear", "Fine.", 80.0, None)
        with patch.object(catalogue, "read", lambda _: [product]):
            shop = Shop.open(folder)
        self._loop = asyncio.new_event_loop()
        self._stack = contextlib.AsyncExitStack()
        talking = talking_to(self.engine, outcomes=OutcomeSettings(dir=folder, text=True), cache_dir=folder)
        with patch.object(Shop, "open", lambda _: shop):
            self._client = self._loop.run_until_complete(self._stack.enter_async_context(talking))
            self.post(ANSWER_PATH, _json({"query": "boots"}))
        atexit.register(self._close)

    def post(self, path: str, body: bytes) -> httpx.Response:
        """Return what the service answers."""
        headers = {"content-type": "application/json"}
        return self._loop.run_until_complete(self._client.post(path, content=body, headers=headers))

    def _close(self) -> None:
        """End what the service keeps running; there are no threads any more to close it with."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()


@cache
def _service() -> _Service:
    """Start the service, whose operations nobody counts."""
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        return _Service()
    finally:
        sys.settrace(trace)


def _json(given: object) -> bytes:
    return json.dumps(given).encode()


def serving(conversation: Sequence[str]) -> None:
    """Ask every route with these words: no 5xx, and answers of the form that the routes promise."""
    service = _service()
    written, *_ = texts = [text[:MAX_TEXT_CHARACTERS] for text in conversation]
    service.engine.text = f" {written}"
    asked = {"query": texts[-1], "history": texts[:-1]}
    made = service.post(PLAN_PATH, _json({"query": "boots"})).json()["request_id"]
    facets = {f"{text[:60]}{at}": [written[:128]] for at, text in enumerate(texts * 4)}
    outcome = {"request_id": made, "outcome": "click", "product": {"id": texts[-1][:128], "facets": facets}}
    event = {"action_name": "click", "message": texts[-1]}
    checks: tuple[tuple[str, bytes, Callable[[httpx.Response], None]], ...] = (
        (PLAN_PATH, _json(asked), _is_plan),
        (PLANS_PATH, _json({"requests": [asked, {"query": written}, {written: texts[-1]}]}), _are_answers),
        (ANSWER_PATH, _json(asked), _is_stream),
        (OUTCOMES_PATH, _json([{**event, "query_id": made}, {**event, "query_id": "x"}]), _is_json),
        (OUTCOMES_PATH, _json(outcome), _is_json),
        (ANSWER_PATH, texts[-1].encode("utf-8", "replace"), _is_stream),
    )
    for path, body, check in checks:
        response = service.post(path, body)
        assert response.status_code < 500, f"{path}: {response.status_code} {response.text}"
        if response.status_code == 200:
            check(response)
        else:
            _is_json(response)


def _is_json(response: httpx.Response) -> None:
    assert isinstance(response.json(), dict)


def _is_plan(response: httpx.Response) -> None:
    assert isinstance(response.json()["plan"]["queries"], list)


def _are_answers(response: httpx.Response) -> None:
    answers = response.json()["answers"]
    assert "problem" in answers[2]
    assert all("answer" in each or each["problem"]["status"] < 500 for each in answers)


def _is_stream(response: httpx.Response) -> None:
    blocks = [block.split("\n") for block in response.text.removesuffix("\n\n").split("\n\n")]
    names = [name.removeprefix("event: ") for name, _ in blocks]
    assert names == [each for each in EVENTS if each in names]
    assert {"plan", "done"} <= set(names)
    for _, data in blocks:
        reason = json.loads(data.removeprefix("data: ")).get("reason") or ""
        assert not reason.startswith("The sample shop failed"), reason


def _task(conversation: Conversation) -> PlanTask:
    *history, query = (text[:MAX_TEXT_CHARACTERS] for text in conversation)
    return PlanTask(Question.parse(query, history[-MAX_HISTORY:]), VOCABULARY, reader=READER)


def reading(conversation: Conversation) -> None:
    """Plan a conversation as the reader reads it."""
    plan = read_plan(_task(conversation))
    Plan.model_validate_json(plan.model_dump_json())


def completing(conversation: Conversation) -> None:
    """Complete what a model might write: the words of the first utterance as plan text, for the others' question."""
    written, *others = conversation
    task = _task(others or [written])
    try:
        plan = plan_from_text(f" {written}", task.question, VOCABULARY)
    except PlanTextError:
        return
    Plan.model_validate_json(plan.model_dump_json())


def longest(conversation: Conversation) -> None:
    """Complete the longest text that a model may write about a conversation."""
    task = _task(conversation)
    plan = plan_from_text(longest_text(task.question), task.question, VOCABULARY)
    Plan.model_validate_json(plan.model_dump_json())


def grammar(conversation: Conversation) -> None:
    """Write the grammar of a question."""
    assert _task(conversation).grammar.startswith("start: ")


def requests(conversation: Conversation) -> None:
    """Read the head and the body of a request."""
    texts = [text.encode("utf-8", "replace")[:_BYTES] for text in conversation]
    with contextlib.suppress(ValidationError):
        PlanRequest.model_validate_json(texts[-1])
    headers = [(first.lower(), second) for first, second in pairwise(texts)]
    headers.append((b"host", texts[0]))
    refusal = objection_to_head("1.1", texts[-1], headers, _BYTES, _BYTES)
    assert refusal is None or 400 <= refusal[0] < 500


def translating(conversation: Conversation) -> None:
    """Map a plan of these words to every engine."""
    texts = [text[:MAX_TEXT_CHARACTERS] for text in conversation[:3] if text.strip()] or ["x"]
    plan = ClientPlan.model_validate(
        {"queries": texts[:3], "facets": {"type": texts, "color": texts}, "exclude": {"brand": texts, "type": texts}}
    )
    for engine in TRANSLATORS:
        translation = translate(plan, SHOP, engine, texts[-1])  # type: ignore[arg-type]
        assert not any(text in note for note in translation.notes for text in texts if len(text) > 20)


def filters(conversation: Conversation) -> None:
    """Translate for the engines whose filters are texts: no word may be more than a word there."""
    texts = [text[:_SHORT] for text in conversation[:3] if text.strip()] or ["x"]
    refused = {"brand": texts, "color": texts, "type": texts}
    plan = ClientPlan.model_validate(
        {"queries": texts, "facets": refused, "exclude": refused, "sort": ("relevance", "price_asc")[len(texts) % 2],
         "price": {"min": 1, "max": 20}}
    )  # fmt: skip
    for query in _requests(plan, "meilisearch", texts[-1]):
        for each in query["queries"]:
            assert all(_MEILISEARCH.fullmatch(condition) for condition in each.get("filter", [])), each
    for statement in _requests(plan, "postgresql", texts[-1]):
        assert statement.sql.count("%s") == len(statement.parameters)
        assert _STATEMENT.fullmatch(statement.sql), statement.sql
        assert all(_TSQUERY.fullmatch(each) for each in statement.parameters[: statement.sql.count("to_tsquery(%s)")])
    for body in _requests(plan, "solr", texts[-1]):
        for clause in _clauses([body["query"], *body.get("queries", {}).values()]):
            assert set(clause) <= _SOLR, clause


def _requests(plan: ClientPlan, engine: str, question: str) -> Sequence[Any]:
    return translate(plan, SHOP, engine, question).requests  # type: ignore[arg-type]


def _clauses(given: Any) -> list[dict[str, Any]]:
    """Return every clause of a query of Solr, which has one parser's name and what that parser takes."""
    if isinstance(given, list):
        return [clause for each in given for clause in _clauses(each)]
    if not isinstance(given, dict):
        return []
    return [given, *(clause for each in given.values() for clause in _clauses(each))]


def events(conversation: Conversation) -> None:
    """Read and keep what a shop reports: the texts as a body, and as the words of an event and of an outcome."""
    texts = cycle(text[:1024] for text in conversation)
    said = [next(texts) for _ in range(14)]
    item = {"object_id": said[0], "object_id_type": said[1], "name": said[2], "object_detail": {said[3]: said[4]}}
    event = {
        "action_name": get_args(ActionName)[len(said[0]) % len(get_args(ActionName))],
        "query_id": re.sub("[^A-Za-z0-9._:-]", "", said[5])[:64] or "x",
        "event_id": said[6], "client_id": said[7], "session_id": said[8], "message": said[9], "user_query": said[10],
        "event_attributes": {"object": item, "position": {"trail": said[11]}, "currency": said[12]},
    }  # fmt: skip
    facets = dict.fromkeys((f"{text[:60]}{at}" for at, text in enumerate(said[:8])), said[12:])
    outcome = {"request_id": "x", "outcome": "click", "product": {"id": said[13], "facets": facets}}
    lean = {**event, "event_id": None, "client_id": said[7][:100], "session_id": None, "event_attributes": {}}
    bodies = [said[0], *(json.dumps(each) for each in (event, lean, outcome, [event, lean], {**event, said[1]: 1}))]
    keeper = EventKeeper(_Journal(), Sessions("key", 7), keeps_text=len(said[0]) % 2 == 0,  # type: ignore[arg-type]
                         is_served=lambda *_: True, planned_in=lambda _: "")  # fmt: skip
    for body in bodies:
        try:
            report = _REPORTS.validate_json(body)
        except ValidationError:
            continue
        if isinstance(report, Event) or (isinstance(report, list) and isinstance(report[0], Event)):
            keeper.take([report] if isinstance(report, Event) else report, "shop")


class _Journal:
    """A journal that has to be one JSON object a line, without who the shopper is."""

    def append(self, lines: bytes, count: int) -> "Future[bool]":
        kept = [json.loads(line) for line in lines.splitlines()]
        assert len(kept) == count
        assert all(re.fullmatch("[0-9a-f]{24}", each.get("client_id", "0" * 24)) for each in kept)
        future: Future[bool] = Future()
        future.set_result(True)
        return future


TARGETS: Mapping[str, Callable[[Conversation], None]] = {
    each.__name__: each for each in (reading, completing, longest, grammar, requests, translating,
                                        filters, events, serving)
}  # fmt: skip
