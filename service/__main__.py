"""`python -m service`: serve plans until told to stop."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Iterator

import uvicorn
from pydantic import ValidationError

from service.api.app import create_app, replica_pool, wire
from service.api.readiness import Readiness
from service.engines.protocol import EngineError
from service.settings import Settings
from service.telemetry.logs import configure_logging

logger = logging.getLogger("service")

# Longer than a load balancer keeps an idle connection (60 s on AWS), so that it is never we who close one under it.
_KEEP_ALIVE_SECONDS = 75


def main() -> int:
    """Exit code 0 after a stop that was asked for; 1, with one line on standard error, when it cannot serve."""
    try:
        settings = Settings()
    except ValidationError as error:
        return _fail("; ".join(_setting_problem(item["loc"], item["msg"]) for item in error.errors()))
    configure_logging(settings.log_level)
    try:
        with bind(settings.host, settings.port) as listener:
            asyncio.run(serve(settings, listener))
    except OSError as error:
        return _fail(f"{settings.host}:{settings.port}: {error.strerror}. PORT= and HOST= choose another address")
    except EngineError as error:
        return _fail(str(error))
    except KeyboardInterrupt:  # while starting; a running server stops in an orderly way
        return 130
    return 0


async def serve(settings: Settings, listener: socket.socket) -> None:
    """Start the replicas, then answer on `listener` until SIGTERM or SIGINT. Raises EngineError, OSError."""
    pool = replica_pool(settings)
    services = wire(pool, settings)
    await pool.start()
    try:
        config = uvicorn.Config(
            create_app(services, settings),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=settings.shutdown_seconds,
        )
        await Server(config, services.readiness, settings.drain_seconds).serve(sockets=[listener])
    finally:
        await pool.close()
    logger.info("stopped")


class Server(uvicorn.Server):
    """Uvicorn, which on the first signal says it is not ready, serves on for `drain_seconds`, and lets requests finish.

    A second signal ends the drain. Uvicorn's own handlers would raise the signal again at the end: no orderly exit.
    """

    def __init__(self, config: uvicorn.Config, readiness: Readiness, drain_seconds: float) -> None:
        super().__init__(config)
        self._readiness = readiness
        self._drain_seconds = drain_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            host, port = listener.getsockname()[:2]
            logger.info("ready", extra={"url": f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"})

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        logger.info("stopping", extra={"drain_seconds": self._drain_seconds})
        patience = 0.0 if self._readiness.draining else self._drain_seconds
        self._readiness.draining = True
        asyncio.get_running_loop().call_later(patience, setattr, self, "should_exit", True)


def bind(host: str, port: int) -> socket.socket:
    """A socket that has the address but does not listen yet: nobody may connect before a model is there to answer."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def _setting_problem(path: tuple[int | str, ...], message: str) -> str:
    return " ".join([*map(str, path), message.removeprefix("Value error, ")])


def _fail(reason: str) -> int:
    print(f"peakplan cannot start: {reason}.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
