"""Which heads of HTTP requests are refused: for their size, or because two readers could read them differently."""

import re
from collections.abc import Iterable

_LONGEST_LENGTH = 18  # digits of a Content-Length
_LENGTH = re.compile(rb"[0-9]{1,%d}" % _LONGEST_LENGTH)
_HOST = re.compile(rb"[\w.:%~\[\]-]*")  # a name or an address, and a port
_AUTHORITY = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")  # of a target that is a whole address


def objection_to_head(
    version: str, url: bytes, headers: Iterable[tuple[bytes, bytes]], max_header_bytes: int, max_body_bytes: int
) -> tuple[int, str] | None:
    """Return status and words for a head that is refused, else None; the names of `headers` are in lower case."""
    size, length = len(url), b"0"
    hosts: list[bytes] = []
    codings: list[bytes] = []
    for name, value in headers:
        size += len(name) + len(value)
        if name == b"host":
            hosts.append(value)
        elif name == b"content-length":
            length = value.strip()
        elif name == b"transfer-encoding":
            codings.append(value.lower())
    if size > max_header_bytes:
        return 431, f"The request's head has more than {max_header_bytes} bytes."
    if version not in ("1.1", "1.0"):  # the parser takes 0.9 and 2.0, too
        return 400, "This is no HTTP/1.1."
    if codings and (codings != [b"chunked"] or version == "1.0"):  # proxies may read what follows in another way
        return 400, "A body comes as it is or chunked, in HTTP/1.1, and in no other coding."
    if (hosts or version == "1.1") and not (len(hosts) == 1 and _HOST.fullmatch(hosts[0])):
        return 400, "A request names its Host once."
    if (named := _AUTHORITY.match(url)) and [named[1].lower()] != [host.lower() for host in hosts]:
        return 400, "A request's address and its Host name the same host."
    if not _LENGTH.fullmatch(length):
        return 400, f"A Content-Length is a number of at most {_LONGEST_LENGTH} digits."
    if int(length) > max_body_bytes:
        return 413, f"The body is larger than {max_body_bytes} bytes."
    return None
