"""Requests that share a model's forwards, and the thread beside it."""

import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from service.decoding.statistics import Statistics
from service.engines.batch import Batch, Outcome
from service.engines.protocol import GenerationRequest, GenerationResult
from service.engines.text_model import SideThread
from service.engines.torch_engine import TorchModel, build_forward
from service.weights.model_folder import load_model
from tests.tiny_model import QUESTIONS, plan_request


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> TorchModel:
    loaded = load_model(tiny_model_dir, tiny_model_dir)
    return TorchModel(loaded, build_forward(loaded, "float32", "torch"), 384, slots=3)


def run(batch: Batch[Any]) -> dict[Any, Outcome]:
    """Step until every request has ended."""
    ended: dict[Any, Outcome] = {}
    while len(batch):
        ended |= dict(batch.step())
    return ended


def test_more_requests_than_slots_have_the_answers_of_the_model_alone(model: TorchModel) -> None:
    requests = [
        plan_request(query, strategy=strategy) for query in QUESTIONS for strategy in ("medusa", "autoregressive")
    ]
    alone = [model.generate(request) for request in requests]
    batch = Batch[int](model)
    for number, request in enumerate(requests):
        batch.add(number, request)
    ended = dict(batch.step())
    assert batch.size == 3
    ended |= run(batch)
    for number, result in enumerate(alone):
        found = ended[number]
        assert isinstance(found, GenerationResult)
        assert (found.tokens, found.text, found.forwards) == (result.tokens, result.text, result.forwards)


def test_a_forward_that_fails_is_the_error_of_all_in_it(model: TorchModel, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch[int](model)
    batch.add(0, plan_request("red shoes"))
    batch.add(1, plan_request("blue shoes"))
    monkeypatch.setattr(model._llama, "forward_batch", lambda _: 1 / 0)

    assert {number: type(each) for number, each in run(batch).items()} == {0: ZeroDivisionError, 1: ZeroDivisionError}
    monkeypatch.undo()
    batch.add(2, plan_request("red shoes"))
    assert isinstance(run(batch)[2], GenerationResult)


@dataclass
class Device:
    """A model whose steps take 10 ms for each generation in them, and whose generations take five steps."""

    slots: int = 8
    now: float = 0.0

    def begin(self, request: GenerationRequest, cancelled: object, slot: int) -> "Planned":
        del request, cancelled, slot
        return Planned(self)

    def result(self, running: "Planned", seconds: float) -> Any:
        del running
        return seconds


@dataclass
class Planned:
    """A generation on it."""

    device: Device
    statistics: Statistics = field(default_factory=Statistics)

    def goes_on(self) -> bool:
        return self.statistics.forwards < 5

    def draft(self) -> None:
        self.statistics.forwards += 1
        self.device.now += 0.01


@pytest.mark.parametrize(("milliseconds", "largest"), [(40, 1), (60, 1), (120, 2), (170, 3), (1000, 8), (None, 8)])
def test_a_batch_grows_while_nearly_all_would_be_in_time(milliseconds: int | None, largest: int) -> None:
    device: Any = Device()
    batch = Batch[int](device, lambda: device.now)
    batch.add(0, GenerationRequest(prompt="", grammar=""))
    run(batch)  # now its pace is known

    deadline = None if milliseconds is None else device.now + milliseconds / 1000
    for number in range(20):
        batch.add(number, GenerationRequest(prompt="", grammar="", deadline=deadline))
    batch.step()

    assert batch.size == largest
    assert sorted(run(batch)) == list(range(20))


# A fork in a process of its own: pytest's has threads that are not ours.
FORK = """
import os, sys, threading
from service.engines.text_model import SideThread

side = SideThread()
assert side.submit(lambda: 1).result(10) == 1
if sys.argv[1] == "rested":
    side.rest()
    assert threading.active_count() == 1
child = os.fork()
if child == 0:
    os._exit(0 if side.submit(os.getpid).result(10) == os.getpid() else 1)
assert side.submit(lambda: 2).result(10) == 2
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_it_works_on_another_thread_hands_over_what_comes_of_it_rests_and_goes_on() -> None:
    side = SideThread()
    first = side.submit(threading.current_thread).result(10)
    assert first is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        side.submit(lambda: 1 // 0).result(10)
    side.rest()
    assert not first.is_alive()
    assert side.submit(lambda: "awake").result(10) == "awake"
    side.rest()


@pytest.mark.parametrize("before", ["rested", "working"])
def test_a_forked_process_has_its_own(before: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORK, before], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
