"""Which hosts a request may name, and which paths logs and spans do."""

from typing import Any

import pytest
from pydantic import ValidationError

from service.settings.groups import HttpSettings
from tests.api.client import assert_problem, talking_to

pytestmark = pytest.mark.anyio


async def status(named: str, **settings: Any) -> int:
    async with talking_to(**settings) as client:
        response = await client.post("/plan", json={"query": "shoes"}, headers={"host": named})
    if response.status_code != 200:
        assert "PEAKPLAN_ALLOWED_HOSTS" in assert_problem(response, 421)["detail"]
    return response.status_code


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:8080", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "a.localhost"]
)
async def test_a_loopback_service_answers_to_loopback_names(host: str) -> None:
    assert await status(host) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "10.0.0.7", "notlocalhost"]
)
@pytest.mark.parametrize("bound_to", ["127.0.0.1", "::1", "localhost"])
async def test_a_page_whose_name_resolves_to_this_machine_reads_nothing(host: str, bound_to: str) -> None:
    """Its browser sends the page's own name as the Host, whatever address that name has by now (DNS rebinding)."""
    assert await status(host, host=bound_to) == 421


async def test_where_others_reach_it_any_name_is_right_until_the_setting_names_some() -> None:
    assert await status("shop.example", host="0.0.0.0") == 200
    named = {"http": HttpSettings(allowed_hosts="plans.shop.example, 10.0.0.7")}
    assert await status("Plans.Shop.Example:443", host="0.0.0.0", **named) == 200
    assert await status("10.0.0.7", host="0.0.0.0", **named) == 200
    assert await status("evil.example", host="0.0.0.0", **named) == 421
    assert await status("localhost", host="0.0.0.0", **named) == 421
    assert await status("plans.shop.example", **named) == 200
    assert await status("localhost", **named) == 200


def test_a_host_with_a_scheme_is_refused() -> None:
    with pytest.raises(ValidationError, match="a name or an address alone"):
        HttpSettings(allowed_hosts="https://shop.example")


@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
async def test_only_known_paths_are_logged(method: str, caplog: pytest.LogCaptureFixture) -> None:
    """A browser's question beforehand is answered for any path, and the path may hold a shopper's words."""
    asked = {"origin": "https://shop.example", "access-control-request-method": "POST"}
    with caplog.at_level("INFO"):
        async with talking_to(http=HttpSettings(cors_origins="https://shop.example")) as client:
            await client.request(method, "/secret-words", headers=asked)
            await client.request(method, "/plan", headers=asked)
    told = [record.message for record in caplog.records if record.name == "service.api"]
    assert told == [f"{method} -", f"{method} /plan"]
