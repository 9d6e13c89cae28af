"""Models for replica processes that need no weights: named by `ModelSource.loader`, made inside the child."""

import contextlib
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from service.engines.protocol import GenerationRequest, GenerationResult, RequestRefusedError, TraceStep
from service.engines.worker.messages import ModelSource

VALID_FOR_EVERY_QUESTION = " find Any"


def fake_source(name: str = "prompt_answer", **arguments: object) -> ModelSource:
    return ModelSource(f"tests.fake_models:{name}", arguments)


def versioned_source(path: str) -> ModelSource:
    """Return a model that answers with the file's content, which is also its version."""
    text = Path(path).read_text(encoding="utf-8")
    return ModelSource("tests.fake_models:fixed_answer", {"text": text}, version=text)


def answer_of_file(path: str) -> "FakeModel":
    return FakeModel(Path(path).read_text(encoding="utf-8"))


def version_of(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def result(
    text: str = VALID_FOR_EVERY_QUESTION, *, seconds: float = 0.001, cancelled: bool = False
) -> GenerationResult:
    steps = [TraceStep(nodes=[], emitted=[text], milliseconds=1.0)]
    return GenerationResult(
        text=text,
        tokens=[1, 2],
        stop_reason="cancelled" if cancelled else "finished",
        prompt_tokens=3,
        plan_tokens=2,
        forwards=2,
        decisions=1,
        forced_tokens=1,
        seconds=seconds,
        accepted_per_step=[1, 1],
        steps=steps,
    )


@dataclass
class FakeModel:
    """A model with the same answer for every request after `seconds`, unless cancelled or past its deadline."""

    text: str = VALID_FOR_EVERY_QUESTION
    seconds: float = 0.0
    id: str = "fake"
    kernel: str = "fake"

    def watch(self, socket: int) -> None:
        """It asks `cancelled` often enough."""

    def generate(self, request: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult:
        started = time.monotonic()
        while time.monotonic() - started < self.seconds:
            if cancelled() or (request.deadline is not None and time.monotonic() > request.deadline):
                return result("", seconds=time.monotonic() - started, cancelled=True)
            select.select((), (), (), 0.002)  # time.sleep fails under libfaketime
        return result(self.text, seconds=max(time.monotonic() - started, 1e-6))


class PromptModel(FakeModel):
    """A model that does what the prompt says: dies, hangs, refuses, fails, sleeps, reports a variable; else answers."""

    def generate(self, request: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult:
        match request.prompt.split():
            case ["die"]:
                os.kill(os.getpid(), signal.SIGKILL)
            case ["hang", *seconds]:
                time.sleep(float(seconds[0]) if seconds else 60)
            case ["refuse"]:
                raise RequestRefusedError("no")
            case ["fail"]:
                raise ValueError("secret words of a shopper")
            case ["sleep", seconds]:
                return FakeModel(seconds=float(seconds)).generate(request, cancelled)
            case ["log", word]:
                logging.getLogger("fake").warning(word)
            case ["variable", name]:
                return result(os.environ.get(name, ""))
        return super().generate(request, cancelled)


def fixed_answer(text: str = VALID_FOR_EVERY_QUESTION, seconds: float = 0.0) -> FakeModel:
    return FakeModel(text, seconds)


def prompt_answer() -> FakeModel:
    return PromptModel()


def failing(reason: str) -> FakeModel:
    raise ValueError(reason)


def die_at_load() -> FakeModel:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def hang_at_load() -> FakeModel:
    time.sleep(60)
    raise AssertionError("unreachable")


class EchoModel(FakeModel):
    """A model that plans the question's first word as product type, so that an answer shows its question.

    A file "slow" or "corrupt" in the folder `faults` affects the one replica that finds it first, until its restart.
    """

    def __init__(self, seconds: float, faults: str) -> None:
        super().__init__(seconds=seconds)
        self._faults = Path(faults) if faults else None
        self._fault = ""

    def generate(self, request: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult:
        self._catch_fault()
        if self._fault == "corrupt":
            return result(" find Type no such words Any")
        seconds = self.seconds * (10 if self._fault == "slow" else 1)
        text = f" find Type {request.prompt.split()[0]} Any"
        return FakeModel(text, seconds).generate(request, cancelled)

    def _catch_fault(self) -> None:
        for fault in ("slow", "corrupt") if self._faults else ():
            with contextlib.suppress(FileNotFoundError):
                (self._faults or Path()).joinpath(fault).unlink()
                self._fault = fault


def echo(seconds: float = 0.0, faults: str = "") -> FakeModel:
    return EchoModel(seconds, faults)


def garbling() -> FakeModel:
    return Garbling()


class Garbling(FakeModel):
    """A model that answers with invalid bytes, as a replica with bad memory might."""

    def generate(self, request: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult:
        os.write(int(sys.argv[1]), b"\xff" * 64)
        return super().generate(request, cancelled)
