"""`python -m service`: serve plans until stopped by a signal."""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial

import uvicorn
import uvloop
from pydantic import ValidationError

from service.api.api_keys import ApiKeysError
from service.api.app import SHED_PATHS, create_app, replica_pool, wire
from service.api.observation import OUTCOMES_PATH
from service.api.outcome_log import OutcomeLogError
from service.api.overload import RequestFilter, StartLimit
from service.api.protocol import HttpProtocol
from service.api.services import Services
from service.engines.protocol import EngineError
from service.engines.worker.messages import ModelSource
from service.environment import problems_of, warnings_of
from service.settings import Settings
from service.telemetry.logs import cannot_start, configure_logging, give_up_unwritten

logger = logging.getLogger("service")

# Longer than a load balancer keeps an idle connection (60 s on AWS), so that we never close one that it still uses.
_KEEP_ALIVE_SECONDS = 75
# libuv accepts one connection for each listener and turn of the event loop (libuv#3696): one socket listens many times.
_LISTENERS = 16
_COLLECT_AFTER = 1_000  # number of new objects between collections; with 20,000 a siege met pauses of 140 ms
_FIRST_PROOF_SECONDS = 10.0  # then "ready" is said all the same, and /readyz says why not
_OTHER_DESCRIPTORS = 512  # besides connections: listeners, replicas, files, and health checks of a full host


def main(source: ModelSource | None = None) -> int:
    """Return 0 after a requested stop; 1, with one line on standard error, when it cannot serve.

    `source` replaces the settings' model.
    """
    configure_logging("info")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what it asks for, the newest model, is what a start loads
    try:
        settings = Settings()
    except ValidationError as error:
        return _fail(problems_of(error, Settings))
    configure_logging(settings.log_level)
    for warning in warnings_of(Settings, os.environ):
        logger.warning("setting", extra={"reason": warning})
    try:
        with bind(settings.host, settings.port) as listener:
            uvloop.run(serve(settings, listener, source))
    except OSError as error:
        return _fail(f"{settings.host}:{settings.port}: {error.strerror}. PORT= and HOST= choose another address")
    except (EngineError, ApiKeysError, OutcomeLogError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:  # during startup; a running server stops in an orderly way
        return 130
    give_up_unwritten()
    return 0


async def serve(settings: Settings, listener: socket.socket, source: ModelSource | None = None) -> None:
    """Start the replicas, then answer on `listener` until SIGTERM or SIGINT.

    `source` replaces the settings' model. Raises EngineError, ApiKeysError, OutcomeLogError, OSError.
    """
    pool = replica_pool(settings, source)
    services = wire(pool, settings, source)
    app = create_app(services, settings)
    await pool.start()
    services.start()
    _collect_little_by_little()
    try:
        config = uvicorn.Config(
            app,
            http=http_protocol(settings, services),
            loop="none",  # the event loop is already running
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # /drain trusts the caller's real connection
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=settings.shutdown_seconds,
        )
        await Server(config, services).serve(sockets=[listener, *(listener.dup() for _ in range(_LISTENERS - 1))])
    finally:
        await services.close()
    logger.info("stopped")


def http_protocol(settings: Settings, services: Services) -> type[HttpProtocol]:
    """Return the connection class with the limits of the settings."""
    http = settings.http
    return HttpProtocol.limited(
        http.max_header_bytes,
        http.header_timeout_seconds,
        max_body_bytes=http.max_body_bytes,
        body_timeout_seconds=http.body_timeout_seconds,
        max_connections=min(http.max_connections, descriptor_budget(http.max_connections)),
        on_refusal=staticmethod(services.observer.refused),
        behind=frozenset((OUTCOMES_PATH,)),
        start_limit=StartLimit(is_busy=lambda: not services.pool.idle),
        request_filter=RequestFilter(
            services.load_shedder, services.observer, services.drain, services.request_ids, SHED_PATHS
        ),
    )


def descriptor_budget(connections: int) -> int:
    """Allow this process descriptors for so many connections, if the system lets it; return for how many it does.

    Pipes, replicas and the shared cache need some, too, and so do the health checks of a host that is full.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_DESCRIPTORS
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_DESCRIPTORS, 16)


def _collect_little_by_little() -> None:
    """Collect garbage in small portions: the time that requests stand still for it grows with the portion.

    Frozen objects, all that were imported or loaded, are not scanned. Plans leave almost no cycles; connections do that
    break off, thousands a second under attack.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 10, 10)


class Server(uvicorn.Server):
    """Uvicorn with our signals: the first one drains and finishes requests, and SIGHUP rolls over to a new model.

    A second signal ends the drain. Uvicorn's own handlers would raise the signal again at the end, which is no orderly
    exit.
    """

    def __init__(self, config: uvicorn.Config, services: Services) -> None:
        super().__init__(config)
        self._drain = services.drain
        self._reloader = services.reloader
        self._readiness = services.readiness
        self._drain.on_stop(lambda: setattr(self, "should_exit", True))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await self._readiness.prove_once(_FIRST_PROOF_SECONDS)  # "ready" and /readyz say the same
        for host, port in dict.fromkeys(listener.getsockname()[:2] for listener in sockets or []):
            url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            logger.info("ready", extra={"url": url})
            if sys.stderr.isatty():
                print(f"\n  The page: {url}   Ctrl-C ends it.\n", file=sys.stderr)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and finish open requests, also on connections that wait to be accepted."""
        waiting = [connection for listener in sockets or [] for connection in _accepted(listener)]
        for server in self.servers:
            server.close()
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        new_protocol = partial(
            make,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        for connection in waiting:
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().connect_accepted_socket(new_protocol, connection)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGTERM: self._end, signal.SIGINT: self._end, signal.SIGHUP: self._reloader.request}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _end(self) -> None:
        if self._drain.draining:
            self._drain.end()
        else:
            self._drain.begin()


def _accepted(listener: socket.socket) -> Iterator[socket.socket]:
    with contextlib.suppress(OSError):  # none does
        while True:
            connection, _ = listener.accept()
            connection.setblocking(False)
            yield connection


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket that does not listen yet: clients connect once the model is ready."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def _fail(reason: str) -> int:
    cannot_start("peakplan", reason)
    return 1


if __name__ == "__main__":
    sys.exit(main())
