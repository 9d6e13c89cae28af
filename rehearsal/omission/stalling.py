"""A server that answers at once, except that it freezes as a whole, again and again: `python -m ... EVERY STALL`.

It prints its port. EVERY and STALL are seconds: what is sent while it is frozen is answered when it goes on.
"""

from __future__ import annotations

import asyncio
import sys
import time

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
_END_OF_HEAD = b"\r\n\r\n"


class Answering(asyncio.Protocol):
    """One connection: each whole request is answered with the same few bytes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._buffer = transport, b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(_END_OF_HEAD)) >= 0:
            head = self._buffer[:end].lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            whole = end + len(_END_OF_HEAD) + length
            if len(self._buffer) < whole:
                return
            self._buffer = self._buffer[whole:]
            self._transport.write(_ANSWER)


async def serve(every: float, stall: float) -> None:
    """Serve for ever, frozen for `stall` of every `every` seconds."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Answering, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    at = time.monotonic() - every / 2  # so that a load of whole periods that begins now has whole stalls
    while True:
        at += every
        await asyncio.sleep(at - time.monotonic())
        time.sleep(max(at + stall - time.monotonic(), 0.0))  # the loop itself: nobody is read, nobody answered


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]), float(sys.argv[2])))
