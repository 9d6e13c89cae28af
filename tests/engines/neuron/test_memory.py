"""A model that is too large for its cores or for the host that compiles it is refused before anything is compiled."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from service.engines.neuron.configuration import ConfigurationError
from service.engines.neuron.memory import check_memory
from service.weights.memory import GIB, available_bytes
from tests.weights.test_memory import container, meminfo


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A model folder whose base has 16 GiB of weights in two shards, which take no room on the disk."""
    (tmp_path / "base").mkdir()
    for shard in (1, 2):
        with (tmp_path / "base" / f"model-{shard}.safetensors").open("wb") as file:
            file.truncate(8 * GIB)
    (tmp_path / "model.json").write_text(
        '{"id": "large", "base": "base", "bos_token_id": 1, "eos_token_id": 2, "max_tokens": 64}', encoding="utf-8"
    )
    return tmp_path


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what gives this host so much free memory, and a container's limit where one is named."""

    def has(gib: float, limit_gib: int | None = None) -> None:
        limit = "max" if limit_gib is None else str(limit_gib * GIB)
        of_host = partial(available_bytes, meminfo(tmp_path, int(gib * GIB)), container(tmp_path, limit))
        monkeypatch.setattr("service.engines.neuron.memory.available_bytes", of_host)

    return has


def test_8b_on_a_trn1_2xlarge_says_what_lacks_instead_of_being_killed(large: Path, host: Callable[..., None]) -> None:
    host(30)
    with pytest.raises(ConfigurationError) as caught:
        check_memory(large, "trn1", 1)

    first, second = caught.value.problems
    assert "16.0 GiB of weights on 1 core(s) of trn1, which have 14.4 for them: 1.6 GiB lack" in first
    assert "takes about 36.0 GiB of this host's memory, and 30.0 are free: 6.0 GiB lack" in second


def test_it_fits_over_two_cores_on_a_larger_host(
    large: Path, host: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    host(37)
    check_memory(large, "inf2", 2)
    monkeypatch.setattr("service.engines.neuron.memory.available_bytes", lambda: None)
    check_memory(large, "inf2", 2)


def test_a_container_on_a_large_host_has_no_more_than_its_limit(large: Path, host: Callable[..., None]) -> None:
    host(64, limit_gib=32)
    with pytest.raises(ConfigurationError, match=r"32\.0 are free: 4\.0 GiB lack"):
        check_memory(large, "inf2", 2)


def test_the_command_refuses_before_it_writes(
    large: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from service.engines.neuron import __main__ as command

    monkeypatch.setattr(command, "installed_versions", dict)
    words = ["compile", "--model", str(large), "--output", str(large / "compiled"), "--max-new-tokens", "64"]
    assert command.main(words) == 2
    assert "GiB lack. Span more cores" in capsys.readouterr().err
    assert not (large / "compiled").exists()


def test_the_default_base_fits_everywhere(tmp_path: Path, host: Callable[..., None]) -> None:
    host(0.1)
    (tmp_path / "model.json").write_text(
        '{"id": "small", "base": "smollm2-135m-instruct", "bos_token_id": 1, "eos_token_id": 2, "max_tokens": 64}',
        encoding="utf-8",
    )
    check_memory(tmp_path, "inf2", 1)
