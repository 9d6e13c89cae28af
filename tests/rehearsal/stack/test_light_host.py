"""A light host's replicas take the recorded times, prompt by prompt, and stop where a model would."""

import time
from pathlib import Path

import pytest

from rehearsal.stack.recorded_model import RecordedModel, RecordedTimes
from service.engines.protocol import GenerationRequest


def _prompts(characters: int) -> list[str]:
    return [f"{number:0{characters}d}" for number in range(2000)]


def test_times_are_those_of_the_figure_by_length_of_the_prompt() -> None:
    times = RecordedTimes.read()

    for prompts, quantiles in ((_prompts(10), times.quantiles[0]), (_prompts(200), times.quantiles[-1])):
        drawn = [times.seconds(prompt) for prompt in prompts]
        assert set(drawn) <= set(quantiles)
        assert sum(drawn) / len(drawn) == pytest.approx(sum(quantiles) / len(quantiles), rel=0.05)
    assert times.quantiles[0] < times.quantiles[-1]


def test_a_prompt_takes_the_same_time_again_and_twice_as_long_at_twice_the_times() -> None:
    once, twice = RecordedTimes.read(), RecordedTimes.read(times=2)

    assert once.seconds("red shoes") == once.seconds("red shoes")
    assert twice.seconds("red shoes") == pytest.approx(2 * once.seconds("red shoes"))


def test_a_plan_ends_at_its_time_and_none_at_the_deadline(tmp_path: Path) -> None:
    model = RecordedModel(RecordedTimes((), ((0.01,),), "a test"), tmp_path / "slowdown")
    whole = model.generate(GenerationRequest(prompt="red shoes", grammar=""), lambda: False)
    (tmp_path / "slowdown").write_text("1000", encoding="ascii")
    request = GenerationRequest(prompt="red shoes", grammar="", deadline=time.monotonic() + 0.02)
    late = model.generate(request, lambda: False)
    cancelled = model.generate(GenerationRequest(prompt="red shoes", grammar=""), lambda: True)

    assert (whole.text, whole.stop_reason) == (" find Any", "finished")
    assert whole.seconds >= 0.01
    assert [(each.text, each.stop_reason) for each in (late, cancelled)] == [("", "cancelled")] * 2
