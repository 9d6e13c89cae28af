"""Open-loop load: when requests are sent and what is asked, a run in numbers, plans that pass, and bad servers."""

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import mean, variance
from typing import Any

import pytest

from rehearsal.bench.quality import Case
from rehearsal.client import LoadGenerator, Sample, Shot
from rehearsal.load.arrivals import constant, poisson, recorded, write_curve
from rehearsal.load.mix import draw, questions
from rehearsal.load.passed import Answers, _beside
from rehearsal.load.result import summarise
from service.planner.question import Question
from tests.server_process import REPOSITORY, serving

NO_DATA = Path("/nowhere")


def run(module: str, *options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *map(str, options)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)


load = partial(run, "rehearsal.load", "--data", "/nowhere")


def sample(
    at: float, latency: float, source: str = "model", status: int = 200, error: str = "", sort: str = ""
) -> Sample:
    """An answer at a deadline of 0.3 s, sent a millisecond late."""
    reason = "capacity" if source == "fallback" else None
    timing, plan = {"model": 40.0, "queue": 0.5}, {"sort": sort}
    said = json.dumps({"source": source, "timing_ms": timing, "reason": reason, "plan": plan}).encode()
    return Sample(at=at, sent=at + 0.001, ended=at + latency, deadline=0.3, status=status, body=said, error=error)


def test_poisson_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() -> None:
    times = poisson(200, 50, seed=3)
    gaps = [after - before for before, after in pairwise(times)]
    assert len(times) == pytest.approx(10_000, rel=0.05)
    assert mean(gaps) == pytest.approx(1 / 200, rel=0.05)
    assert variance(gaps) == pytest.approx(1 / 200**2, rel=0.1)
    assert all(0 <= at < 50 for at in times)
    assert times == poisson(200, 50, seed=3) != poisson(200, 50, seed=4)
    assert {round(after - before, 9) for before, after in pairwise(constant(50, 2))} == {0.02}


def test_a_recorded_curve_keeps_its_shape_at_another_rate_and_length(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    write_curve(path, [*constant(100, 10), *(10 + at for at in constant(300, 10))])
    times = recorded(path, rate=400, seconds=40)
    assert len(times) == pytest.approx(16_000, rel=0.05)
    early = sum(at < 20 for at in times)
    assert (len(times) - early) / early == pytest.approx(3, rel=0.1)
    assert times == sorted(times)
    assert times[-1] < 40


def test_the_head_is_asked_far_more_often_than_the_tail() -> None:
    ranked = [Question.parse(f"question {number}") for number in range(1000)]
    counts = Counter(question.text for question in draw(ranked, 20_000, zipf=1.0))
    assert counts["question 0"] / counts["question 9"] == pytest.approx(10, rel=0.3)
    assert counts["question 0"] / 20_000 == pytest.approx(1 / 7.485, rel=0.1)  # of the thousandth harmonic number
    alike = Counter(question.text for question in draw(ranked[:10], 10_000, zipf=0.0))
    assert max(alike.values()) < 1.2 * min(alike.values())


def test_questions_are_different_and_in_the_same_order_each_time() -> None:
    one, again = questions(30, NO_DATA), questions(30, NO_DATA)
    assert [q.text for q in one] == [q.text for q in again]
    assert len({q.utterances for q in one}) == len(one) == 30


SAMPLES = [
    sample(0.0, 0.1),
    sample(0.5, 0.31),
    sample(1.0, 0.01, "cache"),
    sample(1.2, 0.2, "fallback"),
    sample(1.5, 0.002, status=503),
    sample(1.6, 10.0, status=0, error="no answer"),
    sample(1.7, 0.36, "fallback"),
    sample(1.8, 0.01, status=500),
]


def test_a_run_in_numbers() -> None:
    result = summarise(SAMPLES, 2.0)
    assert next(iter(result)) == "planned_by_rule_share"
    assert result["planned_by_rule_share"] == 0.25
    assert result["planned_by_rule_because"] == {"capacity": 2}
    assert result["offered_per_second"] == 4.0
    assert result["goodput_per_second"] == 1.0
    assert result["sources"] == {"cache": 1, "failed": 2, "fallback": 2, "model": 2, "shed": 1}
    assert result["model_answers_in_deadline"] == 0.5
    assert result["answered_within_deadline_and_allowance"] == 0.625
    assert result["errors"] == {"no answer": 1, "status 500": 1}
    assert result["latency_ms_by_source"]["cache"]["p50"] == 10.0
    assert result["latency_ms"]["max"] == 10_000
    assert result["generator_lag_ms"]["p50"] == 1.0
    json.dumps(result)


@pytest.mark.slow
def test_a_load_leaves_a_report_a_result_and_its_curve(tmp_path: Path) -> None:
    with serving("tests.fake_server", PEAKPLAN_REPLICAS=1) as server:
        one = load("--url", server.url, "--rate", 50, "--seconds", 1, "--output", tmp_path)
        assert one.returncode == 0, one.stderr
        again = load(
            "--url", server.url, "--rate", 20, "--seconds", 1,
            "--arrivals", tmp_path / "arrivals.csv", "--output", tmp_path / "again", "--json",
        )  # fmt: skip
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout) == json.loads((tmp_path / "again/result.json").read_text(encoding="utf-8"))
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert result["requests"] > 20
    assert result["errors"] == {}
    assert set(result["sources"]) <= {"model", "cache", "fallback"}
    assert one.stdout.splitlines()[0].endswith("of the requests were planned by the reader")
    assert "WARNING" not in one.stdout
    assert "data:image/png" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_load_that_the_model_hardly_answers_says_so_first(tmp_path: Path) -> None:
    with serving("tests.fake_server", PEAKPLAN_REPLICAS=1, FAKE_SECONDS=1) as server:
        done = load(
            "--url", server.url, "--rate", 20, "--seconds", 1, "--output", tmp_path
        )  # fmt: skip
    first, second, *_ = done.stdout.splitlines()
    assert first.startswith("100.0% of the requests were planned by the reader (deadline ")
    assert second.startswith("WARNING: most plans are not the model's.")


