"""What the Image stack tells the documents of ami/: words that the service and its compiler understand."""

import re

import pytest

from infra.constructs.image_components import component_parameters
from infra.fleet.images import images
from infra.fleet.settings import FLEETS, FleetSettings
from service.engines.neuron.__main__ import _parser
from service.settings import Settings
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.synthesis import resources, synthesised, templates

pytestmark = pytest.mark.slow  # a synth of the dev fleet


@pytest.fixture
def told() -> dict[str, str]:
    """Each parameter of the recipe's components, by its name."""
    (recipe,) = resources(templates("dev")["Image"], "AWS::ImageBuilder::ImageRecipe").values()
    parameters = [each for component in recipe["Properties"]["Components"] for each in component.get("Parameters", [])]
    return {parameter["Name"]: parameter["Value"][0] for parameter in parameters}


@pytest.fixture
def fleet() -> FleetSettings:
    return FleetSettings.from_yaml(FLEETS / "dev.yaml")


def test_the_service_takes_the_settings_that_the_image_decides(
    told: dict[str, str], fleet: FleetSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for word in told["SETTINGS"].split():
        name, _, value = word.partition("=")
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PEAKPLAN_COMPILED_DIR", "/opt/peakplan/compiled")  # serve.sh adds these two
    monkeypatch.setenv("PEAKPLAN_REPLICAS", "1")
    settings = Settings()
    assert (settings.engine, settings.hosted_engine) == ("triton", "neuron")
    assert settings.neuron.tensor_parallel == fleet.model.tensor_parallel
    assert settings.max_prompt_tokens == fleet.model.max_prompt_tokens


def test_a_batch_is_compiled_and_run_by_replicas_of_the_gateway_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {
        "model.batch_size": 8, "model.speculation_length": 48, "model.context_buckets": [64, 384],
        "model.graph": "chain", "model.weight_layout": True, "model.device_rights": "memory",
    }  # fmt: skip
    batched = dev_fleet(changes)
    (image,) = images(batched)
    told = component_parameters(batched, image)
    for word in told["SETTINGS"].split():
        name, _, value = word.partition("=")
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PEAKPLAN_COMPILED_DIR", "/opt/peakplan/compiled")
    monkeypatch.setenv("PEAKPLAN_REPLICAS", "2")

    settings, compiled = (
        Settings(),
        _parser(Settings()).parse_args(["compile", "--output", "x", *told["COMPILE"].split()]),
    )

    assert (settings.engine, settings.batch_size) == ("neuron", 8)
    assert (compiled.batch_size, compiled.speculation_length, compiled.context_buckets) == (8, 48, "64,384")
    assert compiled.sequence_length == 576
    assert (compiled.graph, compiled.weight_layout) == ("chain", True)
    assert "PEAKPLAN_DEVICE_RIGHTS=memory" in told["SETTINGS"].split()
    assert settings.queue.lost_replica_seconds == batched.model.lost_replica_seconds == 300


def test_the_compiler_takes_the_fleet_s_model(told: dict[str, str], fleet: FleetSettings) -> None:
    chips = told["CHIPS"].split()
    assert chips == [group.chip for group in fleet.groups]
    for chip in chips:
        words = ["compile", "--output", "x", "--chip", chip, *told["COMPILE"].split()]
        taken = _parser(Settings()).parse_args(words)
        assert taken.tensor_parallel == fleet.model.tensor_parallel
        assert taken.speculation_length == fleet.model.speculation_length
        assert taken.sequence_length == fleet.model.sequence_length


def test_the_release_holds_all_that_the_dockerfile_copies() -> None:
    outdir = synthesised("dev")[0]
    (release,) = [path.parents[1] for path in outdir.glob("asset.*/service/Dockerfile")]
    lines = (release / "service" / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", lines, re.MULTILINE) for word in line.split()]
    assert "requirements-image.txt" in copied
    missing = [name for name in copied if name != "${MODEL}" and not (release / name).exists()]
    assert not (release / "requirements-dev.txt").exists(), "what tests need would make another release"
    assert missing == [], "build-container.sh would fail where an image is baked"
