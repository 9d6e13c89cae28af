"""The day's parts with a driver of the tests' own in place of NxDI's; no device is near."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import neuron_day
from benchmarks.neuron_day import Day
from infra.fleet.settings import FLEETS, FleetSettings
from service.engines.protocol import GenerationRequest
from tests.engines.neuron.test_compiled import ANY_TEXT, PACKAGES, FakeDriver

PLANS: dict[str, Any] = {
    "autoregressive": {"mean_ms": 14.5, "p99_ms": 41.0},
    "medusa": {"mean_ms": 9.25, "p99_ms": 30.5},
    "faster": "medusa",
}


@pytest.fixture
def day(tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Day:
    asked = [GenerationRequest(prompt=" red shoes", grammar=ANY_TEXT), GenerationRequest(prompt=" a", grammar=ANY_TEXT)]
    monkeypatch.setattr(neuron_day, "requests", lambda _model, count: asked[:count])
    monkeypatch.setattr(neuron_day, "STEPS", 3)
    monkeypatch.setattr(neuron_day, "WARM_UP_STEPS", 1)
    return Day(tiny_model_dir, tmp_path, tmp_path, "trn1", 2, FakeDriver(), lambda: PACKAGES)


def test_without_the_sdk_it_says_where_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert neuron_day.main([]) == 2
    assert "neuronx-cc is not installed" in capsys.readouterr().err


def test_every_part_is_tried_in_order_and_one_that_fails_is_written_down(
    day: Day, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_service(_day: Day, engine: str) -> dict[str, Any]:
        raise RuntimeError(f"{engine}: nrt_init failed")

    monkeypatch.setattr(neuron_day, "boot", no_service)

    found = neuron_day.run(day, sequence_length=1100)

    assert [name for name in found if name not in ("command", "chip", "machine")] == [
        "compile", "order", "steps", "plans", "triton", "boot",
    ]  # fmt: skip
    assert set(found["compile"]) == set(found["steps"]) == {
        "tree rows, batch 1", "32 rows, batch 1", "48 rows, batch 1", "tree rows, batch 4", "tree rows, batch 8",
    }  # fmt: skip
    assert found["order"]["medusa_is_greedy"] == found["order"]["questions"] == 2
    assert found["steps"]["48 rows, batch 1"]["rows"] == 48
    assert found["plans"]["medusa"]["forwards"] < found["plans"]["autoregressive"]["forwards"]
    assert found["plans"]["faster"] in ("autoregressive", "medusa")
    assert found["triton"] == {"failed": "RuntimeError: triton: nrt_init failed"}
    json.dumps(found)


def test_what_was_compiled_is_for_the_chip_and_is_not_compiled_again(day: Day) -> None:
    driver = day.driver
    assert isinstance(driver, FakeDriver)
    for _ in range(2):
        neuron_day.compile_graphs(day, 1100)
    assert len(driver.compiled) == 5
    assert {arguments["target"] for arguments in driver.compiled} == {"trn1"}


@pytest.mark.parametrize("name", ["dev", "prime-day"])
def test_a_fleet_file_takes_the_measured_time_and_the_faster_strategy_and_keeps_its_comments(name: str) -> None:
    text = (FLEETS / f"{name}.yaml").read_text(encoding="utf-8")

    written = neuron_day.fleet_text(text, PLANS, "measured: make neuron-day on an inf2")
    again = neuron_day.fleet_text(written, PLANS | {"faster": "autoregressive"}, "measured: make neuron-day again")

    model = FleetSettings.model_validate(yaml.safe_load(written)).model
    assert (model.service_time.mean_ms, model.service_time.p99_ms, model.strategy) == (9.25, 30.5, "medusa")
    assert model.service_time.is_measured
    assert [line for line in text.splitlines() if "#" in line] == [line for line in written.splitlines() if "#" in line]
    assert yaml.safe_load(again)["model"]["strategy"] == "autoregressive"
    assert again.count("strategy:") == 1
