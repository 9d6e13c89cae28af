"""PEAKPLAN_ENGINE=openai from its settings to the answer of POST /plan."""

from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr, ValidationError
from tokenizers import Tokenizer

from service.api.app import create_app, replica_pool, wire
from service.settings import Settings
from service.settings.engines import OpenAiSettings
from service.settings.groups import CacheSettings
from tests.engines.openai.fake_completions import ILLEGAL, LEGAL, FakeCompletions, running
from tests.tiny_model import MODEL_ID, write_tiny_model

pytestmark = pytest.mark.anyio


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
