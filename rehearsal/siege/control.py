"""A server that answers whatever comes at once and does nothing else: what an attack costs whoever shares its cores.

Attackers beside a service take part of its processors. The same attackers at the same rate against this server take
the same part, and nothing of the service: what is slower then is the machine's doing, and the rest is the service's.
"""

import asyncio
import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection

import uvloop

_BACKLOG = 2048  # as uvicorn's
_BODY = b'{"status": "alive"}'
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
_PATIENCE = 60.0  # seconds, for a process to start


class _AnswersAll(asyncio.Protocol):
    """Answers each head that has come, or anything that comes alone."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(_ANSWER * max(data.count(b"\r\n\r\n"), 1))


@contextlib.contextmanager
def control_server() -> Iterator[int]:
    """Run the server in a process of its own, and yield its port."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    try:
        if not ours.poll(_PATIENCE):
            raise TimeoutError(f"the control's server did not start within {_PATIENCE:g} s")
        yield int(ours.recv())
    finally:
        process.kill()
        process.join()


def serve(told: Connection) -> None:
    """Serve for ever, and tell the port first."""

    async def answer_all() -> None:
        server = await asyncio.get_running_loop().create_server(_AnswersAll, "127.0.0.1", 0, backlog=_BACKLOG)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(answer_all())
