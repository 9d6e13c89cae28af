"""PEAKPLAN_ENGINE=neuron from its settings to a replica's process, which reports here what it lacks."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from service.api.app import replica_engine, settings_source
from service.engines.protocol import EngineUnavailableError
from service.settings import Settings
from service.settings.engines import NeuronSettings, TritonSettings


def settings(tmp_path: Path, model_dir: Path) -> Settings:
    return Settings(
        engine="neuron", model_dir=model_dir, neuron=NeuronSettings(compiled_dir=tmp_path / "compiled"), replicas=2
    )


@pytest.mark.anyio
async def test_a_replica_without_the_packages_says_which_and_from_where(tmp_path: Path, tiny_model_dir: Path) -> None:
    chosen = settings(tmp_path, tiny_model_dir)
    engine = replica_engine(chosen, settings_source(chosen), number=1)

    with pytest.raises(EngineUnavailableError, match=r"needs Neuron SDK 2\.28"):
        await engine.start()

    assert not engine.available
    await engine.close()


def test_triton_hosts_it_as_it_hosts_others(tmp_path: Path, tiny_model_dir: Path) -> None:
    changes = {"engine": "triton", "triton": TritonSettings(hosts="neuron")}
    hosted = settings(tmp_path, tiny_model_dir).model_copy(update=changes)

    source = settings_source(hosted)

    assert source.loader == "service.engines.neuron.model:load"
    assert "number" not in source.arguments  # Triton gives each process its cores
    assert not source.forkable


def test_other_artifacts_are_another_version(tmp_path: Path, tiny_model_dir: Path) -> None:
    chosen = settings(tmp_path, tiny_model_dir)
    before = settings_source(chosen).version
    (tmp_path / "compiled").mkdir()
    (tmp_path / "compiled" / "manifest.json").write_text("{}", encoding="utf-8")

    assert settings_source(chosen).version != before


@pytest.mark.parametrize(("engine", "hosts"), [("neuron", "torch"), ("triton", "neuron")])
def test_what_only_a_person_knows_must_be_set(engine: str, hosts: str) -> None:
    with pytest.raises(ValidationError, match=r"needs PEAKPLAN_COMPILED_DIR .* and PEAKPLAN_REPLICAS"):
        Settings.model_validate({"engine": engine, "triton": {"hosts": hosts}})
