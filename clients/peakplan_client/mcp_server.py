"""A server of the Model Context Protocol: an assistant plans a shopper's question, or has it answered with products.

`python -m peakplan_client.mcp_server --url http://127.0.0.1:8080` speaks over stdin and stdout, with `--port` over
HTTP. It is a client of a running service and keeps nothing; the SDK is in the extra `mcp`.
"""

import argparse
import os
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field

from peakplan_client.answering import Done, More, Option, Options
from peakplan_client.client import AsyncClient
from peakplan_client.errors import PlannerError
from peakplan_client.plan import Answer, Plan

try:
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations
except ImportError as error:
    raise ImportError("The MCP server needs the protocol's SDK: pip install 'peakplan-client[mcp]'") from error

_INSTRUCTIONS = (
    "Tools of a shop's query planner. `answer` finds products for what a shopper wants, with the wishes that each one "
    "meets, does not meet, or that the catalogue does not tell. `plan` says what they mean, for a search of your own."
)
_TIMEOUT_SECONDS = 5.0
_DEADLINE_MS = 1000  # an assistant has longer than a shop's page

Query = Annotated[str, Field(min_length=1, max_length=512, description="The newest thing that the shopper wrote.")]
History = Annotated[list[str] | None, Field(description="What they wrote before, newest last.")]


class Planned(BaseModel):
    """A plan; `degraded` where the small reader had to make it, for `reason`."""

    plan: Plan
    degraded: bool
    reason: str | None


class Found(BaseModel):
    """Products, best first; `first_ms` is how long the first three took. `reason` says why there are none."""

    plan: Plan
    options: list[Option]
    nothing_of_that_kind: bool
    nearest_kinds: list[str]
    reason: str | None
    first_ms: float


def make_server(url: str | Sequence[str], token: str | None = None) -> MCPServer[Any]:
    """Return a server whose tools ask the service at this address, or at these in order of preference.

    Raises ValueError where one is none.
    """

    def connected() -> AsyncClient:
        return AsyncClient(url, token=token, deadline_ms=_DEADLINE_MS, timeout=_TIMEOUT_SECONDS)

    connected()
    server = MCPServer("peakplan", instructions=_INSTRUCTIONS, log_level="WARNING")
    reads = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

    @server.tool(annotations=reads)
    async def plan(query: Query, history: History = None) -> Planned:
        """Say what a shopper means: intent, facets, exclusions, price, rating, sort and search queries."""
        try:
            async with connected() as client:
                answer = await client.plan(query, history or [])
        except PlannerError as error:
            raise ToolError(str(error)) from error
        return Planned(plan=answer.plan, degraded=answer.degraded, reason=answer.reason)

    @server.tool(annotations=reads)
    async def answer(query: Query, history: History = None) -> Found:
        """Find products for a shopper's wish in the service's sample shop: three good options first, then others."""
        try:
            async with connected() as client:
                return await _found(client, query, history or [])
        except PlannerError as error:
            raise ToolError(str(error)) from error

    return server


async def _found(client: AsyncClient, query: str, history: Sequence[str]) -> Found:
    plan, first, options, done = Plan(), Options(), list[Option](), Done()
    async for event in client.answer(query, history, timeout=_TIMEOUT_SECONDS):
        if isinstance(event, Answer):
            plan = event.plan
        elif isinstance(event, Done):
            done = event
        else:
            first = event if isinstance(event, Options) else first
            options += event.options if isinstance(event, Options | More) else ()
    return Found(
        plan=plan,
        options=options,
        nothing_of_that_kind=first.nothing,
        nearest_kinds=list(first.nearest),
        reason=first.reason,
        first_ms=done.first_ms,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the assistant ends it."""
    parser = argparse.ArgumentParser(prog="peakplan-mcp", description="Peakplan's tools for assistants, over MCP.")
    parser.add_argument("--url", action="append", help="a running service (http://127.0.0.1:8080); again: the next one")
    parser.add_argument("--port", type=int, help="speak HTTP on this port of 127.0.0.1, at /mcp, instead of stdio")
    given = parser.parse_args(arguments)
    if given.port is not None and not 1 <= given.port <= 65535:
        parser.error(f"--port must be from 1 to 65535, not {given.port}")
    try:
        server = make_server(given.url or "http://127.0.0.1:8080", os.environ.get("PEAKPLAN_TOKEN"))
    except ValueError as error:
        parser.error(str(error))
    if given.port is not None:
        server.run("streamable-http", port=given.port, stateless_http=True, json_response=True)
    else:
        server.run("stdio")


if __name__ == "__main__":
    main()
