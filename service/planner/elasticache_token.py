"""A host's password for ElastiCache: a short-lived token that its instance role signs, so that no secret is stored.

Source: Amazon ElastiCache user guide, Authenticating with IAM. The token is a presigned request (AWS Signature Version
4) without its scheme, valid for 15 minutes; a connection lasts up to 12 hours with it. Not run in a real account: tests
compare it with botocore's own signature.
"""

import asyncio
import hashlib
import hmac
import json
import os
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from redis.credentials import CredentialProvider

METADATA = os.environ.get("PEAKPLAN_METADATA_URL", "http://169.254.169.254")
_ROLE = "latest/meta-data/iam/security-credentials/"
_VALID_SECONDS = 900
_METADATA_SECONDS = 1.0
_NOTHING = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class RoleKeys:
    """The temporary keys of an instance role."""

    access_key: str
    secret_key: str
    session_token: str


class ElastiCacheTokens(CredentialProvider):
    """Signs a new token for every connection."""

    def __init__(
        self,
        user: str,
        cache: str,
        region: str,
        keys: Callable[[], RoleKeys] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Take the ElastiCache user and the replication group's id; `keys` are those of the instance's role."""
        self._user, self._cache, self._region = user, cache.lower(), region
        self._keys = keys or role_keys
        self._clock = clock

    def get_credentials(self) -> tuple[str, str]:
        """Return user and token. Raises OSError, ValueError where the instance has no role."""
        return self._user, signed_token(self._user, self._cache, self._region, self._keys(), self._clock())

    async def get_credentials_async(self) -> tuple[str, str]:
        """Return user and token, without keeping the event loop waiting for the metadata service."""
        return await asyncio.to_thread(self.get_credentials)


def signed_token(user: str, cache: str, region: str, keys: RoleKeys, now: datetime) -> str:
    """Return the token with which `user` may connect to `cache` from `now` on."""
    day, moment = f"{now:%Y%m%d}", f"{now:%Y%m%dT%H%M%SZ}"
    scope = f"{day}/{region}/elasticache/aws4_request"
    asked = {
        "Action": "connect",
        "User": user,
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{keys.access_key}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(_VALID_SECONDS),
        "X-Amz-Security-Token": keys.session_token,
        "X-Amz-SignedHeaders": "host",
    }
    query = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in sorted(asked.items()))
    request = f"GET\n/\n{query}\nhost:{cache}\n\nhost\n{_NOTHING}"
    signed = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return f"{cache}/?{query}&X-Amz-Signature={hmac.new(key, signed.encode(), 'sha256').hexdigest()}"


def role_keys() -> RoleKeys:
    """Return the keys of this instance's role, from its metadata service (IMDSv2). Raises OSError, ValueError."""
    asks = urllib.request.Request(
        f"{METADATA}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    )
    with urllib.request.urlopen(asks, timeout=_METADATA_SECONDS) as answer:
        token = answer.read().decode()
    role = _metadata(_ROLE, token).splitlines()
    if not role:
        raise ValueError("this instance has no role")
    content = json.loads(_metadata(_ROLE + role[0], token))
    try:
        return RoleKeys(content["AccessKeyId"], content["SecretAccessKey"], content["Token"])
    except (KeyError, TypeError):
        raise ValueError("the instance's role has no keys") from None


def _metadata(path: str, token: str) -> str:
    asks = urllib.request.Request(f"{METADATA}/{path}", headers={"X-aws-ec2-metadata-token": token})
    with urllib.request.urlopen(asks, timeout=_METADATA_SECONDS) as answer:
        return str(answer.read().decode())
