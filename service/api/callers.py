"""Who calls, as the load balancer in front of this host tells it: by certificate, by token, or by address.

Behind a load balancer every connection comes from the balancer, and behind PrivateLink not even the balancer knows the
caller's address. What it has verified names the caller there: the client certificate of mutual TLS, or the token whose
signature it checked. Nobody but the balancer may reach this host then (on AWS, the hosts' security group): whatever a
request says here is believed. A request that says it twice, or in a way that can be read in two ways, is refused.
"""

import base64
import binascii
import ipaddress
import json
import re
from collections.abc import Mapping, Sequence

from starlette.datastructures import Headers

from service.api.api_keys import Caller
from service.settings.choices import CallerSource

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
