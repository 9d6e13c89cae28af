"""No host of processors is reckoned with more plans a second than its memory gives weights for."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from infra.fleet.cost_report import CPU_TYPES, FIGURES, cpu_service_time
from infra.fleet.instances import catalogue, processor
from infra.fleet.measured import Measured
from infra.fleet.neuron_estimate import layer_bytes
from infra.fleet.roofline import least_core_ms, plan_bytes


@pytest.mark.parametrize("kind", CPU_TYPES)
def test_a_host_reads_no_more_than_its_share_of_the_socket(kind: str) -> None:
    time, cores, socket = cpu_service_time(kind), catalogue().types[kind].cores, processor(kind)
    assert time is not None
    read = cores * 1000 / time.mean_ms * plan_bytes(FIGURES)
    assert read <= 1.002 * socket.gigabytes_per_second * 1e9 * cores / socket.cores


def test_a_plan_reads_the_int8_layers_once_a_forward() -> None:
    assert plan_bytes(FIGURES) / 106_168_320 == pytest.approx(3.36, abs=0.5)


def test_each_socket_says_where_its_channels_and_their_rate_are_written_and_when_that_was_read() -> None:
    for socket in catalogue().processors.values():
        assert date.fromisoformat(socket.date)
        assert "https://" in socket.source
        assert "from memory" not in socket.source


def entry(processor: str, kernel: str, forwards: float, *, forced: bool = False) -> dict[str, Any]:
    medusa = {"medusa": {"forwards": forwards}}
    return {"machine": {"processor": processor}, "kernel": kernel, "forced": forced, "strategies": medusa}


def test_the_forwards_are_those_of_the_processor_that_was_loaded_whatever_sorts_first(tmp_path: Path) -> None:
    machines = {
        "A, avx2": entry("A", "avx2", 7),
        "Zen 5, avx2 (forced)": entry("Zen 5", "avx2", 9, forced=True),
        "Zen 5, avx512vnni": entry("Zen 5", "avx512vnni", 2),
    }
    (tmp_path / "decoding.json").write_text(json.dumps({"machines": machines}), encoding="utf-8")
    (tmp_path / "serving.json").write_text(json.dumps({"machine": {"processor": "Zen 5"}}), encoding="utf-8")

    assert plan_bytes(tmp_path) == 2 * layer_bytes() / 2
    narrow = Measured.read(tmp_path).narrow
    assert narrow is not None
    assert narrow["forced"], "AVX2 of the same processor, not of the other"


def test_another_processor_s_figures_stand_in_for_none(tmp_path: Path) -> None:
    machines = {"A, avx2": entry("A", "avx2", 7)}
    (tmp_path / "decoding.json").write_text(json.dumps({"machines": machines}), encoding="utf-8")
    (tmp_path / "serving.json").write_text(json.dumps({"machine": {"processor": "Zen 5"}}), encoding="utf-8")
    with pytest.raises(KeyError, match="no entry of Zen 5"):
        plan_bytes(tmp_path)
    assert cpu_service_time("c7a.4xlarge", tmp_path) is None


def test_16_cores_of_a_c7a_share_77_gigabytes_a_second() -> None:
    # 96 cores share 460.8 GB/s: 16 of them 76.8, which are 215 plans of 357 MB.
    assert 16 * 1000 / least_core_ms("c7a.4xlarge", 357e6) == pytest.approx(76.8e9 / 357e6)


def test_the_slowest_plans_grow_with_the_mean() -> None:
    measured, bound = cpu_service_time(), cpu_service_time("c7a.4xlarge")
    assert measured is not None
    assert bound is not None
    assert bound.mean_ms > measured.mean_ms
    assert bound.p99_ms / bound.mean_ms == pytest.approx(measured.p99_ms / measured.mean_ms, rel=0.01)
    assert "GB/s" in bound.source


def test_a_c7a_is_reckoned_with_the_time_of_a_zen_4() -> None:
    timed, other = cpu_service_time("c7a.4xlarge"), cpu_service_time("c7i.4xlarge")
    assert timed is not None
    assert other is not None
    assert "Zen 4" in timed.source
    assert "not on a c7i.4xlarge" in other.source
