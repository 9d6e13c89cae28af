import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.environment import OTHERS, PREFIX, problems_of, variables, warnings_of
from service.settings import Settings, available_cores
from service.settings.choices import MAX_PROMPT_TOKENS
from service.settings.engines import EngineConfig

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in known():
        monkeypatch.delenv(name, raising=False)


def known() -> set[str]:
    return {name for variable in variables(Settings) for name in variable.names}


def test_no_two_settings_share_a_variable() -> None:
    names = [name for variable in variables(Settings) for name in variable.names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("variable", "value", "path", "wanted"),
    [
        ("PEAKPLAN_CACHE_WAIT_MS", "7.5", "cache.wait_ms", 7.5),
        ("PEAKPLAN_CACHE_DIR", "/var/peakplan", "cache_dir", Path("/var/peakplan")),
        ("PEAKPLAN_ORDER", "oldest", "queue.order", "oldest"),
        ("PEAKPLAN_RATE", "3", "auth.rate", 3.0),
        ("PEAKPLAN_TRITON_URL", "triton:9", "triton.url", "triton:9"),
        ("PEAKPLAN_TENSOR_PARALLEL", "2", "neuron.tensor_parallel", 2),
        ("PEAKPLAN_HEADER_TIMEOUT_SECONDS", "4", "http.header_timeout_seconds", 4.0),
        ("peakplan_slo_ms", "200", "slo_ms", 200),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/", "otlp_endpoint", "http://collector:4318"),
    ],
)
def test_a_flat_variable_reaches_its_group(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, path: str, wanted: object
) -> None:
    monkeypatch.setenv(variable, value)
    found: object = Settings()
    for part in path.split("."):
        found = getattr(found, part)
    assert found == wanted


def test_words_of_the_program_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEAKPLAN_CACHE_ENTRIES", "5")
    monkeypatch.setenv("PEAKPLAN_CACHE_SECONDS", "6")
    settings = Settings(cache={"entries": 7})  # type: ignore[arg-type]  # as a file would say it
    assert (settings.cache.entries, settings.cache.seconds) == (7, 6)


def test_one_configuration_carries_what_engines_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEAKPLAN_MAX_PROMPT_TOKENS", "128")
    monkeypatch.setenv("PEAKPLAN_COMPILED_DIR", "compiled")
    config = Settings(replicas=1).engine_config
    assert config.max_prompt_tokens == 128
    assert config.neuron.compiled_dir == Path.cwd() / "compiled"
    assert EngineConfig(model_dir=Path(), cache_dir=Path()).max_prompt_tokens == MAX_PROMPT_TOKENS


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("PEAKPLAN_REPLICA", "PEAKPLAN_REPLICA is no setting: did you mean PEAKPLAN_REPLICAS?"),
        ("PEAKPLAN_CACHE_WAIT", "PEAKPLAN_CACHE_WAIT is no setting: did you mean PEAKPLAN_CACHE_WAIT_MS?"),
        ("PEAKPLAN_XYZZY", "PEAKPLAN_XYZZY is no setting"),
    ],
)
def test_a_variable_that_does_nothing_is_warned_of(variable: str, said: str) -> None:
    assert warnings_of(Settings, {variable: "secret"}) == [said]


def test_nothing_is_said_of_what_is_known_or_belongs_to_others() -> None:
    assert warnings_of(Settings, dict.fromkeys([*known(), *OTHERS, "PATH", "OTEL_SERVICE_NAME"], "")) == []


def test_every_variable_that_a_program_of_ours_reads_is_known() -> None:
    """Check that a host that starts the service with a variable of its own scripts is not warned of it."""
    programs = [path for folder in ("ami", "infra", "service", "peakplan") for path in (REPOSITORY / folder).rglob("*")]
    suffixes = {".py", ".sh", ".yaml", ".json", ".service", ".conf"}
    read = {
        name
        for path in programs
        if path.suffix in suffixes and path.name != "environment.py"
        for name in re.findall(rf"\b{PREFIX}[A-Z][A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8"))
    }
    assert read
    assert read - {"PEAKPLAN_COMPLETE"} <= known() | OTHERS


def refused(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError) as caught:
        Settings()
    return problems_of(caught.value, Settings)


def test_an_error_names_the_variable_and_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(monkeypatch, PEAKPLAN_CACHE_WAIT_MS="soon").startswith("PEAKPLAN_CACHE_WAIT_MS=soon Input should be")


def test_an_error_names_the_variable_as_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(monkeypatch, PORT="http").startswith("PORT=http ")
    assert refused(monkeypatch, PEAKPLAN_PORT="https").startswith("PEAKPLAN_PORT=https ")


def test_an_error_keeps_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused(monkeypatch, PEAKPLAN_CACHE_URL="http://user:hush@cache")
    assert said.startswith("PEAKPLAN_CACHE_URL must start with")
    assert "hush" not in said


def test_defaults_suit_a_laptop() -> None:
    settings = Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)
    assert settings.replica_count == available_cores()
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
        {"replicas": -1},
        {"http": {"max_body_bytes": 10}},
        {"replicas": 256},
    ],
)
def test_unsafe_values_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate(values)


def test_more_replicas_than_cores_only_on_purpose() -> None:
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
