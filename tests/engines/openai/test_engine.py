"""An engine over a completions server that a test scripts, alone and in the service."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, grammar_from
from pydantic import SecretStr, ValidationError
from tokenizers import Tokenizer

from service.api.app import create_app, replica_pool, wire
from service.decoding.constraint import GrammarCompiler
from service.engines.openai.engine import OpenAiEngine, TextFollower
from service.engines.protocol import EngineUnavailableError, GenerationRequest, RequestRefusedError
from service.planner.grammar import plan_grammar
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings import Settings
from service.settings.engines import EngineConfig, OpenAiSettings
from service.settings.groups import CacheSettings
from tests.engines.openai import fake_completions as fakes
from tests.engines.openai.fake_completions import ILLEGAL, LEGAL, FakeCompletions, running
from tests.tiny_model import BOS, EOS, MODEL_ID, write_tiny_model

pytestmark = pytest.mark.anyio

QUESTION = Question.parse("red nike running shoes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"), with_heads=False)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder.with_name("base") / "tokenizer.json"))


@pytest.fixture
async def server(tokenizer: Tokenizer) -> AsyncIterator[FakeCompletions]:
    async with running(FakeCompletions(tokenizer, text=LEGAL)) as fake:
        yield fake


def engine_for(url: str, folder: Path, **changes: Any) -> OpenAiEngine:
    start_seconds = changes.pop("start_seconds", 5.0)
    servers = OpenAiSettings(url=url, **changes)
    config = EngineConfig(model_dir=folder, cache_dir=folder, engine="openai", openai=servers, strategy="draft")
    return OpenAiEngine(config.model_copy(update={"max_prompt_tokens": 128}), 0, start_seconds=start_seconds)


def request(**changes: Any) -> GenerationRequest:
    asked = {"prompt": render_prompt(QUESTION), "grammar": plan_grammar(QUESTION, shipped_vocabulary())}
    return GenerationRequest(**({"strategy": "draft"} | asked | changes))


@pytest.fixture
async def start(server: FakeCompletions, folder: Path) -> AsyncIterator[Any]:
    """Return what starts an engine that finds out what the server can do, and ends with the test."""
    made: list[OpenAiEngine] = []

    async def start(**changes: Any) -> OpenAiEngine:
        made.append(engine_for(server.url, folder, **changes))
        await made[-1].start()
        return made[-1]

    yield start
    for each in made:
        await each.close()


@pytest.fixture
async def engine(start: Any) -> OpenAiEngine:
    found: OpenAiEngine = await start()
    return found


async def until(holds: Any) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.005)


async def test_a_plan_comes_whole_with_its_tokens(
    server: FakeCompletions, engine: OpenAiEngine, tokenizer: Tokenizer
) -> None:
    result = await engine.generate(request())

    assert engine.available
    assert engine.model_id == MODEL_ID
    assert (result.text, result.stop_reason) == (LEGAL, "finished")
    assert result.tokens == tokenizer.encode(LEGAL, add_special_tokens=False).ids
    prompt = [BOS, *tokenizer.encode(render_prompt(QUESTION), add_special_tokens=False).ids]
    asked = server.plans[0]
    assert (asked["prompt"], asked["temperature"], asked["model"]) == (prompt, 0, "served")
    assert result.prompt_tokens == len(prompt)


@pytest.mark.parametrize(
    ("changes", "form", "begins"),
    [
        ({}, "tokens", BOS),
        ({"takes_token_ids": False}, "text", " "),
        ({"takes_token_ids": False, "adds_bos": False}, "text with bos", "<"),
    ],
)
async def test_the_prompt_is_put_as_the_server_reads_it(
    server: FakeCompletions, start: Any, changes: dict[str, bool], form: str, begins: object
) -> None:
    for name, value in changes.items():
        setattr(server, name, value)
    engine = await start()
    await engine.generate(request())

    assert engine.capabilities is not None
    assert engine.capabilities.prompt == form
    assert server.plans[0]["prompt"][0] == begins


async def test_a_server_with_another_tokenizer_is_refused_in_words(
    server: FakeCompletions, start: Any, tokenizer: Tokenizer
) -> None:
    server.takes_token_ids = False
    server.tokenizer = Tokenizer.from_str(tokenizer.to_str())
    server.tokenizer.add_tokens([" red shoes\n"])
    with pytest.raises(EngineUnavailableError, match="peakplan export"):
        await start()


async def test_text_beyond_the_grammars_end_is_cut_and_the_request_ended(server: FakeCompletions, start: Any) -> None:
    server.text, server.pause = LEGAL + " and so on" * 40, 0.002
    engine = await start()
    server.pause = 0.01

    assert (await engine.generate(request())).text == LEGAL
    await until(lambda: server.broken_off == 1)


@pytest.mark.parametrize("field", ["structured_outputs", "guided_grammar"])
async def test_text_that_leaves_the_grammar_is_asked_for_under_it(
    server: FakeCompletions, start: Any, field: str
) -> None:
    server.text, server.lawful_text, server.grammar_field = ILLEGAL, LEGAL, field
    engine = await start()
    result = await engine.generate(request())

    assert result.text == LEGAL
    assert [field in asked for asked in server.plans] == [False, True]


@pytest.mark.parametrize(
    ("lawful", "changes", "tries"),
    [(None, {}, 1), (ILLEGAL, {}, 2), (LEGAL, {"grammar": "off"}, 1)],
    ids=["no grammars", "grammar disobeyed", "grammars switched off"],
)
async def test_text_that_stays_illegal_is_refused_after_at_most_two_tries(
    server: FakeCompletions, start: Any, lawful: str | None, changes: dict[str, str], tries: int
) -> None:
    server.text, server.lawful_text = ILLEGAL, lawful
    engine = await start(**changes)
    with pytest.raises(RequestRefusedError, match="leaves the grammar"):
        await engine.generate(request())

    assert len(server.plans) == tries
    assert engine.available
    has_grammar = [{"structured_outputs", "guided_grammar"} & set(asked) for asked in server.asked]
    assert not (changes and any(has_grammar)), "it is never sent"


FAULTS = [
    fakes.internal_error, fakes.garbage, fakes.broken_event, fakes.disconnect, fakes.endless, fakes.no_http,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_one_fault_is_asked_again_and_two_are_enough(
    server: FakeCompletions, engine: OpenAiEngine, fault: Any
) -> None:
    server.faults = [fault]
    assert (await engine.generate(request())).text == LEGAL

    server.faults = [fault] * 5
    with pytest.raises(EngineUnavailableError) as lost:
        await engine.generate(request())
    assert len(server.faults) == 3
    assert "secret" not in str(lost.value)
    assert engine.available  # one bad request takes no server out of service: the gateway counts them


async def test_an_answer_cut_by_length_says_so(server: FakeCompletions, start: Any) -> None:
    server.text, server.finish = " find Brand nike", "length"
    engine = await start()
    result = await engine.generate(request(max_tokens=9))

    assert (result.text, result.stop_reason) == (" find Brand nike", "length")
    assert server.plans[0]["max_tokens"] == 9


async def test_a_slow_server_is_left_at_the_deadline(server: FakeCompletions, engine: OpenAiEngine) -> None:
    server.pause = 5.0
    result = await engine.generate(request(deadline=time.monotonic() + 0.1))
    assert result.stop_reason == "cancelled"

    server.pause = 0.0
    assert (await engine.generate(request())).text == LEGAL


async def test_a_cancelled_request_ends_at_the_server_too(server: FakeCompletions, engine: OpenAiEngine) -> None:
    server.text, server.pause = LEGAL.removesuffix(" Fashion") + " nonsense" * 50, 0.02
    work = asyncio.create_task(engine.generate(request()))
    await until(lambda: server.plans)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await until(lambda: server.broken_off == 1)


async def test_a_server_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(EngineUnavailableError, match=r"http://127\.0\.0\.1:9/v1 cannot be used: nobody answers"):
        await engine_for("http://127.0.0.1:9/v1", folder).start()


async def test_a_silent_server_does_not_hold_up_the_start(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts, nobody reads
        engine = engine_for(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", folder, start_seconds=1.0)
        with pytest.raises(EngineUnavailableError, match="had not answered after 1 s"):
            await engine.start()
        await engine.close()


async def test_a_server_that_goes_down_is_noticed_and_taken_up_again(
    server: FakeCompletions, engine: OpenAiEngine
) -> None:
    await server.stop()
    with pytest.raises(EngineUnavailableError):
        await engine.generate(request())
    async with asyncio.timeout(5):
        await engine.failed()
    assert not engine.available

    await server.start()
    await engine.start()
    assert (await engine.generate(request())).text == LEGAL


async def test_one_of_several_models_must_be_named(server: FakeCompletions, start: Any) -> None:
    server.models = ("ours", "another")
    with pytest.raises(EngineUnavailableError, match=r"ours, another\): name one with PEAKPLAN_OPENAI_MODEL"):
        await start()

    engine = await start(model="ours", key="hush")
    await engine.generate(request())
    assert server.plans[0]["model"] == "ours"
    assert all("authorization: bearer hush" in head.lower() for head in server.headers[-2:])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strategy": "medusa"}, "decodes draft, and no other way"),
        ({"trace": True}, "does not show its steps"),
        ({"prompt": " shoes" * 200}, "its prompt has 201 tokens, and 128 are the most"),
        ({"grammar": "start: ("}, "its grammar does not compile"),
    ],
)
async def test_what_no_server_can_answer_is_refused_unasked(
    server: FakeCompletions, engine: OpenAiEngine, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(RequestRefusedError, match=words):
        await engine.generate(request(**changes))
    assert not server.plans


WORDS = ["red nike shoes under $100", 'a "quoted" back\\slash {x} <y> ::= z', "naïve café 日本", "start: a | b ::= c"]


@pytest.mark.parametrize("words", WORDS)
def test_vllm_takes_our_grammar_for_what_it_is(words: str) -> None:
    """Check `grammar_from("grammar", ...)`, with which the backend guesses whether a grammar is GBNF."""
    grammar = plan_grammar(Question.parse(words), shipped_vocabulary())
    assert grammar_from("grammar", grammar) == LLMatcher.grammar_from_lark(grammar)


CREME = Question.parse("red nike crème shoes under $100")
PLAN = " find Color red Brand nike Feature crème Type shoes Fashion"


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> GrammarCompiler:
    folder = write_tiny_model(tmp_path_factory.mktemp("tiny"), with_heads=False)
    return GrammarCompiler(Tokenizer.from_file(str(folder.with_name("base") / "tokenizer.json")).to_str(), EOS)


def follower(compiler: GrammarCompiler) -> TextFollower:
    return TextFollower(compiler, compiler.compile(plan_grammar(CREME, shipped_vocabulary())), EOS)


@settings(deadline=None, max_examples=40)
@given(cuts=st.sets(st.integers(1, len(PLAN) - 1)), beyond=st.text(max_size=5))
def test_however_it_is_cut_a_plan_is_whole_at_its_end(compiler: GrammarCompiler, cuts: set[int], beyond: str) -> None:
    edges = [0, *sorted(cuts), len(PLAN)]
    followed = follower(compiler)
    outcomes = [followed.follow(PLAN[start:end]) for start, end in pairwise(edges)]

    assert outcomes == [False] * (len(outcomes) - 1) + [True]
    assert followed.may_end()
    assert followed.follow(beyond)
    assert followed.text == PLAN


def test_the_space_that_a_server_lost_is_put_back(compiler: GrammarCompiler) -> None:
    followed = follower(compiler)
    assert followed.follow("") is False
    assert followed.follow(PLAN.lstrip()) is True
    assert followed.text == PLAN


def test_half_a_plan_may_not_end(compiler: GrammarCompiler) -> None:
    followed = follower(compiler)
    followed.follow(" find Color red")
    assert not followed.may_end()


def test_how_the_server_decodes_must_be_said() -> None:
    with pytest.raises(ValidationError, match="PEAKPLAN_STRATEGY too"):
        Settings(engine="openai")


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "http://a/v1,b/v1", ""])
def test_an_address_without_a_scheme_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="up to /v1"):
        Settings(openai=OpenAiSettings(url=url))


def test_replicas_are_spread_over_the_servers_and_not_bound_to_our_cores() -> None:
    urls = "http://a/v1, http://b/v1,http://c/v1"
    settings = Settings(engine="openai", strategy="draft", openai=OpenAiSettings(url=urls), replicas=200)
    pool = replica_pool(settings)
    assert pool.replica_count == 200
    assert settings.engine_config.openai.urls == ("http://a/v1", "http://b/v1", "http://c/v1")


async def test_a_plan_says_which_model_made_it_and_how(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path, with_heads=False)
    tokenizer = Tokenizer.from_file(str(folder.with_name("base") / "tokenizer.json"))
    async with running(FakeCompletions(tokenizer, text=LEGAL)) as server:
        settings = Settings(
            engine="openai",
            strategy="draft",
            openai=OpenAiSettings(url=server.url, key=SecretStr("hush"), grammar="off"),
            model_dir=folder,
            replicas=2,
            cache=CacheSettings(entries=0),
        )
        pool = replica_pool(settings)
        await pool.start()
        services = wire(pool, settings)
        transport = httpx.ASGITransport(create_app(services, settings), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            plan = (await client.post("/plan", json={"query": "red nike running shoes", "deadline_ms": 2000})).json()
            server.text = ILLEGAL
            rules = (await client.post("/plan", json={"query": "red nike running shoes", "deadline_ms": 2000})).json()
            trace = await client.post("/trace", json={"query": "red shoes"})
            ready = await client.get("/readyz")
        await services.close()

    assert plan["model"] == {"id": MODEL_ID, "strategy": "draft"}
    assert (plan["source"], plan["plan"]["facets"]) == ("model", {"brand": ["nike"], "type": ["running shoes"]})
    assert (rules["source"], rules["degraded"]) == ("fallback", True)
    assert trace.status_code == 422
    assert "does not show its steps" in trace.json()["detail"]
    assert ready.status_code == 200
    assert all("bearer hush" in head.lower() for head in server.headers)
