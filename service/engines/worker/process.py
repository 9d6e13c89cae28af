"""A replica's process: loads one model, then answers one request after another over the socket it was given.

Or it forks replicas that do so, each over a socket of its own that comes with the request (`ForkServer`), or serves
such sockets itself, in one batch. Run by `spawn.py` as `python -m service.engines.worker.process FD LOG_LEVEL`.
It knows the channel, not what a model is.
"""

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any, Protocol

from service.engines.protocol import GenerationRequest, GenerationResult, RequestRefusedError
from service.engines.worker.messages import Cancel, Channel, Failure, Forked, LoadModel, Message, ModelSource, Ready
from service.engines.worker.spawn import FORK_SERVER, REPLICA, take_name
from service.telemetry.logs import configure_logging, error_location

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_ADOPTION_SECONDS = 10.0  # milliseconds, as soon as the process between has ended
# The gateway has priority where both want a core: it needs it for a fraction of a millisecond, and requests whose
# turn has come wait for it.
NICENESS = 5


class WorkerModel(Protocol):
    """The interface of a loaded model. `generate` calls `cancelled` before each forward and stops where it is true."""

    @property
    def id(self) -> str: ...

    @property
    def kernel(self) -> str: ...

    def generate(self, request: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult: ...

    def watch(self, socket: int) -> None:
        """Stop a generation within a forward, too, where possible, once this descriptor has something to read."""


class ModelChangedError(RuntimeError):
    """Raised when what was loaded is not what the version stands for."""


def main() -> int:
    # The server decides when a replica ends; Ctrl-C and `kill` reach the whole group, and in-flight work must finish.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    configure_logging(sys.argv[2])
    with socket.socket(fileno=int(sys.argv[1])) as stream, contextlib.suppress(ConnectionError):
        channel = Channel(stream)
        order = channel.receive()
        if isinstance(order, LoadModel) and die_with_parent(order.parent_pid):
            take_name(FORK_SERVER if order.forks and order.source.slots == 1 else REPLICA)
            os.nice(NICENESS)
            model = _load(channel, order.source)
            if model is not None and order.source.slots > 1:
                return _serve_slots(stream, channel, model)
            if model is not None and order.forks:
                return _fork_on_demand(stream, channel, model)
            if model is not None:
                return _serve(channel, model)
    return 1


def die_with_parent(parent_pid: int) -> bool:
    """Ask the kernel to kill this process when its parent dies; return False if it is already dead.

    The kernel means the parent's *thread* that started this process, so the server starts replicas from its main one;
    orphans, too, are adopted by it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent_pid


def _load(channel: Channel, source: ModelSource) -> WorkerModel | None:
    """Load the model and report it; on failure report why and return None."""
    try:
        loader: Callable[..., WorkerModel] = resolve_name(source.loader)
        model = loader(**source.arguments)
        if source.check and (found := resolve_name(source.check)(**source.arguments)) != source.version:
            raise ModelChangedError(
                f"the model's files have changed since version {source.version} was read, and are now {found}: "
                "a reload serves them"
            )
    except Exception as error:
        channel.send(Failure(_one_line(error)))
        return None
    gc.collect()
    gc.freeze()  # the model is never freed; garbage collections during a request need not traverse it
    channel.send(Ready(model.id, model.kernel))
    return model


def _fork_on_demand(stream: socket.socket, channel: Channel, model: WorkerModel) -> int:
    """Fork one replica for each descriptor that arrives, which is its socket.

    It is forked twice: the orphan becomes the server's child, and so it outlives this process but not the server.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps ended children by itself
    server = os.getppid()
    while (order := socket.recv_fds(stream, 1, 1))[0]:
        (descriptor,) = order[1]
        told, tell = os.pipe()
        with socket.socket(fileno=descriptor) as theirs:
            if os.fork() == 0:
                take_name(REPLICA)
                if replica := os.fork():
                    os.write(tell, str(replica).encode())
                    os._exit(0)
                for ours in (told, tell):
                    os.close(ours)
                stream.close()
                os._exit(_serve_forked(theirs, model, server))
        os.close(tell)
        pid = os.read(told, 32)
        os.close(told)
        channel.send(Forked(int(pid or 0)))  # 0, which is no process, where the go-between was killed before it told
    return 0


def _serve_forked(stream: socket.socket, model: WorkerModel, server_pid: int) -> int:
    with contextlib.suppress(ConnectionError):
        channel = Channel(stream)
        end = time.monotonic() + _ADOPTION_SECONDS
        while os.getppid() != server_pid and time.monotonic() < end:
            select.select((), (), (), 0.001)  # libfaketime, which moves a rehearsed host's clock, breaks time.sleep
        if die_with_parent(server_pid) and isinstance(channel.receive(), LoadModel):
            channel.send(Ready(model.id, model.kernel))
            return _serve(channel, model)
    return 1


def _serve_slots(stream: socket.socket, channel: Channel, model: Any) -> int:
    """Serve every socket whose descriptor arrives, each with one request at a time, all in one batch (`batch.py`).

    What arrives on a socket while its request runs, or its end, cancels the request, as with a replica of its own.
    """
    from service.engines.batch import Batch

    batch, idle = Batch[Channel](model), list[Channel]()
    while True:
        wait = 0 if len(batch) or any(place.interrupted() for place in idle) else None
        ready = select.poll()  # and not `select`, which takes no descriptor above 1023
        ready.register(stream, select.POLLIN)
        for place in idle:
            ready.register(place, select.POLLIN)
        if any(descriptor == stream.fileno() for descriptor, _ in ready.poll(wait)):
            descriptors = socket.recv_fds(stream, 1, 1)[1]
            if not descriptors:
                return 0
            idle.append(Channel(socket.socket(fileno=descriptors[0])))
            channel.send(Forked(os.getpid()))
        for place in [place for place in idle if place.interrupted()]:
            message = _received(place)
            if message is None or isinstance(message, GenerationRequest):
                idle.remove(place)
            if isinstance(message, GenerationRequest):
                batch.add(place, message, place.interrupted)
            elif isinstance(message, LoadModel):
                place.send(Ready(model.id, model.kernel))
        for place, outcome in batch.step():
            idle.append(place)
            with contextlib.suppress(ConnectionError):  # it has left, and its end is read next
                place.send(_failure(outcome) if isinstance(outcome, Exception) else outcome)


def _received(place: Channel) -> Message | None:
    """Return the next message; None once the other end is gone, however it went."""
    try:
        return place.receive()
    except ConnectionError:
        return None


def _serve(channel: Channel, model: WorkerModel) -> int:
    model.watch(channel.fileno())
    while (message := channel.receive()) is not None:
        if isinstance(message, GenerationRequest):
            channel.send(_answer(model, message, channel))
        elif not isinstance(message, Cancel):  # such a Cancel has crossed the result that it was meant for
            raise TypeError(f"a replica is never sent a {type(message).__name__}")
    return 0


def _answer(model: WorkerModel, request: GenerationRequest, channel: Channel) -> GenerationResult | Failure:
    try:
        return model.generate(request, channel.interrupted)
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> Failure:
    return (
        Failure(str(error), refused=True) if isinstance(error, RequestRefusedError) else Failure(error_location(error))
    )


def _one_line(error: Exception) -> str:
    """Return the error as one line; our own errors need no class name before them."""
    words = " ".join(str(error).split())
    ours = type(error).__module__.startswith("service.")
    return words if ours and words else f"{type(error).__name__}: {words}"


if __name__ == "__main__":
    sys.exit(main())
