"""A completions server inside the test's own loop that answers, lies, stalls and dies as configured."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer

Fault = Callable[[asyncio.StreamWriter], Any]

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
# Plans for "red nike running shoes".
LEGAL = " find Brand nike Type running shoes Fashion"
ILLEGAL = " find Brand adidas Type running shoes Fashion"  # the shopper named no adidas


@dataclass
class FakeCompletions:
    """The server's answers and received requests. `faults` are used up one by one, before it answers at all."""

    tokenizer: Tokenizer
    text: str = " status"
    lawful_text: str | None = None  # the answer under a grammar; None: it supports no grammar
    grammar_field: str = "structured_outputs"
    takes_token_ids: bool = True
    adds_bos: bool = True
    finish: str = "stop"
    models: tuple[str, ...] = ("served",)
    faults: list[Fault] = field(default_factory=list)
    pause: float = 0.0  # before every piece
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    broken_off: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _handlers: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def plans(self) -> list[dict[str, Any]]:
        """The requests of an engine that is up: probes do not stream."""
        return [body for body in self.asked if body.get("stream")]

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.gather(*self._handlers, return_exceptions=True)
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        handler: Any = asyncio.current_task()
        self._handlers.add(handler)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.headers.append(head)
                await self._answer(head, await reader.readexactly(_length(head)), writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(self, head: str, content: bytes, writer: asyncio.StreamWriter) -> None:
        if head.startswith("GET /v1/models "):
            return _send(writer, {"data": [{"id": name} for name in self.models]})
        body = json.loads(content)
        self.asked.append(body)
        if self.faults and body.get("stream"):
            return await self.faults.pop(0)(writer)
        if isinstance(body["prompt"], list) and not self.takes_token_ids:
            return _send(writer, {"error": "prompt must be a string"}, "400 Bad Request")
        text = self._said(body)
        if not body.get("stream"):
            usage = {"prompt_tokens": self._counted(body["prompt"])}
            return _send(writer, {"choices": [{"text": text, "finish_reason": "stop"}], "usage": usage})
        return await self._stream(text, writer)

    async def _stream(self, text: str, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        try:
            for word in text.split(" ")[1:]:
                await asyncio.sleep(self.pause)
                send_event(writer, json.dumps({"choices": [{"text": f" {word}", "finish_reason": None}]}))
                await writer.drain()
                if writer.is_closing():
                    raise ConnectionResetError
        except ConnectionError:
            self.broken_off += 1
            raise
        send_event(writer, json.dumps({"choices": [{"text": "", "finish_reason": self.finish}]}))
        send_event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")

    def _said(self, body: dict[str, Any]) -> str:
        held = body.get(self.grammar_field)
        if self.lawful_text is None or held is None:
            return self.text
        grammar = held["grammar"] if isinstance(held, dict) else held
        is_probe = "\n" not in grammar
        return json.loads(grammar.removeprefix("start: ")) if is_probe else self.lawful_text  # type: ignore[no-any-return]

    def _counted(self, prompt: list[int] | str) -> int:
        if isinstance(prompt, list):
            return len(prompt)
        return len(self.tokenizer.encode(prompt, add_special_tokens=False).ids) + self.adds_bos


@asynccontextmanager
async def running(server: FakeCompletions) -> AsyncIterator[FakeCompletions]:
    """Run the server during the block."""
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def _length(head: str) -> int:
    fields = dict(line.split(":", 1) for line in head.lower().splitlines() if ":" in line)
    return int(fields.get("content-length", 0))


def _send(writer: asyncio.StreamWriter, content: object, status: str = "200 OK") -> None:
    payload = json.dumps(content).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
    writer.write(head.encode() + payload)


def send_event(writer: asyncio.StreamWriter, data: str) -> None:
    line = f"data: {data}\n\n".encode()
    writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")


async def internal_error(writer: asyncio.StreamWriter) -> None:
    _send(writer, {"error": "the prompt was: secret"}, "500 Internal Server Error")


async def garbage(writer: asyncio.StreamWriter) -> None:
    payload = b"<html>\xff\xfe not what you wanted</html>"
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
    writer.write(head.encode() + payload)


async def broken_event(writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM)
    send_event(writer, '{"choices": [{"text": 7}]}')


async def disconnect(writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM)
    send_event(writer, json.dumps({"choices": [{"text": " find", "finish_reason": None}]}))
    await writer.drain()
    writer.transport.abort()


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM)
    for _ in range(40):
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        await writer.drain()


async def no_http(writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
