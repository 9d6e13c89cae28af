"""A server that answers every request at once and does nothing: what requests cost their sender alone."""

import asyncio
import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection

_ANSWER = b"HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = b"content-length:"


class _Nothing(asyncio.Protocol):
    """Answers each whole request of a keep-alive connection."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._rest += data
        while (end := self._rest.find(_END_OF_HEAD)) >= 0:
            head = self._rest[:end].lower()
            length = int(head.partition(_LENGTH)[2].partition(b"\r\n")[0] or 0)
            whole = end + len(_END_OF_HEAD) + length
            if len(self._rest) < whole:
                return
            self._rest = self._rest[whole:]
            self._transport.write(_ANSWER)


def _serve(port: Connection) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Nothing, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


@contextlib.contextmanager
def sink() -> Iterator[str]:
    """Run the server in a process of its own; yield its URL."""
    ours, its = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_serve, args=(its,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.kill()
        process.join()
