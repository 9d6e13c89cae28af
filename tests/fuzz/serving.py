"""What is fuzzed of the whole service, in this process: every route that takes a body, over an engine that says what
the first utterance does.
"""

import asyncio
import atexit
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from peakplan_client import catalogue
from peakplan_client.shop import Shop

from rehearsal.bench.question_cost import OPERATIONS
from service.api.answers import ANSWER_PATH, EVENTS
from service.api.models import MAX_TEXT_CHARACTERS
from service.api.observation import OUTCOMES_PATH
from service.api.routes import PLAN_PATH, PLANS_PATH
from service.settings.groups import OutcomeSettings
from tests.api.client import talking_to
from tests.fake_engines import FakeEngine
from tests.fake_models import result

# Seven requests, one of them of three questions and two streamed, with the client's own work and the event loop's.
SERVING_OPERATIONS = 3 * OPERATIONS


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