def test_nobody_there_is_said_in_one_line(tmp_path: Path) -> None:
    done = load("--url", "http://127.0.0.1:9", "--rate", 5, "--seconds", 0.5, "--output", tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("no load: nobody answers at http://127.0.0.1:9")


CASES = [Case("find", Question.parse(f"red shoes {number}"), (["sort", "newest"],)) for number in range(40)]


def holds(plan: dict[str, Any], wanted: list[Any]) -> bool:
    return bool(plan[wanted[0]] == wanted[1])


def passing(sort: str, latency: float = 0.1, source: str = "model", status: int = 200) -> Sample:
    return sample(1.0, latency, source, status, sort=sort)


def answered(*samples: Sample) -> Answers:
    answers = Answers(seconds=2.0)
    answers.add(samples, range(len(samples)), CASES, holds)
    return answers


def test_an_answer_passes_if_every_assertion_holds_and_it_came_in_time() -> None:
    summary = answered(
        passing("newest"),
        passing("newest", source="fallback"),
        passing("relevance"),
        passing("newest", latency=0.31),
        passing("newest", latency=0.36, source="fallback"),
        passing("newest", status=503),
    ).summary
    assert (summary["passed_share"], summary["passed_per_second"]) == (0.3333, 1.0)
    assert (summary["model_share"], summary["model_plans_in_time_per_second"]) == (0.5, 1.0)
    assert summary["past_deadline"] == 2


def test_chance_and_worth_are_compared_on_the_same_requests() -> None:
    rng = random.Random(1)
    chance = answered(*(passing("newest" if rng.random() < 0.5 else "relevance") for _ in CASES))
    worth = answered(*(passing("newest") for _ in CASES))
    (more, low, high) = _beside({"chance": chance, "worth": worth})["more_by_worth"]
    assert more == pytest.approx(1 - chance.summary["passed_share"], abs=1e-4)
    assert 0 < low < more < high
    assert _beside({"chance": worth, "worth": worth})["more_by_worth"] == [0.0, 0.0, 0.0]


@pytest.mark.slow
def test_cases_are_replayed_at_two_services_in_turns(tmp_path: Path) -> None:
    check, cases, figure = tmp_path / "check.py", tmp_path / "cases.jsonl", tmp_path / "passed.json"
    check.write_text("def holds(plan, wanted):\n    return plan['intent'] == wanted[1]\n", encoding="utf-8")
    rows = [{"class": "find", "query": f"red shoes {n}", "expect": [["intent", "find_product"]]} for n in range(30)]
    cases.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    options = ["--times", 1, 2, "--turns", 2, "--seconds", 1, "--module", "tests.fake_server"]
    done = run("rehearsal.load.passed", cases, "--check", check, "--output", figure, *options)
    assert done.returncode == 0, done.stderr
    found = json.loads(figure.read_text(encoding="utf-8"))
    assert [load["times"] for load in found["loads"]] == [1.0, 2.0]
    for load in found["loads"]:
        assert load["chance"]["requests"] == load["worth"]["requests"] > 10
        assert load["chance"]["passed_share"] > 0.5
    assert "more by worth" in done.stdout


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@asynccontextmanager
async def server(handler: Handler) -> AsyncIterator[str]:
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    for writer in writers:
        writer.close()
    listener.close()
    await asyncio.sleep(0.05)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))


@pytest.mark.anyio
async def test_answers_in_pieces_over_kept_connections() -> None:
    bodies: list[bytes] = []
    connections = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            bodies.append(await read_request(reader))
            for start in range(0, len(OK), 7):
                writer.write(OK[start : start + 7])
                await asyncio.sleep(0)

    async with server(handler) as url:
        samples = await LoadGenerator(url).fire([Shot(number * 0.02, b"%d" % number) for number in range(5)])
    assert [(sample.status, sample.body, sample.error) for sample in samples] == [(200, b"{}", "")] * 5
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]
    assert connections < 5


@pytest.mark.anyio
async def test_a_stall_shows_in_every_request_that_it_held_up() -> None:
    """Check that a stall is counted; a closed loop would have sent one request and called the rest fast."""
    release = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            await release.wait()
            writer.write(OK)

    async with server(handler) as url:
        asyncio.get_running_loop().call_later(0.5, release.set)
        samples = await LoadGenerator(url).fire([Shot(number * 0.05, b"x") for number in range(6)])
    for number, sample in enumerate(samples):
        assert sample.latency >= 0.5 - number * 0.05 - 0.02


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"", (0, "ConnectionResetError")),
        (b"HTTP/1.1 200", (0, "ConnectionResetError")),
        (None, (0, "no answer")),
        (OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), (200, "")),
    ],
    ids=["closed", "cut off", "never comes", "connection: close"],
)
async def test_whatever_a_connection_ends_with_is_told(answer: bytes | None, found: tuple[int, str]) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        if answer is None:
            await reader.read()
        writer.write(answer or b"")

    shots = [Shot(number * 0.02, b"x") for number in range(3)]
    async with server(handler) as url:
        samples = await LoadGenerator(url, timeout=0.2 if answer is None else 10).fire(shots)
    assert [(sample.status, sample.error) for sample in samples] == [found] * 3
