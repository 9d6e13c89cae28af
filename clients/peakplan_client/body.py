"""An answer's body as it arrives, never larger than its limit: also not once it is decompressed."""

import time
import zlib

import httpx

ENCODINGS = "gzip, deflate"  # what is asked for, and read
MOST_BYTES = 1 << 20
_EITHER = zlib.MAX_WBITS | 32  # zlib finds out which of the two it is


class Body:
    """Collects what a server sends. A few bytes that would unfold into many are given up before they do."""

    def __init__(self, headers: httpx.Headers, most_bytes: int) -> None:
        """Raise httpx.DecodingError for an encoding that nobody asked for."""
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", "deflate"):
            raise httpx.DecodingError("the answer is in an encoding that was not asked for")
        self._unfold = None if encoding == "identity" else zlib.decompressobj(_EITHER)
        self._most_bytes = most_bytes
        self._read = bytearray()

    def add(self, raw: bytes) -> None:
        """Take the next bytes of the network. Raises httpx.DecodingError, or httpx.ReadError past the limit."""
        room = self._most_bytes - len(self._read) + 1
        try:
            self._read += raw[:room] if self._unfold is None else self._unfold.decompress(raw, room)
        except zlib.error as error:
            raise httpx.DecodingError(f"the answer is no {ENCODINGS}") from error
        if len(self._read) > self._most_bytes:
            raise httpx.ReadError(f"the answer has more than {self._most_bytes} bytes")

    def whole(self) -> bytes:
        return bytes(self._read)


def read_body(response: httpx.Response, until: float) -> bytes:
    """Return a streamed response's body, which has to end `until` then on the monotonic clock.

    Raises httpx.RequestError.
    """
    if response.is_stream_consumed:  # the whole answer of a test's transport
        return response.content
    body = Body(response.headers, MOST_BYTES)
    for chunk in response.iter_raw():
        body.add(chunk)
        if time.monotonic() > until:
            raise httpx.ReadTimeout("the answer does not end")
    return body.whole()
