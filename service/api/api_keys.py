"""Who calls: by an API key, or as the load balancer in front of this host tells it, by certificate, token or address.

API keys are bearer tokens, stored only as SHA-256 digests, one line for each token.

    # name   SHA-256 of the token (64 hex digits)                                      requests a second (optional)
    search   9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08            200

Two lines of one name allow rotating a token: add the new one, move the callers, drop the old one. `python -m
service.api.api_keys NAME` makes a token of 256 random bits and its line. A plain digest suffices for such tokens: no
dictionary attack is possible.

Behind a load balancer every connection comes from the balancer, and behind PrivateLink not even the balancer knows the
caller's address. What it has verified names the caller there: the client certificate of mutual TLS, or the token whose
signature it checked. Nobody but the balancer may reach this host then (on AWS, the hosts' security group): whatever a
request says here is believed. A request that says it twice, or in a way that can be read in two ways, is refused.
"""

import base64
import binascii
import hashlib
import ipaddress
import json
import logging
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers

from service.settings.choices import CallerSource

logger = logging.getLogger(__name__)

_LINE = re.compile(r"^(?P<name>[A-Za-z0-9._-]{1,64})\s+(?P<digest>[0-9a-f]{64})(?:\s+(?P<rate>\d+(?:\.\d+)?))?$")
_LOOK_SECONDS = 1.0  # between two checks of the file
_MOST_CHARACTERS = 512


class ApiKeysError(ValueError):
    """Raised for a line of the token list that is invalid. It names the line's number but not its content."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a token. `rate` is requests per second; None means the general limit."""

    name: str
    rate: float | None = None


class ApiKeys:
    """Callers by their tokens' digests. A changed file is read again; one that is invalid or empty changes nothing.

    It is read once it has stayed the same between two checks: a file that is written in place is empty and then torn.
    """

    def __init__(self, lines: str, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the tokens. Raises ApiKeysError."""
        self._fixed = parse_tokens(lines, "PEAKPLAN_API_KEYS")
        self._required = bool(lines.strip()) or path is not None
        self._path = path
        self._clock = clock
        self._looked = clock()
        try:
            self._judged = self._seen = _stamp(path) if path else None
            self._read = parse_tokens(path.read_text(encoding="utf-8"), str(path)) if path else {}
        except OSError as error:
            raise ApiKeysError(f"PEAKPLAN_API_KEYS_FILE={path}: {error.strerror}") from error

    @property
    def required(self) -> bool:
        """Whether a token is required. A file without keys admits no caller."""
        return self._required

    def caller(self, authorization: str) -> Caller | None:
        """Return the caller of this Authorization header; None for an unknown one."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token or len(token) > _MOST_CHARACTERS:
            return None
        self._look()
        digest = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).hexdigest()
        return self._read.get(digest) or self._fixed.get(digest)

    def _look(self) -> None:
        if self._path is None or self._clock() - self._looked < _LOOK_SECONDS:
            return
        self._looked = self._clock()
        stamp = _stamp(self._path)
        is_settled, self._seen = stamp == self._seen, stamp
        if stamp == self._judged or not is_settled:
            return
        self._judged = stamp
        try:
            if not (lines := self._path.read_text(encoding="utf-8")).strip():
                raise ApiKeysError(f"{self._path} is empty; a comment (#) alone would lock all callers out")
            self._read = parse_tokens(lines, str(self._path))
            logger.info("tokens read again", extra={"count": len(self._read)})
        except (OSError, ValueError) as error:
            reason = str(error) if isinstance(error, ApiKeysError) else type(error).__name__
            logger.error("tokens not read: the old ones stay", extra={"reason": reason})


def parse_tokens(lines: str, source: str) -> dict[str, Caller]:
    """Return callers by digest, skipping empty lines and comments (#). Raises ApiKeysError."""
    callers: dict[str, Caller] = {}
    for number, line in enumerate(lines.splitlines(), 1):
        if not (words := line.strip()) or words.startswith("#"):
            continue
        match = _LINE.match(words)
        if match is None:
            raise ApiKeysError(
                f"{source}, line {number}: not a name, 64 hex digits and, if you like, a rate. "
                "python -m service.api.api_keys NAME makes such a line"
            )
        rate = None if match["rate"] is None else float(match["rate"])
        if rate == 0:
            raise ApiKeysError(
                f"{source}, line {number}: a rate of 0 admits nothing. Remove the line to lock the caller out, or the "
                "rate for the general one (PEAKPLAN_RATE)"
            )
        callers[match["digest"]] = Caller(match["name"], rate)
    return callers


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes when the file does, also when another file takes its name; None without a file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Application Load Balancer user guide, Mutual authentication with TLS: the subject's distinguished name, RFC 2253.
CERTIFICATE_HEADER = "x-amzn-mtls-clientcert-subject"
FORWARDED_HEADER = "x-forwarded-for"
_COMMON_NAME = frozenset({"cn", "2.5.4.3", "oid.2.5.4.3"})
# A name goes into logs and metrics as it is.
_NAME = re.compile(r"[A-Za-z0-9._:@|-]{1,128}")
# RFC 2253 also has quoted values; balancers write none, and readers disagree about them.
_ATTRIBUTE = re.compile(r'\s*([A-Za-z][A-Za-z0-9.-]*|\d+(?:\.\d+)*)\s*=((?:[^,;+"\\]|\\.)*)', re.DOTALL)
_SEPARATORS = ",;+"
_IPV6_PREFIX = 64  # bits of a network, which may use every address in it


