"""The model that Triton's python backend runs in a stub process: any `ModelSource`, one request at a time.

`wire.py` writes a model.py that imports `TritonPythonModel` from here. The methods' names and arguments are the
backend's: https://github.com/triton-inference-server/python_backend#usage.
"""

import contextlib
import faulthandler
import gc
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import triton_python_backend_utils as triton  # only inside a stub

from service.engines.protocol import RequestRefusedError
from service.engines.triton.wire import (
    ANSWER,
    QUESTION,
    REPLICA_FILE,
    Replica,
    decode_request,
    encode_info,
    encode_result,
)
from service.engines.worker.messages import ModelSource
from service.engines.worker.process import NICENESS, WorkerModel
from service.telemetry.logs import error_location

CANCEL_SECONDS = 0.03  # between two checks whether the request was cancelled
STUCK_SECONDS = 15.0  # without any Python thread running: longer than any forward, even on a busy machine


class TritonPythonModel:
    """One replica. Triton creates it, calls `initialize` once, then `execute` for each request."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model; its error message becomes that of Triton's load."""
        _die_with(os.getppid())
        replica = Replica.read(Path(args["model_repository"]) / args["model_version"] / REPLICA_FILE)
        os.nice(NICENESS)  # as in our own replica processes
        os.environ.update(replica.environment)  # before any model library is imported: the Neuron runtime reads it once
        self._source: ModelSource = resolve_name(replica.make_source)(**replica.arguments)
        self._model: WorkerModel = resolve_name(self._source.loader)(**self._source.arguments)
        gc.collect()
        gc.freeze()  # as in our own replica processes: the model is never freed
        _end_when_stuck(STUCK_SECONDS)  # started last: a loader may hold the GIL for minutes

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response for each request. Triton's default scheduler passes one at a time."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        try:
            answer = self._answer(request)
        except RequestRefusedError as error:
            return _error(str(error), triton.TritonError.INVALID_ARG)
        except Exception as error:  # the stub and its model stay alive
            return _error(error_location(error), triton.TritonError.UNKNOWN)
        return triton.InferenceResponse([triton.Tensor(ANSWER, np.frombuffer(answer, dtype=np.uint8))])

    def _answer(self, request: Any) -> bytes:
        question = decode_request(_bytes(triton.get_input_tensor_by_name(request, QUESTION)))
        if question is None:
            return encode_info(self._model.id, self._source.version)
        return encode_result(self._model.generate(question, _seldom(request.is_cancelled)))


def _die_with(server_pid: int) -> None:
    """End this process when Triton's ends, in whatever way: a stub that waits for a dead server waits forever.

    This is a thread and not the kernel's parent-death signal: that signal belongs to the parent's *thread* that started
    this process, and which of Triton's threads does so, and how long it lives, is up to Triton.
    """
    with contextlib.suppress(OSError):  # the server is dead already, which the stub notices while it loads
        descriptor = os.pidfd_open(server_pid)

        def wait() -> None:
            ended = select.poll()  # and not `select`, which takes no descriptor above 1023
            ended.register(descriptor, select.POLLIN)
            ended.poll()
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=wait, daemon=True).start()


def _end_when_stuck(seconds: float) -> None:
    """End this process when one thread has held the interpreter's lock (GIL) for that long.

    The stub holds the GIL while it waits for Triton to take an answer. If Triton dies first, neither `_die_with` nor
    the stub's own shutdown can acquire it, and the replica's cores would be held forever. The timer of faulthandler
    needs no lock: it is postponed as long as Python runs, and on expiry it prints every thread's stack and ends the
    process.
    """

    def put_off() -> None:
        while True:
            faulthandler.dump_traceback_later(seconds, exit=True)
            time.sleep(seconds / 5)

    threading.Thread(target=put_off, daemon=True).start()


def _seldom(is_cancelled: Callable[[], bool]) -> Callable[[], bool]:
    """Return `is_cancelled` limited to a few calls a second: each call is a round trip to Triton.

    Deadlines do not need it: they travel with the request.
    """
    due = time.monotonic() + CANCEL_SECONDS

    def ask() -> bool:
        nonlocal due
        if (now := time.monotonic()) < due:
            return False
        due = now + CANCEL_SECONDS
        return is_cancelled()

    return ask


def _bytes(tensor: Any) -> bytes:
    content: bytes = tensor.as_numpy().tobytes()
    if len(content) > 1 and content.count(content[:1]) == len(content):  # no JSON of ours is one letter over and over
        raise RequestRefusedError("this Triton's stubs were built for NumPy 1: put numpy<2 into their environment")
    return content


def _error(message: str, code: int) -> Any:
    return triton.InferenceResponse(error=triton.TritonError(message, code))
