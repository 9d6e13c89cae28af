"""Which engine the settings make, what its model is called, and what a question's meaning travels as."""

import base64
import json
import struct
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from service.api.app import replica_engine, replica_pool, settings_source
from service.engines.factory import model_source
from service.engines.protocol import EngineUnavailableError, QuestionMeaning
from service.engines.triton.engine import TritonEngine
from service.engines.worker.replica import ReplicaEngine
from service.settings import Settings
from service.settings.engines import OpenAiSettings
from service.weights.model_card import folder_version


def test_the_engine_is_chosen_by_name() -> None:
    for settings, kind in (
        (Settings(replicas=1), ReplicaEngine),
        (Settings(replicas=1, engine="triton"), TritonEngine),
    ):
        assert isinstance(replica_engine(settings, settings_source(settings), 0), kind)


def test_replicas_run_where_the_model_s_libraries_are() -> None:
    config = Settings(replicas=1, replica_python=Path("/opt/peakplan/replica/bin/python")).engine_config
    assert model_source(config).python == "/opt/peakplan/replica/bin/python"
    assert model_source(Settings(replicas=1).engine_config).python == ""


def test_a_secret_reaches_the_engine_and_no_file() -> None:
    config = Settings(replicas=1, openai=OpenAiSettings(key=SecretStr("hush"))).engine_config
    assert config.openai.key.get_secret_value() == "hush"
    assert "hush" not in json.dumps(config.as_json())
    assert "hush" not in repr(config)


def test_a_replica_that_decodes_batches_has_an_engine_for_each_of_its_slots(tmp_path: Path) -> None:
    settings = Settings(engine="neuron", replicas=2, batch_size=3, neuron={"compiled_dir": tmp_path})
    source = settings_source(settings)
    assert replica_pool(settings, source).replica_count == 6

    slots = [
        engine for number in range(6) if isinstance(engine := replica_engine(settings, source, number), ReplicaEngine)
    ]
    sources = [engine._source for engine in slots]
    assert [source.arguments["number"] for source in sources] == [0, 0, 0, 1, 1, 1]
    assert {source.slots for source in sources} == {3}
    shared = Settings(replicas=1, batch_size=2)  # on a processor, too
    one = replica_engine(shared, settings_source(shared), 0)
    assert isinstance(one, ReplicaEngine)
    assert one._source.slots == 2
    with pytest.raises(ValueError, match="PEAKPLAN_ENGINE=torch or neuron"):
        Settings(replicas=1, batch_size=2, engine="triton")


def test_missing_packages_are_told_with_where_they_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "service.engines.triton.engine", None)
    settings = Settings(replicas=1, engine="triton")
    with pytest.raises(EngineUnavailableError, match=r"the extra `triton`"):
        replica_engine(settings, settings_source(settings), 0)


def test_another_content_name_or_choice_is_another_version(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one", encoding="utf-8")
    first = folder_version(tmp_path, "bfloat16")
    assert first == folder_version(tmp_path, "bfloat16")
    seen = {first, folder_version(tmp_path, "float32")}
    (tmp_path / "a").write_text("two", encoding="utf-8")
    seen.add(folder_version(tmp_path, "bfloat16"))
    (tmp_path / "a").rename(tmp_path / "b")
    seen.add(folder_version(tmp_path, "bfloat16"))
    seen.add(folder_version(tmp_path / "nowhere"))
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (("00ff00ff00ff00ff", (0.5, -0.25, 2.0), 3.5), (0.5, -0.25, 2.0, 3.5)),
        (("a", (0.0, 0.0), 0.0), (0.0, 0.0, 0.0)),
        (("a", (1e9,), -1e9), (65504.0, -65504.0)),  # too large for it
    ],
)
def test_what_was_packed_is_unpacked(said: tuple[str, tuple[float, ...], float], found: tuple[float, ...]) -> None:
    told = QuestionMeaning.unpacked(QuestionMeaning(*said).packed())
    assert told is not None
    assert told.space == said[0]
    assert (*told.direction, told.odds) == pytest.approx(found, abs=2 / 127 / 2)  # half a step
    assert QuestionMeaning.unpacked("") is None


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "a:",
        "a:!!!!",
        "a:" + base64.b64encode(b"abc").decode(),
        "a:" + base64.b64encode(struct.pack("<ee", 1.0, 1.0)).decode(),  # odds alone
        "a:" + base64.b64encode(struct.pack("<eeb", 1.0, float("nan"), 1)).decode(),
        "a:\ud800",
    ],
)
def test_what_is_no_meaning_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a question's meaning"):
        QuestionMeaning.unpacked(text)
