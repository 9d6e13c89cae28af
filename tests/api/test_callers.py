"""Callers that a load balancer tells: by certificate, by token, by address; and requests that lie about it."""

import base64
import contextlib
import hashlib
import json
import logging
import os
import subprocess
import sys
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from starlette.datastructures import Headers

from service.api.api_keys import (
    CERTIFICATE_HEADER,
    ApiKeys,
    ApiKeysError,
    Caller,
    Callers,
    UnknownCallerError,
    claimed,
    common_name,
    parse_tokens,
)
from service.settings.groups import AuthSettings
from tests.api.client import assert_problem, talking_to
from tests.fake_engines import FakeEngine
from tests.gateway.simulated import Clock

BODY = {"query": "red shoes"}
# What a balancer in front of the host always adds; behind PrivateLink it is the network balancer's own address.
BALANCED = [("x-forwarded-for", "10.64.0.9")]


def certified(subject: str) -> list[tuple[str, str]]:
    return [*BALANCED, (CERTIFICATE_HEADER, subject)]


def token(content: object) -> str:
    def part(of: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(of).encode()).decode().rstrip("=")

    return f"Bearer {part({'alg': 'RS256'})}.{part(content)}.c2lnbmF0dXJl"


@pytest.mark.anyio
async def test_two_callers_behind_one_address_have_a_limit_each(caplog: pytest.LogCaptureFixture) -> None:
    auth = AuthSettings(caller_from="certificate", caller_rates="search-page=2,assistant=1000")
    async with talking_to(auth=auth) as client:
        with caplog.at_level(logging.INFO, "service.api"):
            answers = [
                await client.post("/plan", json=BODY, headers=certified("CN=search-page,O=Shop")) for _ in range(4)
            ]
            other = [await client.post("/plan", json=BODY, headers=certified("CN=assistant")) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    assert [answer.status_code for answer in other] == [200] * 4
    named = [record.__dict__["caller"] for record in caplog.records if "POST /plan" in record.getMessage()]
    assert named == ["search-page"] * 4 + ["assistant"] * 4


@pytest.mark.anyio
async def test_whoever_no_balancer_vouches_for_is_refused_and_the_host_itself_is_not() -> None:
    engine = FakeEngine()
    async with talking_to(engine, auth=AuthSettings(caller_from="certificate")) as client:
        for headers in (
            BALANCED,
            certified("O=Shop"),
            certified("CN=a,CN=b"),
            [*certified("CN=a"), *certified("CN=b")],
        ):
            assert_problem(await client.post("/plan", json=BODY, headers=headers), 401)
        assert engine.served == []
        assert (await client.get("/readyz", headers=BALANCED)).status_code == 200  # the balancers' own health checks
        # How a host proves that it is ready (ami/host/lifecycle.py): from itself, through nobody.
        assert (await client.post("/plan", json=BODY)).status_code == 200


@pytest.mark.anyio
async def test_a_verified_token_names_its_caller() -> None:
    auth = AuthSettings(caller_from="token", caller_claim="client_id", caller_rates="assistant=1")
    async with talking_to(auth=auth) as client:

        async def asks(content: object) -> int:
            headers = [*BALANCED, ("authorization", token(content))]
            return (await client.post("/plan", json=BODY, headers=headers)).status_code

        assert [await asks({"client_id": "assistant", "sub": str(number)}) for number in range(2)] == [200, 429]
        assert await asks({"client_id": "search-page"}) == 200
        assert await asks({"sub": "assistant"}) == 401


def test_only_the_newest_hop_is_believed() -> None:
    networks = [("assistant", ip_network("10.0.0.0/12"))]
    callers = Callers("forwarded", networks=networks, rates={"assistant": 5.0})

    def name(*forwarded: str) -> str:
        return callers.caller(Headers(raw=[(b"x-forwarded-for", words.encode()) for words in forwarded])).name

    assert name("10.1.2.3") == "assistant"
    assert name("10.1.2.3, 10.40.0.1") == name("10.1.2.3", "10.40.0.1") == "10.40.0.1"
    assert name("::ffff:10.1.2.3") == "assistant"
    assert name("2001:db8::1") == name("2001:db8::2") == "2001:db8::/64"
    assert callers.caller(Headers({"x-forwarded-for": "10.1.2.3"})).rate == 5.0
    for lie in ("", "assistant", "10.1.2.3,", "10.1.2.3:80"):
        with pytest.raises(UnknownCallerError):
            name(lie)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=assistant,OU=Search,O=Shop\\, Inc.,C=US", "assistant"),
        ("O=Shop,2.5.4.3=assistant", "assistant"),
        ("OU=CN\\=assistant+CN=search-page", "search-page"),
    ],
)
def test_a_subject_has_one_name(subject: str, name: str) -> None:
    assert common_name(subject) == name


@pytest.mark.parametrize(
    "subject",
    [
        "", "assistant", "O=Shop", "CN=assistant,CN=search-page", "CN=assistant+2.5.4.3=search-page",
        "CN=search\\,CN=assistant", 'CN="assistant"', 'O="x,CN=assistant",CN=search-page', "CN=assistant,",
        "CN=assistant\\", "CN=assi stant", "CN=#0c01", "CN=" + "a" * 129, "CN=\u0430ssistant",
    ],
)  # fmt: skip
def test_a_subject_that_two_readers_could_read_in_two_ways_names_nobody(subject: str) -> None:
    with pytest.raises(UnknownCallerError):
        common_name(subject)


_WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60).filter(
    lambda words: len(words.encode()) <= 64  # as X.520 bounds them
)
_NAMES = st.sampled_from([NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME])


