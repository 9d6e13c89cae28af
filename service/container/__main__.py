"""`python -m service.container`: the container's entry point."""

import logging
import sys

from pydantic import ValidationError

from service.container.supervisor import Process, Supervisor
from service.settings import Settings
from service.telemetry.logs import configure_logging

logger = logging.getLogger("service.container")

_MISSING_PROGRAM = 127  # as shells report it


def helpers() -> list[Process]:
    """Return the processes that the settings require beside the gateway, which itself reports invalid settings."""
    try:
        hosted_by_triton = Settings().engine == "triton"
    except ValidationError:
        return []
    return [Process("triton", [sys.executable, "-m", "service.engines.triton"])] if hosted_by_triton else []


def main() -> int:
    """Run until the gateway ends; return its exit code, or 127 when a program is missing."""
    configure_logging("info")
    try:
        return Supervisor(Process("gateway", [sys.executable, "-m", "service"]), helpers()).run()
    except OSError as error:
        logger.error("cannot start", extra={"reason": str(error)})
        return _MISSING_PROGRAM


if __name__ == "__main__":
    sys.exit(main())
