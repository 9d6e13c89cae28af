from pathlib import Path

import pytest
from pydantic import ValidationError

from service.settings import Settings, available_cores


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOST", "PORT", "PEAKPLAN_PORT", "PEAKPLAN_REPLICAS"):
        monkeypatch.delenv(name, raising=False)


def test_defaults_suit_a_laptop() -> None:
    settings = Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)
    assert settings.replica_count == available_cores()
    assert settings.threads_per_replica == 1
    assert settings.model_dir.parts[-2:] == ("models", "qp-smollm2-135m")


def test_plain_host_and_port_are_honoured_and_ours_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST", "0.0.0.0")
    monkeypatch.setenv("PORT", "9000")
    assert (Settings().host, Settings().port) == ("0.0.0.0", 9000)
    monkeypatch.setenv("PEAKPLAN_PORT", "9001")
    assert Settings().port == 9001


def test_the_environment_is_read_with_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEAKPLAN_REPLICAS", "1")
    monkeypatch.setenv("PEAKPLAN_STRATEGY", "autoregressive")
    assert (Settings().replicas, Settings().strategy) == (1, "autoregressive")


@pytest.mark.parametrize(
    "values",
    [
        {"port": -1},
        {"port": 65536},
        {"engine": "tensorrt"},
        {"triton": {"url": "http://127.0.0.1:8001"}},
        {"triton": {"url": "127.0.0.1"}},
        {"triton": {"url": "127.0.0.1:0"}},
        {"triton": {"url": ":8001"}},
        {"neuron": {"tensor_parallel": 0}},
        {"cache": {"url": "http://cache"}},
        {"cache": {"no_such_setting": 1}},
        {"no_such_setting": 1},
        {"host": ""},
        {"host": "http://x"},
        {"dtype": "float16"},
        {"strategy": "guess"},
        {"threads_per_replica": 0},
        {"replicas": -1},
        {"http": {"max_body_bytes": 10}},
        {"replicas": 256},
    ],
)
def test_unsafe_values_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate(values)


def test_more_threads_than_cores_only_on_purpose() -> None:
    with pytest.raises(ValidationError, match="PEAKPLAN_OVERSUBSCRIBE=1"):
        Settings(replicas=200)
    assert Settings(replicas=200, oversubscribe=True).replica_count == 200


def test_a_draft_strategy_is_a_completions_server_s() -> None:
    with pytest.raises(ValidationError, match="PEAKPLAN_STRATEGY=draft says how a completions server decodes"):
        Settings(strategy="draft")
    assert Settings(engine="openai", strategy="draft", openai={"url": "http://127.0.0.1:1"}).strategy == "draft"


def test_batches_are_refused_where_another_server_makes_them(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="another server batches by itself"):
        Settings(engine="triton", batch_size=2)

    assert Settings(batch_size=2).engine_config.batch_size == 2
    on_a_device = Settings(engine="neuron", replicas=2, batch_size=8, neuron={"compiled_dir": tmp_path})
    assert on_a_device.engine_config.batch_size == 8


@pytest.mark.parametrize(
    ("quota", "cores"), [("100000 100000", 1), ("50000 100000", 1), ("max 100000", None), ("", None)]
)
def test_a_containers_quota_bounds_the_cores(tmp_path: Path, quota: str, cores: int | None) -> None:
    (tmp_path / "cpu.max").write_text(quota, encoding="ascii")
    assert available_cores(tmp_path / "cpu.max") == (cores or available_cores(tmp_path / "missing"))