@given(st.lists(st.tuples(_NAMES, st.one_of(_WORDS, st.sampled_from(["assistant", "x,CN=assistant", 'a"+CN=b'])))))
def test_whatever_a_certificate_says_it_is_nobody_else(attributes: list[tuple[Any, str]]) -> None:
    """A subject as a library writes it has the caller that its one CN is, or none."""
    subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    true_names = [value for oid, value in attributes if oid == NameOID.COMMON_NAME]
    try:
        found = common_name(subject.rfc4514_string())
    except UnknownCallerError:
        return
    assert [found] == true_names


@given(st.text(max_size=300))
def test_any_subject_names_one_or_nobody(subject: str) -> None:
    with contextlib.suppress(UnknownCallerError):
        assert common_name(subject) in subject


@given(
    st.one_of(st.text(max_size=200), st.binary(max_size=200).map(lambda raw: f"Bearer a.{base64.b64encode(raw)!r}.c"))
)
def test_any_token_names_one_or_nobody(authorization: str) -> None:
    with contextlib.suppress(UnknownCallerError):
        assert claimed(authorization, "sub")


@pytest.mark.parametrize(
    "content", [[], "sub", {}, {"sub": None}, {"sub": ["assistant"]}, {"sub": ""}, {"sub": "a b"}, {"sub": "a\nb"}, 1]
)
def test_a_token_that_names_nobody_is_refused(content: object) -> None:
    with pytest.raises(UnknownCallerError):
        claimed(token(content), "sub")
    with pytest.raises(UnknownCallerError):
        claimed("Bearer " + "[" * 20_000, "sub")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"caller_rates": "assistant"}, "name=value"),
        ({"caller_rates": "assistant=0"}, "above 0"),
        ({"caller_networks": "assistant=10.0.0.0/99"}, "10.0.0.0/99"),
        ({"caller_from": "token", "api_keys": "# none"}, "choose one"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, str], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        AuthSettings.model_validate(settings)


def line(name: str, token: str, rest: str = "") -> str:
    return f"{name} {hashlib.sha256(token.encode()).hexdigest()} {rest}\n"


def test_a_token_names_its_caller() -> None:
    tokens = ApiKeys("# ours\n\n" + line("search", "one") + line("search", "two", "5.5"), None)
    assert tokens.required
    assert not ApiKeys("", None).required
    assert tokens.caller("Bearer one") == Caller("search")
    assert tokens.caller("bearer two") == Caller("search", 5.5)


DIGEST = hashlib.sha256(b"one").hexdigest()


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic one", "Bearer three", "one", "Bearer " + "x" * 600, f"Bearer {DIGEST}"]
)
def test_anything_else_is_nobody(header: str) -> None:
    assert ApiKeys(line("search", "one"), None).caller(header) is None


@pytest.mark.parametrize(
    "bad", ["search secret", "search " + "0" * 63, "two words " + "0" * 64, "x " + "0" * 64 + " fast"]
)
def test_a_line_that_cannot_be_read_is_named_and_not_quoted(bad: str) -> None:
    with pytest.raises(ApiKeysError, match="line 2") as caught:
        ApiKeys("# fine\n" + bad, None)
    assert "secret" not in str(caught.value)


def test_a_file_is_read_again_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, clock = tmp_path / "tokens", Clock()
    path.write_text(line("search", "old"), encoding="utf-8")
    tokens = ApiKeys("", path, clock)
    assert tokens.caller("Bearer old")

    def rewrite(text: str) -> None:
        """Rewrite the file as a careful operator does: another file takes the name."""
        fresh = tmp_path / "fresh"
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
        look()

    def look() -> None:
        """Let the file stay as it is between two checks."""
        for _ in range(2):
            clock.now += 2.0
            tokens.caller("Bearer any")

    rewrite(line("search", "new"))
    assert tokens.caller("Bearer new") == Caller("search")
    assert tokens.caller("Bearer old") is None
    with caplog.at_level(logging.ERROR):
        for text in ("nonsense", "", "\n \n"):
            rewrite(text)
            assert tokens.caller("Bearer new") == Caller("search")
        path.unlink()
        look()
        look()
        assert tokens.caller("Bearer new") == Caller("search")
    assert caplog.text.count("the old ones stay") == 4, "each once"
    assert "is empty" in vars(caplog.records[1])["reason"]
    rewrite("# nobody\n")
    assert tokens.caller("Bearer new") is None
    assert tokens.required


def test_a_file_that_is_written_in_place_locks_nobody_out(tmp_path: Path) -> None:
    path, clock = tmp_path / "tokens", Clock()
    written = [line(name, name) for name in ("search", "mobile", "newer")]
    path.write_text("".join(written[:2]), encoding="utf-8")
    tokens = ApiKeys("", path, clock)
    with path.open("w", encoding="utf-8") as file:
        for text in ("", *written):
            file.write(text)
            file.flush()
            clock.now += 2.0
            assert tokens.caller("Bearer mobile")
            assert tokens.caller("Bearer search")
    clock.now += 2.0
    assert tokens.caller("Bearer newer")


def test_the_command_makes_a_token_and_its_line() -> None:
    command = [sys.executable, "-m", "service.api.api_keys", "search"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    token, made = (words.rpartition(":  ")[2].strip() for words in printed)
    assert ApiKeys(made, None).caller(f"Bearer {token}") == Caller("search")


def test_a_rate_of_nothing_is_refused() -> None:
    """It once meant any number."""
    with pytest.raises(ApiKeysError, match=r"line 2: a rate of 0 admits nothing\. Remove the line"):
        parse_tokens(f"search {'0' * 64} 1\nmobile {'1' * 64} 0", "keys")
    with pytest.raises(ApiKeysError, match="rate of 0"):
        parse_tokens(f"mobile {'1' * 64} 0.00", "keys")
