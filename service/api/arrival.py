"""Since when a request is here: before the event loop reads it, it may have waited in the kernel for a long time."""

import asyncio
import socket
import struct
import sys

_TCP_INFO = struct.Struct("52xI")  # as far as tcpi_last_data_recv: milliseconds since data came last


def waited_seconds(transport: asyncio.BaseTransport) -> float:
    """Return for how long what has just been read lay there, also while nobody had accepted its connection.

    0 where the system does not tell: only Linux does, and only of TCP.
    """
    connection = transport.get_extra_info("socket")
    if sys.platform != "linux" or connection is None:
        return 0.0
    try:
        told: bytes = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    except (OSError, ValueError):  # no TCP, or closed by now
        return 0.0
    return float(_TCP_INFO.unpack(told)[0]) / 1000 if len(told) == _TCP_INFO.size else 0.0
