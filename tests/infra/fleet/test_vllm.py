"""vLLM's launch commands follow the fleet file and the pinned SDK; the gateway is told of servers that are there."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.fleet.__main__ import main
from infra.fleet.settings import FLEETS, FleetFileError, FleetSettings
from infra.fleet.vllm import MODEL_DIR, gateway, script, servers
from tests.infra.fleet.fleets import dev_with

TREE = [[0], [0, 0]]
GREEDY = {"model.strategy": "autoregressive", "model.heads": 0, "model.tree": [], "model.speculation_length": 0}
TWO_CORES = {"model.tensor_parallel": 2, "model.key_value_heads": 4, "model.attention_heads": 8}
DRAFT = {"folder": "/opt/peakplan/draft", "method": "eagle", "tokens": 5}


def fleet_with(changes: dict[str, Any]) -> FleetSettings:
    return FleetSettings.model_validate(dev_with({"model.tree": TREE} | changes))


def options(arguments: list[str]) -> dict[str, str]:
    """`vllm serve`'s options that take a value."""
    return {name: value for name, value in zip(arguments[4::2], arguments[5::2], strict=True)}


@pytest.mark.parametrize("name", ["dev", "prime-day"])
def test_every_core_of_every_group_is_served_once(name: str) -> None:
    fleet = FleetSettings.from_yaml(FLEETS / f"{name}.yaml")
    for group in fleet.groups:
        running = servers(fleet, group)
        taken = [core for server in running for core in range(server.cores[0], server.cores[1] + 1)]
        assert taken == list(range(group.instance.cores))
        assert len({server.port for server in running}) == len(running)
        for server in running:
            assert server.arguments[:3] == ["vllm", "serve", MODEL_DIR]
            assert options(server.arguments)["--tensor-parallel-size"] == str(fleet.model.tensor_parallel)
            assert options(server.arguments)["--dtype"] == "bfloat16"
            assert options(server.arguments)["--max-model-len"] == str(fleet.model.sequence_length)
            assert "--speculative-config" not in server.arguments


def test_a_large_instance_has_a_server_a_replica() -> None:
    changes = {"groups": [{"instance_type": "inf2.24xlarge", "minimum": 3, "maximum": 6}]} | TWO_CORES
    fleet = fleet_with(changes)
    environment = gateway(fleet, fleet.groups[0])

    visible = [server.environment["NEURON_RT_VISIBLE_CORES"] for server in servers(fleet, fleet.groups[0])]

    assert visible == ["0-1", "2-3", "4-5", "6-7", "8-9", "10-11"]
    assert environment["PEAKPLAN_OPENAI_URL"].count("http://") == 6 == int(environment["PEAKPLAN_REPLICAS"])


def test_a_draft_becomes_eagle_speculation_and_is_reported() -> None:
    fleet = fleet_with({"model.draft": DRAFT})
    server, _ = servers(fleet, fleet.groups[0])

    assert json.loads(options(server.arguments)["--speculative-config"]) == {
        "model": "/opt/peakplan/draft",
        "method": "eagle",
        "num_speculative_tokens": 5,
        "max_model_len": fleet.model.sequence_length,
    }
    assert gateway(fleet, fleet.groups[0])["PEAKPLAN_STRATEGY"] == "draft"


def test_a_batch_takes_as_many_blocks_and_connections() -> None:
    fleet = fleet_with(GREEDY | {"model.batch_size": 4})
    server, _ = servers(fleet, fleet.groups[0])
    assert options(server.arguments)["--max-num-seqs"] == "4"
    assert options(server.arguments)["--num-gpu-blocks-override"] == "4"
    assert gateway(fleet, fleet.groups[0])["PEAKPLAN_REPLICAS"] == "8"


def test_a_sequence_too_short_for_what_is_drafted_is_refused() -> None:
    changes = GREEDY | {"model.sequence_length": 481, "model.max_prompt_tokens": 384, "model.max_plan_tokens": 96}
    fleet_with(changes)  # without a draft it is enough
    with pytest.raises(FleetFileError, match="486 are needed"):
        script(fleet_with(changes | {"model.draft": DRAFT}))


def test_another_sdk_is_refused_by_name() -> None:
    changes = {"model.sdk": "2.27", "model.image": "neuron:2.9.0-neuronx-py312-sdk2.27.0-ubuntu24.04"}
    with pytest.raises(FleetFileError, match=r"no vLLM is known for 2\.27"):
        script(fleet_with(changes))


def test_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(dev_with({"model.tree": TREE})), encoding="utf-8")

    assert main(["vllm", str(file)]) == 0

    printed = capsys.readouterr().out
    assert "vllm-neuronx:0.13.0-neuronx-py312-sdk2.28.0" in printed
    assert "export PEAKPLAN_ENGINE=openai" in printed
    assert "Not run on hardware" in printed
