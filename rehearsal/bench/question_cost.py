"""`peakplan bench costs`: what the dearest question costs outside the model, into docs/figures/question_cost.json.

Two budgets, which tests and SECURITY.md take from here: of planning (by the reader, or completing what a model wrote),
and of the whole gateway from the body to the answer. Asked are questions made by hand,
those that the fuzzer kept, and those that a seeded search for the most milliseconds comes upon. Time is the thread's
own on the processor, the least of several runs. Operations of the interpreter no load changes, but a pattern's search
counts as one: so there are both.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rehearsal.bench.machine import describe_machine, operations, processor_name, write_machine
from service.api.app import create_app, wire
from service.api.models import MAX_HISTORY, MAX_TEXT_CHARACTERS, PlanRequest
from service.engines.protocol import GenerationRequest, GenerationResult
from service.gateway.pool import ReplicaPool
from service.planner.completion import plan_from_text
from service.planner.planner import read_plan
from service.planner.prompt import PlanTask
from service.planner.question import MAX_HISTORY_TOKENS, Question
from service.planner.reader.reading import Reader
from service.planner.spelling import use_shop
from service.planner.vocabulary import shipped_vocabulary
from service.settings import Settings
from service.settings.choices import SHIPPED_MODEL

FIGURE = Path("docs/figures/question_cost.json")
CORPUS = Path("tests/fuzz/corpus.jsonl")
OPERATIONS = 750_000  # of the interpreter, the most that planning may take for a question
OPERATIONS_OF_WEIGHT = OPERATIONS // 4  # for each that a question weighs of its caller's rate
READING_MS = 5.0
GATEWAY_MS = 10.0
# Words of which each is many tokens, a phrase, a misspelling, or what a pattern tries long and in vain.
PIECES = (
    "$1 ", "$1", "1-", "$", "not a or b ", "under $1 ", "red, ", "without leather, ", "no x ", "cheap ", "a'b ", "- ",
    "xqzzvk ", "nike shoes and ", "red or blue ", "what about ", "any ", "five hundred and ", "between 5 and 10 ",
    "size ", "“a” ", "vs ", "nothing over $5 ", "in stock ", "not from ", "with a ", "compare a and ", "é", "日 ",
    "or ", "is or ", "with a star ", "4 stars, ", "a against ", "are ok ", "which or ", "how does ", "das preis ",
)  # fmt: skip
_VOCABULARY = shipped_vocabulary()
_READER = Reader.load(SHIPPED_MODEL)
# The word of an intent about products whose sources are given: after it come the facets.
_NAMED = next(each.word for each in _VOCABULARY.intents.values() if each.products and each.sources is not None)
_RUNS = 5
_SEARCH_RUNS = 2
_DEAREST, _MORE_RUNS = 12, 20


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as it comes in: its body holds the most history that is allowed, or none."""

    query: str
    history: tuple[str, ...] = ()

    @property
    def body(self) -> bytes:
        return json.dumps({"query": self.query, "history": self.history, "deadline_ms": 2000}).encode()

    @property
    def question(self) -> Question:
        return Question.parse(self.query, self.history)

    @classmethod
    def of(cls, pieces: Sequence[str], history: Sequence[str] = ()) -> "Asked":
        """Repeat pieces up to the allowed length. History is read only where all of an utterance is short enough."""
        return cls(
            _repeated(pieces, MAX_TEXT_CHARACTERS),
            (_repeated(history, MAX_HISTORY_TOKENS - 4),) * (MAX_HISTORY if history else 0),
        )


def _repeated(pieces: Sequence[str], characters: int) -> str:
    return ("".join(pieces) * characters)[:characters]


def longest_text(question: Question) -> str:
    """Return the longest text that a model may write: a facet for each word, every other one refused."""
    facets = [facet.word for facet in _VOCABULARY.facets.values()]
    spans = (
        f"{' Not' if index % 2 else ''} {facets[index % len(facets)]} {word.text}"
        for index, word in enumerate(question.words)
    )
    return f" {_NAMED}{''.join(spans)} Any"


def completing(asked: Asked) -> Callable[[], None]:
    """Return the work of reading a question and completing the longest text that a model may write about it."""
    text = longest_text(asked.question)

    def work() -> None:
        plan_from_text(text, asked.question, _VOCABULARY)

    return work


def misspelt(seed: int) -> str:
    """Return words of which each is misspelt as no question was before."""
    rng = random.Random(seed)
    return " ".join("".join(rng.choice("aeiorstlnmpdc") for _ in range(rng.randrange(6, 11))) for _ in range(80))


def reading(asked: Asked) -> Callable[[], None]:
    """Return the work of the reader, and of the plan that it makes."""

    def work() -> None:
        read_plan(PlanTask(asked.question, _VOCABULARY, reader=_READER))

    return work


class _Writer:
    """An engine that answers at once with the longest text of the question asked."""

    model_id = kernel = "writer"
    available = True
    text = ""

    async def start(self) -> None:
        """Need nothing."""

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        assert request.grammar
        return GenerationResult(
            text=self.text, tokens=[], stop_reason="finished", prompt_tokens=1, plan_tokens=1, forwards=1, decisions=0,
            forced_tokens=0, seconds=0.001, model_id=self.model_id,
        )  # fmt: skip

    async def failed(self) -> str | None:
        await asyncio.Event().wait()
        return None

    async def close(self) -> None:
        """Hold nothing."""


