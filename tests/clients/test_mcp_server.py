"""The tools for assistants, tried by the SDK's own client: over stdio and HTTP, against a real service."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="the MCP SDK is not installed: pip install -e .[mcp]")
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.processes import PATIENCE, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
CLIENTS = Path(__file__).parents[2] / "clients"
MODULE = "peakplan_client.mcp_server"


def over_stdio(url: str) -> StdioServerParameters:
    environment = {"PYTHONPATH": str(CLIENTS)}
    return StdioServerParameters(command=sys.executable, args=["-m", MODULE, "--url", url], env=environment)


@pytest.fixture
def over_http(planner_url: str) -> Iterator[str]:
    """Run the server on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", MODULE, "--url", planner_url, "--port", str(port)]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(CLIENTS)})

    def listens() -> bool:
        with socket.socket() as asking:
            return asking.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(listens, "the server does not listen")
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait(PATIENCE)


async def test_an_assistant_finds_two_tools_and_calls_them(planner_url: str) -> None:
    async with Client(over_stdio(planner_url)) as assistant:
        tools = (await assistant.list_tools()).tools
        assert {tool.name for tool in tools} == {"plan", "answer"}
        for tool in tools:
            assert tool.description
            assert tool.input_schema["required"] == ["query"]
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint
        planned = await assistant.call_tool("plan", {"query": "red boots under $80, not suede"})
        assert not planned.is_error
        assert planned.structured_content["plan"]["price"]["max"] == 80
        found = (
            await assistant.call_tool("answer", {"query": "boots under $80", "history": ["hello"]})
        ).structured_content
        assert found["options"] or found["reason"]
        assert all(option["price"] <= 80 for option in found["options"])
        assert found["first_ms"] > 0
        refused = await assistant.call_tool("plan", {"query": ""})
        assert refused.is_error


async def test_the_same_over_http(over_http: str) -> None:
    async with Client(over_http) as assistant:
        for _ in range(2):  # a connection is not one call
            planned = await assistant.call_tool("plan", {"query": "boots under $80"})
            assert planned.structured_content["plan"]["price"]["max"] == 80


async def test_a_service_that_is_not_there_is_said_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    async with Client(over_stdio(url)) as assistant:
        refused = await assistant.call_tool("answer", {"query": "boots"})
    assert refused.is_error
    (told,) = refused.content
    assert "cannot be reached" in getattr(told, "text", "")
    assert "Traceback" not in getattr(told, "text", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--port", "99999"], "from 1 to 65535, not 99999"), (["--url", "here"], "names no endpoint")],
)
def test_wrong_arguments_are_named(arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", MODULE, *arguments],
        env=os.environ | {"PYTHONPATH": str(CLIENTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
