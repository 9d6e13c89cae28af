"""A host's password for ElastiCache: a short-lived token that its instance role signs, so that no secret is stored.

Source: Amazon ElastiCache user guide, Authenticating with IAM. The token is a presigned request without its scheme,
valid for 15 minutes; a connection lasts up to 12 hours with it. Not run in a real account.
"""

import asyncio

import botocore.session
from botocore.exceptions import BotoCoreError, NoCredentialsError
from botocore.model import ServiceId
from botocore.session import Session
from botocore.signers import RequestSigner
from redis.credentials import CredentialProvider

_VALID_SECONDS = 900


class ElastiCacheTokens(CredentialProvider):
    """Signs a new token for every connection."""

    def __init__(self, user: str, cache: str, region: str, session: Session | None = None) -> None:
        """Take the ElastiCache user and the replication group's id; `session` finds the keys of the instance's role."""
        self._user, self._cache, self._region = user, cache.lower(), region
        self._session = session or botocore.session.get_session()

    def get_credentials(self) -> tuple[str, str]:
        """Return user and token. Raises OSError where the instance has no role."""
        try:
            return self._user, self._token()
        except BotoCoreError as error:
            raise OSError(f"no token for ElastiCache: {error}") from None

    async def get_credentials_async(self) -> tuple[str, str]:
        """Return user and token, without blocking the event loop while the metadata service answers."""
        return await asyncio.to_thread(self.get_credentials)

    def _token(self) -> str:
        if (keys := self._session.get_credentials()) is None:
            raise NoCredentialsError
        signer = RequestSigner(
            ServiceId("elasticache"),
            self._region,
            "elasticache",
            "v4",
            keys,
            self._session.get_component("event_emitter"),
        )
        url = f"https://{self._cache}/?Action=connect&User={self._user}"
        request = {"method": "GET", "url": url, "body": {}, "headers": {}, "context": {}}
        signed: str = signer.generate_presigned_url(
            request, "connect", expires_in=_VALID_SECONDS, region_name=self._region
        )
        return signed.removeprefix("https://")