class Gateway:
    """The whole application over an engine that takes no time."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._writer = _Writer()
        settings = Settings(replicas=1)
        self._pool = ReplicaPool([self._writer])
        self._loop.run_until_complete(self._pool.start())
        self._app = create_app(wire(self._pool, settings), settings)
        self._number = 0

    def answer(self, asked: Asked) -> float:
        """Return the processor's milliseconds from a body to its answer; no answer is remembered."""
        self._number += 1
        use_shop(None)
        body = Asked(f"{self._number} {asked.query}"[:MAX_TEXT_CHARACTERS], asked.history)
        self._writer.text = longest_text(body.question)
        return self._loop.run_until_complete(self._ask(body.body)) * 1000

    def close(self) -> None:
        """End what the application keeps running."""
        self._loop.run_until_complete(self._close())
        self._loop.close()

    async def _close(self) -> None:
        await self._pool.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, body: bytes) -> float:
        sent: list[Any] = []
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return messages.pop() if messages else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/plan", "raw_path": b"/plan", "query_string": b"",
                 "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8080), "scheme": "http",
                 "http_version": "1.1", "asgi": {"version": "3.0"}, "root_path": ""}  # fmt: skip
        started = time.thread_time()
        await self._app(scope, receive, send)
        await asyncio.sleep(0)  # what is logged and counted afterwards
        seconds = time.thread_time() - started
        answer = json.loads(sent[1]["body"])
        assert sent[0]["status"] == 200
        assert answer["source"] == "model", answer
        return seconds


def _operations(work: Callable[[], object]) -> int:
    use_shop(None)
    return operations(work)


def milliseconds(work: Callable[[], object], runs: int) -> float:
    """Return the least time that the thread needs, in milliseconds."""
    times = []
    for _ in range(runs):
        use_shop(None)  # as if nobody had misspelt these words before
        started = time.thread_time()
        work()
        times.append(time.thread_time() - started)
    return min(times) * 1000


def reading_ms(asked: Asked, runs: int = _RUNS) -> float:
    """Return the milliseconds of the dearer of reading and completing."""
    return max(milliseconds(work(asked), runs) for work in (reading, completing))


def by_hand() -> Iterator[Asked]:
    """Yield the questions made by hand and those that the fuzzer kept."""
    for piece in PIECES:
        yield Asked.of([piece])
        yield Asked.of([piece], [piece])
    for seed in range(5):
        yield Asked(misspelt(seed)[:MAX_TEXT_CHARACTERS])
    for line in CORPUS.read_text(encoding="utf-8").splitlines():
        *history, query = (text[:MAX_TEXT_CHARACTERS] for text in json.loads(line))
        try:
            PlanRequest.model_validate_json(Asked(query, tuple(history)).body)
        except ValueError:
            continue
        yield Asked(query, tuple(history[-MAX_HISTORY:]))


def search(seconds: float, seed: int) -> Iterator[Asked]:
    """Yield ever dearer questions: pieces put together at random, or a change of the dearest so far."""
    rng, end, most = random.Random(seed), time.monotonic() + seconds, 0.0
    best: tuple[list[str], list[str]] = ([], [])
    while time.monotonic() < end:
        sides = ([*best[0]], [*best[1]]) if best[0] and rng.random() < 0.6 else ([], [])
        for side in sides:
            for _ in range(rng.randrange(1, 4)):
                side.insert(rng.randrange(len(side) + 1), rng.choice(PIECES))
            while len(side) > 1 and rng.random() < 0.5:
                side.pop(rng.randrange(len(side)))
        asked = Asked.of(*sides)
        if (cost := reading_ms(asked, _SEARCH_RUNS)) > most:
            most, best = cost, sides
            yield asked


def main() -> int:
    """Write the figure; return 1 where a question is above a budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="to search in")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=FIGURE)
    arguments = parser.parse_args()
    asked = list(dict.fromkeys((*by_hand(), *search(arguments.seconds, arguments.seed))))
    gateway = Gateway()
    for each in asked:  # the first time reads lists
        reading(each)()
        completing(each)()
    reading_times = {each: reading_ms(each) for each in asked}
    gateway_times = {each: min(gateway.answer(each) for _ in range(_RUNS)) for each in asked}
    # A busy machine is slow at random: the dearest get more tries.
    for each in sorted(asked, key=reading_times.__getitem__)[-_DEAREST:]:
        reading_times[each] = min(reading_times[each], reading_ms(each, _MORE_RUNS))
    for each in sorted(asked, key=gateway_times.__getitem__)[-_DEAREST:]:
        gateway_times[each] = min(gateway_times[each], *(gateway.answer(each) for _ in range(_MORE_RUNS)))
    gateway.close()
    worst_reading, worst_gateway = (max(times, key=times.__getitem__) for times in (reading_times, gateway_times))
    most_operations = max(_operations(work(each)) for each in asked for work in (reading, completing))
    figure: dict[str, Any] = {
        "reading": {"ms": round(reading_times[worst_reading], 2), "query": worst_reading.query[:40]},
        "gateway": {"ms": round(gateway_times[worst_gateway], 2), "query": worst_gateway.query[:40]},
        "operations": most_operations,
        "questions": len(asked),
        "budget": {"reading_ms": READING_MS, "gateway_ms": GATEWAY_MS, "operations": OPERATIONS},
        "command": f"peakplan bench costs, {arguments.seconds:g} s of search, seed {arguments.seed}",
        "machine": describe_machine(),
    }
    write_machine(arguments.output, processor_name(), figure)
    print(json.dumps(figure, indent=1, ensure_ascii=False))
    within = figure["reading"]["ms"] <= READING_MS and figure["gateway"]["ms"] <= GATEWAY_MS
    return 0 if within and most_operations <= OPERATIONS else 1


if __name__ == "__main__":
    sys.exit(main())
