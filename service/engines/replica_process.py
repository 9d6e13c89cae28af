"""A replica's process: loads one model, then answers one request after another over the socket it was given.

Run by `replica.py` as `python -m service.engines.replica_process FD`. It knows the channel, not what a model is.
"""

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Protocol

from service.engines.frames import Cancel, Channel, Failure, Hello, ModelSource, Ready
from service.engines.protocol import GenerationRequest, GenerationResult, RequestRefusedError
from service.telemetry.logs import whereabouts

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Model(Protocol):
    """What a loader returns. `generate` asks `cancelled` before each forward pass and stops where it says so."""

    @property
    def id(self) -> str: ...

    def generate(self, request: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult: ...


def main() -> int:
    """Serve until the other end of the socket is gone."""
    # The server decides when a replica ends; Ctrl-C and `kill` reach the whole group, and in-flight work must finish.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as stream, contextlib.suppress(ConnectionError):
        channel = Channel(stream)
        hello = channel.receive()
        if isinstance(hello, Hello) and die_with_parent(hello.parent_pid):
            return _serve(channel, hello.source)
    return 1


def die_with_parent(parent_pid: int) -> bool:
    """Ask the kernel to kill this process when its parent dies, however that happens. False: it is dead already.

    The kernel means the parent's *thread* that started this process, so the server starts replicas from its main one.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent_pid


def _serve(channel: Channel, source: ModelSource) -> int:
    try:
        loader: Callable[..., Model] = resolve_name(source.loader)
        model = loader(**source.arguments)
    except Exception as error:
        channel.send(Failure(_one_line(error)))
        return 1
    gc.collect()
    gc.freeze()  # the model lives for good; collections in the middle of a request need not walk it
    channel.send(Ready(model.id))
    while (message := channel.receive()) is not None:
        if isinstance(message, GenerationRequest):
            channel.send(_answer(model, message, channel))
        elif not isinstance(message, Cancel):  # a Cancel here crossed the result that it was meant for
            raise TypeError(f"a replica is never sent a {type(message).__name__}")
    return 0


def _answer(model: Model, request: GenerationRequest, channel: Channel) -> GenerationResult | Failure:
    try:
        return model.generate(request, channel.interrupted)
    except RequestRefusedError as error:
        return Failure(str(error), refused=True)
    except Exception as error:
        return Failure(whereabouts(error))


def _one_line(error: Exception) -> str:
    """The error in words, on one line; our own errors need no class name before them."""
    words = " ".join(str(error).split())
    ours = type(error).__module__.startswith("service.")
    return words if ours and words else f"{type(error).__name__}: {words}"


if __name__ == "__main__":
    sys.exit(main())
