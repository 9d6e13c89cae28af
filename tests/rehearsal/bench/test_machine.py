"""What a figure says of its machine, the machine's limits, and figures for several machines side by side."""

from pathlib import Path

import pytest
import torch

from rehearsal.bench.machine import machine_name, processor_name, processor_time, read_machines, write_machine
from rehearsal.bench.peers.limits import Limits, layer_weights, measure_limits
from service.decoding.llama import Llama
from service.weights.model_folder import LoadedModel, load_model


@pytest.mark.parametrize(
    ("content", "expected"),
    [("cpu  10 2 3 80 1 0 1 3 0 0\ncpu0 5 1 1 40 0 0 0 1 0 0\n", (3, 100)), ("cpu 1 2 3 4\n", (0, 0)), ("", (0, 0))],
    ids=["Linux", "a sandbox's", "empty"],
)
def test_what_the_hypervisor_took_is_read_where_somebody_counts_it(
    tmp_path: Path, content: str, expected: tuple[int, int]
) -> None:
    (tmp_path / "stat").write_text(content, encoding="ascii")

    assert processor_time(tmp_path / "stat") == expected
    assert processor_time(tmp_path / "missing") == (0, 0)


@pytest.fixture(scope="module")
def loaded(tiny_model_dir: Path) -> LoadedModel:
    return load_model(tiny_model_dir, tiny_model_dir)


def test_a_forward_takes_the_longer_of_reading_and_multiplying() -> None:
    limits = Limits(106_000_000, 20.0, 64.0, "a ruler")

    assert limits.forward_ms(1) == pytest.approx(5.3)  # 106 MB at 20 GB/s
    assert limits.forward_ms(16) == pytest.approx(26.5)  # 1.7e9 multiplies at 64e9 a second
    assert limits.figure((1, 16))["forward_ms"] == {"1": 5.3, "16": 26.5}


def test_the_weights_of_the_layers_are_all_their_matrices(loaded: LoadedModel) -> None:
    matrices = [one for name, one in loaded.weights.items() if name.startswith("model.layers") and one.ndim == 2]
    assert layer_weights(loaded.config) == sum(one.numel() for one in matrices)


def test_both_limits_are_measured(loaded: LoadedModel, tmp_path: Path) -> None:
    model = Llama(loaded.config, loaded.weights, torch.float32)
    limits = measure_limits("avx2", model, tmp_path)

    assert limits.gigabytes_per_second > 0
    assert limits.gigamultiplies_per_second > 0


def test_a_run_replaces_its_own_machines_figures_alone(tmp_path: Path) -> None:
    path = tmp_path / "figures" / "peers.json"
    assert read_machines(path) == {}
    write_machine(path, "Ryzen, avx2", {"p50": 1})
    write_machine(path, "EPYC, avx512vnni", {"p50": 2})
    write_machine(path, "Ryzen, avx2", {"p50": 3})

    assert read_machines(path) == {"EPYC, avx512vnni": {"p50": 2}, "Ryzen, avx2": {"p50": 3}}


@pytest.mark.parametrize(
    ("vendor", "name", "family", "model", "flags", "expected"),
    [
        ("AuthenticAMD", "AMD EPYC", 26, 2, "avx512f", "AMD EPYC Zen 5"),
        ("AuthenticAMD", "AMD EPYC", 25, 1, "avx2", "AMD EPYC Zen 3"),
        ("AuthenticAMD", "AMD EPYC", 25, 17, "avx512f", "AMD EPYC Zen 4"),
        ("AuthenticAMD", "AMD EPYC", 23, 49, "avx2", "AMD EPYC Zen 2"),
        ("AuthenticAMD", "AMD EPYC 7763 64-Core Processor", 25, 1, "avx2", "AMD EPYC 7763 64-Core Processor"),
        ("GenuineIntel", "Intel Xeon Processor", 6, 143, "avx512f", "Intel Xeon Processor"),
    ],
)
def test_a_processor_whose_name_says_little_is_named_by_its_generation(
    tmp_path: Path, vendor: str, name: str, family: int, model: int, flags: str, expected: str
) -> None:
    path = tmp_path / "cpuinfo"
    lines = f"vendor_id : {vendor}\ncpu family : {family}\nmodel : {model}\nmodel name : {name}\nflags : {flags}\n"
    path.write_text(lines, encoding="ascii")
    assert processor_name(path) == expected


def test_a_forced_kernel_is_a_machine_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PEAKPLAN_KERNEL", raising=False)
    plain = machine_name("avx2")
    monkeypatch.setenv("PEAKPLAN_KERNEL", "avx2")
    assert machine_name("avx2") == f"{plain} (forced)"