class UnknownCallerError(ValueError):
    """Raised where a request does not say, once and clearly, who calls. The message is for the caller."""


class Callers:
    """Tells who calls, and how much it may send."""

    def __init__(
        self,
        source: CallerSource,
        claim: str = "sub",
        rates: Mapping[str, float] | None = None,
        networks: Sequence[tuple[str, Network]] = (),
    ) -> None:
        """Take the token's `claim` that names its owner, `rates` by name, and the networks that callers call from."""
        self._source, self._claim, self._rates, self._networks = source, claim, rates or {}, tuple(networks)

    @property
    def is_told(self) -> bool:
        """Whether the load balancer tells who calls; otherwise the connection does."""
        return self._source != "connection"

    def caller(self, headers: Headers) -> Caller:
        """Return who sends a request with these headers. Raises UnknownCallerError."""
        if self._source == "certificate":
            name = common_name(_only(headers, CERTIFICATE_HEADER))
        elif self._source == "token":
            name = claimed(_only(headers, "authorization"), self._claim)
        else:
            name = self._of_network(headers)
        return Caller(name, self._rates.get(name))

    def _of_network(self, headers: Headers) -> str:
        """Return the name of the newest hop's network, or the hop itself: earlier ones are the client's own words."""
        newest = ",".join(headers.getlist(FORWARDED_HEADER)).rpartition(",")[2].strip()
        try:
            address = ipaddress.ip_address(newest)
        except ValueError:
            raise UnknownCallerError("The load balancer's X-Forwarded-For ends with no address.") from None
        address = getattr(address, "ipv4_mapped", None) or address
        return next((name for name, network in self._networks if address in network), network_of(address))


def network_of(address: Address | None) -> str:
    """Return what counts as one caller: an address, or a network of IPv6."""
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address), _IPV6_PREFIX), strict=False))
    return str(address)


def common_name(subject: str) -> str:
    """Return the one common name (CN) of a distinguished name in RFC 2253's words. Raises UnknownCallerError."""
    names, position = [], 0
    while found := _ATTRIBUTE.match(subject, position):
        if found[1].lower() in _COMMON_NAME:
            names.append(found[2].strip())
        position = found.end() + 1
        if found.end() == len(subject):
            break
        if subject[found.end()] not in _SEPARATORS:
            found = None
            break
    if found is None or len(names) != 1 or not _NAME.fullmatch(names[0]):
        raise UnknownCallerError(
            "The certificate's subject must name its owner in one CN of letters, digits and . _ : @ | - alone."
        )
    return names[0]


def claimed(authorization: str, claim: str) -> str:
    """Return what a token, verified by the load balancer, claims its owner is. Raises UnknownCallerError."""
    scheme, _, token = authorization.partition(" ")
    parts = token.strip().split(".")
    try:
        if scheme.lower() != "bearer" or len(parts) != 3:
            raise ValueError
        content = json.loads(base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), altchars=b"-_", validate=True))
        name = content[claim] if isinstance(content, dict) else None
    except (ValueError, KeyError, RecursionError, binascii.Error):
        name = None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UnknownCallerError(f"The token must name its owner in the claim {claim!r}.")
    return name


def _only(headers: Headers, name: str) -> str:
    values = headers.getlist(name)
    if len(values) != 1:
        raise UnknownCallerError(f"The request must have the header {name} once; it has {len(values)}.")
    return values[0]


def main() -> int:
    """Print a new token and its line for the list."""
    if len(sys.argv) != 2 or not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", sys.argv[1]):
        print("usage: python -m service.api.api_keys NAME   (letters, digits, . _ -)", file=sys.stderr)
        return 2
    token = secrets.token_urlsafe(32)
    print(f"token for the caller, shown once:  {token}")
    print(f"line for the service:              {sys.argv[1]} {hashlib.sha256(token.encode()).hexdigest()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
