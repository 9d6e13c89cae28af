"""The HEALTHCHECK: exit code 0 when the service in this container would answer a plan now."""

import http.client
import os
import sys

_SECONDS = 4.0
_EVERY_ADDRESS = {"", "0.0.0.0", "::"}


def main() -> int:
    """Ask /readyz; return 1, with the reason on standard error, when not ready."""
    host = os.environ.get("PEAKPLAN_HOST") or os.environ.get("HOST") or ""
    port = int(os.environ.get("PEAKPLAN_PORT") or os.environ.get("PORT") or 8080)
    connection = http.client.HTTPConnection("127.0.0.1" if host in _EVERY_ADDRESS else host, port, timeout=_SECONDS)
    try:
        connection.request("GET", "/readyz")
        with connection.getresponse() as answer:
            if answer.status == http.client.OK:
                return 0
            reason = answer.read(500).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        reason = str(error)
    finally:
        connection.close()
    print(f"not ready: {reason}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
