"""A fleet file that would hurt is refused in words a person can act on: one test a rule."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.fleet import sizing
from infra.fleet.model_folder import read_model_folder
from infra.fleet.settings import FLEETS, FleetFileError, FleetSettings, json_schema
from tests.infra.fleet.fleets import dev_with

EVENT = {"name": "sale", "start": "2027-07-13T07:00:00Z", "end": "2027-07-14T07:00:00Z", "multiplier": 1.5}
NEXT_EVENT = EVENT | {"name": "next-sale", "start": EVENT["end"], "end": "2027-07-15T07:00:00Z"}
NIGHTS = [
    {"days": ["mon"], "begins": "00:00", "share": 0.9},
    {"days": ["mon"], "begins": "08:00", "share": 1},
]
TWICE = [
    {"days": ["mon", "tue"], "begins": "08:00", "share": 0.9},
    {"days": ["tue"], "begins": "08:00", "share": 1},
]
BUSY = {"mean_ms": 72, "p99_ms": 90, "source": "stated: a test"}
# A tree of the tests' own, because the shipped model's changes whenever it is trained anew.
TREE = [[0], [1], [0, 0], [0, 1], [0, 0, 0]]
CHAIN = [[0], [0, 0], [0, 0, 0], [0, 0, 0, 0]]


def refusal(tmp_path: Path, changes: dict[str, Any]) -> str:
    """What a person reads who tries the dev fleet with `changes`."""
    file = tmp_path / "broken.yaml"
    file.write_text(yaml.safe_dump(dev_with({"model.tree": TREE} | changes)), encoding="utf-8")
    with pytest.raises(FleetFileError) as refused:
        FleetSettings.from_yaml(file)
    assert str(file) in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"model.tree": [[0], [9]], "model.speculation_length": 3}, id="the last rank of the buffers"),
        pytest.param({"model.batch_size": 8, "model.speculation_length": 48}, id="a batch, and rows beyond the tree's"),
        pytest.param({"model.context_buckets": [32, 384]}, id="prompt lengths of one's own"),
        pytest.param({"model.speculation_length": 64}, id="as many rows as 512 positions are too few for"),
        pytest.param({"events": [EVENT, NEXT_EVENT]}, id="an event begins as another ends"),
        pytest.param({"network.cell_weights": [255]}, id="the largest weight"),
        pytest.param({"traffic.plans_per_minute": 300, "model.service_time": BUSY}, id="replicas busy to 21%"),
    ],
)
def test_what_just_fits_is_accepted(changes: dict[str, Any]) -> None:
    assert FleetSettings.model_validate(dev_with({"model.tree": TREE} | changes))


def test_a_misspelt_key_is_one_finding_with_the_key_that_was_meant(tmp_path: Path) -> None:
    content = dev_with({})
    content["regoin"] = content.pop("region")
    content["model"]["speculation_lenght"] = 48
    file = tmp_path / "typo.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(FleetFileError) as refused:
        FleetSettings.from_yaml(file)
    lines = str(refused.value).splitlines()
    assert "  regoin: is no key of a fleet file: did you mean `region`?" in lines
    assert "  model.speculation_lenght: is no key of a fleet file: did you mean `speculation_length`?" in lines
    assert not any("Field required" in line for line in lines)


@pytest.mark.parametrize("name", ["dev", "prime-day", "prime-day-small"])
def test_fleets_that_ship_are_accepted(name: str) -> None:
    assert FleetSettings.from_yaml(FLEETS / f"{name}.yaml").name == name


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        pytest.param({"model.sdk": "2.29"}, "model.sdk", "use 2.28", id="sdk of Trn2"),
        pytest.param({"model.sdk": "2.32"}, "model.sdk", "use 2.28", id="sdk without NxDI"),
        pytest.param({"model.image": "neuron:latest"}, "model.image", "name SDK 2.28", id="image not pinned"),
        pytest.param({"model.async_mode": True}, "model.async_mode", "use false", id="async with medusa"),
        pytest.param({"model.tensor_parallel": 3}, "model.tensor_parallel", "possible: 1, 2", id="tp of no chip"),
        pytest.param({"model.tensor_parallel": 8}, "model.tensor_parallel", "possible: 1, 2", id="tp over the cores"),
        pytest.param({"model.tensor_parallel": 2}, "model.tensor_parallel", "3 key and value heads", id="tp over keys"),
        pytest.param(
            {"model.weight_bytes": 16 * 2**30}, "model.tensor_parallel", "1.6 GiB lack; span", id="over a core"
        ),
        pytest.param(
            {
                "model.weight_bytes": 2**30,
                "model.cache_bytes": 2**17,
                "model.batch_size": 64,
                "model.sequence_length": 4096,
            },
            "model.tensor_parallel",
            "18.6 GiB lack",
            id="keys and values over a core",
        ),
        pytest.param(
            {"model.weight_bytes": 7 * 2**30}, "groups.0.instance_type", "2.0 GiB lack", id="no memory to compile in"
        ),
        pytest.param({"model.heads": 2}, "model.heads", "depth 3", id="fewer heads than depth"),
        pytest.param(
            {"model.speculation_length": 5}, "model.speculation_length", "must be 6 or more", id="rows of the tree"
        ),
        pytest.param({"model.tree": []}, "model.tree", "is empty", id="no tree"),
        pytest.param({"model.tree": [[0], [12]]}, "model.tree", "outside 0..9", id="rank beyond the buffers"),
        pytest.param({"model.tree": [[0], [10]]}, "model.tree", "outside 0..9", id="rank just beyond the buffers"),
        pytest.param({"model.tree": [[0], [-1]]}, "model.tree", "outside 0..9", id="rank below 0"),
        pytest.param({"model.tree": [[0], [1, 0]]}, "model.tree", "hangs in the air", id="orphan in the tree"),
        pytest.param({"model.folder": "models/nowhere"}, "model", "no model.json", id="model folder missing"),
        pytest.param({"model.max_prompt_tokens": 6}, "model.max_prompt_tokens", "by its length", id="prompt as a tree"),
        pytest.param({"model.sequence_length": 480}, "model.sequence_length", "= 491", id="sequence too short"),
        pytest.param(
            {"model.context_buckets": [6, 384]}, "model.context_buckets", "by its length", id="bucket as a tree"
        ),
        pytest.param({"model.context_buckets": [64]}, "model.context_buckets", "make them equal", id="short buckets"),
        pytest.param({"groups.0.minimum": 7}, "groups.0.minimum", "above maximum 6", id="min over max"),
        pytest.param({"groups.1.instance_type": "inf2.8xlarge"}, "groups", "one group a chip", id="chip twice"),
        pytest.param({"groups.0.instance_type": "g5.xlarge"}, "groups.0.instance_type", "not known", id="no Neuron"),
        pytest.param({"maximum_cell_instances": 9}, "groups", "add cells", id="cell over its size"),
        pytest.param({"maximum_cell_instances": 1001}, "maximum_cell_instances", "1000 targets", id="over the quota"),
        pytest.param({"slo.p99_ms": 100}, "model.service_time", "faster model", id="slo out of reach"),
        pytest.param({"traffic.plans_per_minute": 90000}, "traffic", "raise it", id="day without capacity"),
        pytest.param({"events": [EVENT | {"multiplier": 9}]}, "events.0", "raise it", id="event without capacity"),
        pytest.param({"events": [EVENT, EVENT | {"name": "b"}]}, "events", "overlap", id="events overlap"),
        pytest.param({"events": [EVENT | {"lead_minutes": 15}]}, "events.0.lead_minutes", "two boots", id="late lead"),
        pytest.param({"events": [EVENT | {"end": EVENT["start"]}]}, "events.0", "before it starts", id="no duration"),
        pytest.param(
            {"load_balancer.scheme": "internet-facing"},
            "load_balancer.authentication",
            "mtls or jwt",
            id="open to everyone",
        ),
        pytest.param({"load_balancer.authentication": {"method": "mtls"}}, "load_balancer", "trust_bundle", id="mtls"),
        pytest.param(
            {"load_balancer.authentication": {"method": "mtls", "trust_bundle": "s3://trust/authorities.pem"}},
            "load_balancer.authentication.trust_bundle",
            "pattern",
            id="a bucket that others could take",
        ),
        pytest.param({"load_balancer.authentication": {"method": "jwt"}}, "load_balancer", "issuer and jwks", id="jwt"),
        pytest.param({"callers.0.cidrs": ["0.0.0.0/0"]}, "callers.0.cidrs", "nearly everyone", id="the whole internet"),
        pytest.param({"callers.0.cidrs": ["8.0.0.0/8"]}, "callers.0.cidrs", "nearly everyone", id="wide public range"),
        pytest.param({"callers": []}, "callers", "at least 1", id="nobody may call"),
        pytest.param({"caller_shard_cells": 2}, "caller_shard_cells", "2 of 1 cells", id="more shards than cells"),
        pytest.param({"availability_zones": ["us-east-1a"]}, "availability_zones", "at least 2", id="one zone"),
        pytest.param({"availability_zones.0": "eu-west-1a"}, "availability_zones", "not in us-east-1", id="far zone"),
        pytest.param({"availability_zones.0": "us-east-1b"}, "availability_zones", "named twice", id="zone twice"),
        pytest.param({"network.cell_weights": [256]}, "network.cell_weights", "of 0..255", id="weight too large"),
        pytest.param({"network.cell_weights": [-1]}, "network.cell_weights", "of 0..255", id="weight below 0"),
        pytest.param(
            {"network.cell_weights": [1, 1]}, "network.cell_weights", "of the 1 cells", id="weight of no cell"
        ),
        pytest.param({"network.cell_weights": [0]}, "network.cell_weights", "not all 0", id="no cell has weight"),
        pytest.param({"network.cidr": "8.8.0.0/16"}, "network.cidr", "RFC 1918", id="public VPC"),
        pytest.param({"network.cidr": "10.64.0.0/14"}, "network.cidr", "a VPC of /16 to /28", id="VPC too large"),
        pytest.param({"network.cidr": "10.64.0.0/29"}, "network.cidr", "a VPC of /16 to /28", id="VPC too small"),
        pytest.param({"network.cidr": "10.64.0.0/24"}, "network.cidr", "use a larger block", id="no room for hosts"),
        pytest.param(
            {"maximum_cell_instances": 1000, "groups.0.maximum": 990, "network.cidr": "10.64.0.0/22"},
            "network.cidr",
            "with a zone lost: use a larger block",
            id="no room for the maximum",
        ),
        pytest.param({"callers.0.cidrs": []}, "callers.0", "nobody could come in", id="a caller without a way"),
        pytest.param(
            {"access": {"privatelink": False}, "callers.0.accounts": ["111122223333"]},
            "callers.0.accounts",
            "turn it on",
            id="accounts without PrivateLink",
        ),
        pytest.param(
            {"access": {"transit_gateway": "tgw-0123456789abcdef0"}, "callers.0.cidrs": ["10.40.8.0/24"]},
            "callers.0.cidrs",
            "no route can tell them apart",
            id="a caller's network overlaps",
        ),
        pytest.param(
            {"access": {"transit_gateway": "tgw-0123456789abcdef0", "peering": "pcx-01234567"}},
            "access",
            "one route",
            id="two ways for one route",
        ),
        pytest.param(
            {"load_balancer": {"scheme": "internet-facing", "certificate_parameter": "/c"}},
            "access.privatelink",
            "set it to false",
            id="PrivateLink to a public load balancer",
        ),
        pytest.param({"network.endpoints": [{"service": "s3"}]}, "network.endpoints.0", "required", id="no reason"),
        pytest.param({"retention_days": 8}, "retention_days", "offers 1, 3, 5, 7", id="odd retention"),
        pytest.param({"on_call": "nobody"}, "on_call", "pattern", id="nobody on call"),
        pytest.param({"model.service_time.p99_ms": 10}, "model.service_time", "below mean_ms", id="tail before mean"),
        pytest.param({"surges": 2}, "surges", "did you mean `surge`?", id="misspelt key"),
        pytest.param({"surge.times": 60}, "surge.times", "maximum", id="surge over the maximum"),
        pytest.param({"surge.recover": "100s"}, "surge.recover", "needs 170 s", id="surge faster than its own hosts"),
        pytest.param({"warm_start_seconds": 400}, "surge.recover", "promise that", id="surge with slow starts"),
        pytest.param({"surge.within": "soon"}, "surge.within", "write 60s", id="no duration"),
        pytest.param({"surge.absorb": 9}, "surge", "lower absorb", id="absorbs more than all"),
        pytest.param({"groups.0.minimum": 1}, "groups.0.minimum", "write 3", id="minimum below the load, not raised"),
        pytest.param(
            {"traffic.forecast": NIGHTS, "groups.0.minimum": 2},
            "groups.0.minimum",
            "quietest",
            id="minimum below the night",
        ),
        pytest.param({"traffic.forecast": TWICE}, "traffic.forecast", "same time", id="two forecasts at a time"),
        pytest.param({"traffic.time_zone": "Mars/Olympus"}, "traffic.time_zone", "tz database", id="no time zone"),
        pytest.param({"groups.0.engine": "torch"}, "groups.0.engine", "chips idle", id="torch on a chip"),
        pytest.param({"groups.0.instance_type": "c7i.4xlarge"}, "groups.0.engine", "engine: torch", id="no chip"),
        pytest.param(
            {"groups.0.instance_type": "c8g.4xlarge"}, "groups.0.engine", "engine: torch", id="no chip, arm64"
        ),
        pytest.param({"runbooks": "docs/runbooks"}, "runbooks", "pattern", id="runbooks without a URL"),
    ],
)
def test_a_broken_rule_names_field_and_remedy(tmp_path: Path, changes: dict[str, Any], field: str, words: str) -> None:
    message = refusal(tmp_path, changes)
    assert any(line.strip().startswith(field) and words in line for line in message.splitlines()), message


@pytest.mark.parametrize("length", [{}, {"model.speculation_length": 5}], ids=["left out", "given"])
def test_a_chain_of_four_heads_fits_nxdi(length: dict[str, int]) -> None:
    settings = FleetSettings.model_validate(dev_with({"model.tree": CHAIN} | length))
    assert settings.model.speculation_length == len(CHAIN) + 1


def test_rules_over_several_fields_name_their_source(tmp_path: Path) -> None:
    message = refusal(tmp_path, {"model.sdk": "2.29", "model.async_mode": True})
    assert "release notes" in message
    assert "2.28" in message
    assert "model.async_mode" in message, "every broken rule is named at once"


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: [", "not YAML"), ("- a", "expected keys"), ("", "expected keys")],
    ids=["yaml", "list", "no"],
)
def test_what_is_no_fleet_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(FleetFileError, match=words):
        FleetSettings.from_yaml(file)


def test_a_missing_file_says_which_fleets_ship(tmp_path: Path) -> None:
    with pytest.raises(FleetFileError, match="dev, mistral-7b, prime-day"):
        FleetSettings.from_yaml(tmp_path / "none.yaml")


def test_a_cell_may_run_on_processors_alone() -> None:
    time = {"mean_ms": 50, "p99_ms": 150, "source": "measured: a test's own figure"}
    group = {"instance_type": "c7a.4xlarge", "engine": "torch", "minimum": 3, "maximum": 6, "service_time": time}
    settings = FleetSettings.model_validate(dev_with({"groups": [group]}))
    (cpu,) = settings.groups
    assert cpu.chip == "cpu"
    assert sizing.replicas_per_instance(cpu, 2) == 16
    assert sizing.target_utilisation(settings, cpu) == 0.7


def test_one_address_is_told_of_everything_and_two_of_what_each_is_for() -> None:
    one = FleetSettings.model_validate(dev_with({"on_call": "a@example.com"})).on_call
    two = FleetSettings.model_validate(dev_with({"on_call": {"page": "a@example.com", "ticket": "b@example.com"}}))
    assert (one.page, one.ticket) == ("a@example.com", "a@example.com")
    assert (two.on_call.page, two.on_call.ticket) == ("a@example.com", "b@example.com")


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("3m", 180), ("1h", 3600), (45, 45)])
def test_durations_are_written_as_people_write_them(text: str | int, seconds: int) -> None:
    assert FleetSettings.model_validate(dev_with({"surge.recover": "1h", "surge.within": text})).surge.within == seconds


def test_the_committed_json_schema_is_current() -> None:
    committed = (FLEETS.parent / "fleet" / "schema.json").read_text(encoding="utf-8")
    assert committed == json_schema(), "stale: run `peakplan fleet schema`"


def test_the_model_folder_says_what_the_fleet_file_leaves_out() -> None:
    model = FleetSettings.from_yaml(FLEETS / "dev.yaml").model
    folder = FLEETS.parents[1] / model.folder
    card = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    assert (model.id, model.max_plan_tokens) == (card["id"], card["max_tokens"])
    assert model.tree == json.loads((folder / "medusa_tree.json").read_text(encoding="utf-8"))
    assert (model.vocabulary, model.heads) == (49152, 4)
    assert model.intents == len(json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))["intents"])


def test_a_folder_of_another_base_says_its_own_shape(tmp_path: Path) -> None:
    card = {"id": "mine", "base": "base", "bos_token_id": 1, "eos_token_id": 2, "max_tokens": 64}
    (tmp_path / "base").mkdir()
    (tmp_path / "model.json").write_text(json.dumps(card), encoding="utf-8")
    (tmp_path / "base/config.json").write_text(
        json.dumps({"vocab_size": 32000, "num_attention_heads": 8}), encoding="utf-8"
    )
    (tmp_path / "vocabulary.json").write_text(json.dumps({"intents": {"find": {}, "other": {}}}), encoding="utf-8")
    expected = {"id": "mine", "vocabulary": 32000, "intents": 2, "heads": 0, "tree": [], "max_plan_tokens": 64}
    shape = {"attention_heads": 8, "key_value_heads": 8}
    assert read_model_folder(tmp_path) == expected | shape | {"work_by_choice": 1.0}
    (tmp_path / "worth.json").write_text(json.dumps({"bound": {"worth": 0.1, "work": 0.7}}), encoding="utf-8")
    assert read_model_folder(tmp_path)["work_by_choice"] == 0.7


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1"], ids=["empty", "LFS pointer"])
def test_heads_that_were_not_fetched_are_refused_in_words(tmp_path: Path, content: bytes) -> None:
    card = {"id": "mine", "base": "smollm2-135m-instruct", "max_tokens": 64}
    (tmp_path / "model.json").write_text(json.dumps(card), encoding="utf-8")
    (tmp_path / "vocabulary.json").write_text(json.dumps({"intents": {}}), encoding="utf-8")
    (tmp_path / "medusa_heads.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="git lfs pull"):
        read_model_folder(tmp_path)
