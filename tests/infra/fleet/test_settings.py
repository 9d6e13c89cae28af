"""A fleet file that would hurt is refused in words a person can act on: one case a rule."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from infra.constructs.host import user_data
from infra.constructs.image import component_parameters
from infra.constructs.shopper_events import events_environment
from infra.fleet import sizing
from infra.fleet.__main__ import main
from infra.fleet.cost import volume_gib
from infra.fleet.images import image_of, images
from infra.fleet.instances import catalogue
from infra.fleet.model_folder import KNOWN_BASES, read_model_folder
from infra.fleet.parts import Model
from infra.fleet.rules import MEDUSA_RANKS
from infra.fleet.settings import FLEETS, FleetFileError, FleetSettings, json_schema
from infra.fleet.shards import caller_environment
from infra.fleet.shopper_events import FILE_MEGABYTES, FILES, KINDS
from infra.fleet.vllm import MODEL_DIR, gateway, script, servers
from service.engines.neuron import configuration
from service.engines.neuron.configuration import CompileSettings, ConfigurationError, neuron_arguments
from service.planner.reader.reading import Reader
from service.settings import Settings
from service.settings.choices import Routing
from service.settings.groups import AuthSettings
from tests.infra.fleet.fleets import GRAVITON, dev_fleet, dev_with
from tests.readers import bounded_model

EVENT = {"name": "sale", "start": "2027-07-13T07:00:00Z", "end": "2027-07-14T07:00:00Z", "multiplier": 1.5}
NEXT_EVENT = EVENT | {"name": "next-sale", "start": EVENT["end"], "end": "2027-07-15T07:00:00Z"}
NIGHTS = [{"days": ["mon"], "begins": "00:00", "share": 0.9}, {"days": ["mon"], "begins": "08:00", "share": 1}]
TWICE = [{"days": ["mon", "tue"], "begins": "08:00", "share": 0.9}, {"days": ["tue"], "begins": "08:00", "share": 1}]
BUSY = {"mean_ms": 72, "p99_ms": 90, "source": "stated: a test"}
# A tree of the tests' own, because the shipped model's changes whenever it is trained anew.
TREE = [[0], [1], [0, 0], [0, 1], [0, 0, 0]]
CHAIN = [[0], [0, 0], [0, 0, 0], [0, 0, 0, 0]]
SLOW = BUSY | {"mean_ms": 70.36, "p99_ms": 100}  # replicas are busy to 19%
CACHED = {"model.weight_bytes": 2**30, "model.cache_bytes": 2**17, "model.batch_size": 64}
CACHED |= {"model.sequence_length": 4096}
ARMS = {"control": 1, "rules": 1}
ASSISTANT = {"name": "assistant", "cidrs": ["10.32.0.0/16"], "share": 0.9}
SEARCH = {"name": "search-page", "accounts": ["111122223333"], "share": 0.1}
MTLS = {"load_balancer.authentication": {"method": "mtls", "trust_bundle": "s3://trust-{account}/authorities.pem"}}
ISSUER = {"issuer": "https://issuer.example", "jwks": "https://issuer.example/keys", "caller_claim": "client_id"}
JWT = {"load_balancer.authentication": {"method": "jwt"} | ISSUER}
SHARDED = {"cells": 4, "caller_shard_cells": 2, "traffic.plans_per_minute": 16_000}
UNKNOWABLE = {"callers": [ASSISTANT, SEARCH | {"rate": 100}]}


def shared(*shares: float) -> list[dict[str, Any]]:
    """Callers who send these shares of the load."""
    return [{"name": f"caller-{n}", "cidrs": [f"10.{32 * n}.0.0/12"], "share": share} for n, share in enumerate(shares)]


def experiment(name: str = "a", **arms: int) -> dict[str, Any]:
    return {"shopper_events": {"enabled": True, "experiment": {"name": name, "arms": arms}}}


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
        pytest.param(SHARDED, id="callers that send as much as each other"),
        pytest.param(MTLS | UNKNOWABLE, id="a limit on a caller that a certificate names"),
        pytest.param(MTLS | {"callers": [ASSISTANT | {"rate": 45.01}, SEARCH]}, id="a limit of a caller's own share"),
    ],
)
def test_what_just_fits_is_accepted(changes: dict[str, Any]) -> None:
    assert dev_fleet({"model.tree": TREE} | changes)


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


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"model.sdk": "2.29"}, "model.sdk", "use 2.28"),
        ({"model.sdk": "2.32"}, "model.sdk", "use 2.28"),
        ({"model.image": "neuron:latest"}, "model.image", "name SDK 2.28"),
        ({"model.async_mode": True}, "model.async_mode", "use false"),
        ({"model.tensor_parallel": 3}, "model.tensor_parallel", "possible: 1, 2"),
        ({"model.tensor_parallel": 8}, "model.tensor_parallel", "possible: 1, 2"),
        ({"model.tensor_parallel": 2}, "model.tensor_parallel", "3 key and value heads"),
        ({"model.weight_bytes": 16 * 2**30}, "model.tensor_parallel", "1.6 GiB lack; span"),
        (CACHED, "model.tensor_parallel", "18.6 GiB lack"),
        ({"model.weight_bytes": 7 * 2**30}, "groups.0.instance_type", "2.0 GiB lack"),
        ({"model.heads": 2}, "model.heads", "depth 3"),
        ({"model.speculation_length": 5}, "model.speculation_length", "must be 6 or more"),
        ({"model.tree": []}, "model.tree", "is empty"),
        ({"model.tree": [[0], [12]]}, "model.tree", "outside 0..9"),
        ({"model.tree": [[0], [10]]}, "model.tree", "outside 0..9"),
        ({"model.tree": [[0], [-1]]}, "model.tree", "outside 0..9"),
        ({"model.tree": [[0], [1, 0]]}, "model.tree", "hangs in the air"),
        ({"model.folder": "models/nowhere"}, "model", "no model.json"),
        ({"model.max_prompt_tokens": 6}, "model.max_prompt_tokens", "by its length"),
        ({"model.sequence_length": 480}, "model.sequence_length", "= 491"),
        ({"model.context_buckets": [6, 384]}, "model.context_buckets", "by its length"),
        ({"model.context_buckets": [64]}, "model.context_buckets", "make them equal"),
        ({"groups.0.minimum": 7}, "groups.0.minimum", "above maximum 6"),
        ({"groups.1.instance_type": "inf2.8xlarge"}, "groups", "one group a chip"),
        ({"groups.0.instance_type": "g5.xlarge"}, "groups.0.instance_type", "not known"),
        ({"maximum_cell_instances": 9}, "groups", "add cells"),
        ({"maximum_cell_instances": 1001}, "maximum_cell_instances", "1000 targets"),
        ({"slo.p99_ms": 100}, "model.service_time", "faster model"),
        ({"traffic.plans_per_minute": 90000}, "traffic", "raise it"),
        ({"events": [EVENT | {"multiplier": 9}]}, "events.0", "raise it"),
        ({"events": [EVENT, EVENT | {"name": "b"}]}, "events", "overlap"),
        ({"events": [EVENT | {"lead_minutes": 15}]}, "events.0.lead_minutes", "two boots"),
        ({"events": [EVENT | {"end": EVENT["start"]}]}, "events.0", "before it starts"),
        ({"load_balancer.scheme": "internet-facing"}, "load_balancer.authentication", "mtls or jwt"),
        ({"load_balancer.authentication": {"method": "mtls"}}, "load_balancer", "trust_bundle"),
        (
            {"load_balancer.authentication": {"method": "mtls", "trust_bundle": "s3://trust/authorities.pem"}},
            "load_balancer.authentication.trust_bundle", "pattern",
        ),
        ({"load_balancer.authentication": {"method": "jwt"}}, "load_balancer", "issuer and jwks"),
        ({"callers.0.cidrs": ["0.0.0.0/0"]}, "callers.0.cidrs", "nearly everyone"),
        ({"callers.0.cidrs": ["8.0.0.0/8"]}, "callers.0.cidrs", "nearly everyone"),
        ({"callers": []}, "callers", "at least 1"),
        ({"caller_shard_cells": 2}, "caller_shard_cells", "2 of 1 cells"),
        ({"availability_zones": ["us-east-1a"]}, "availability_zones", "at least 2"),
        ({"availability_zones.0": "eu-west-1a"}, "availability_zones", "not in us-east-1"),
        ({"availability_zones.0": "us-east-1b"}, "availability_zones", "named twice"),
        ({"network.cell_weights": [256]}, "network.cell_weights", "of 0..255"),
        ({"network.cell_weights": [-1]}, "network.cell_weights", "of 0..255"),
        ({"network.cell_weights": [1, 1]}, "network.cell_weights", "of the 1 cells"),
        ({"network.cell_weights": [0]}, "network.cell_weights", "not all 0"),
        ({"network.cidr": "8.8.0.0/16"}, "network.cidr", "RFC 1918"),
        ({"network.cidr": "10.64.0.0/14"}, "network.cidr", "a VPC of /16 to /28"),
        ({"network.cidr": "10.64.0.0/29"}, "network.cidr", "a VPC of /16 to /28"),
        ({"network.cidr": "10.64.0.0/24"}, "network.cidr", "use a larger block"),
        (
            {"maximum_cell_instances": 1000, "groups.0.maximum": 990, "network.cidr": "10.64.0.0/22"},
            "network.cidr", "with a zone lost: use a larger block",
        ),
        ({"callers.0.cidrs": []}, "callers.0", "nobody could come in"),
        (
            {"access": {"privatelink": False}, "callers.0.accounts": ["111122223333"]},
            "callers.0.accounts", "turn it on",
        ),
        (
            {"access": {"transit_gateway": "tgw-0123456789abcdef0"}, "callers.0.cidrs": ["10.40.8.0/24"]},
            "callers.0.cidrs", "no route can tell them apart",
        ),
        ({"access": {"transit_gateway": "tgw-0123456789abcdef0", "peering": "pcx-01234567"}}, "access", "one route"),
        (
            {"load_balancer": {"scheme": "internet-facing", "certificate_parameter": "/c"}},
            "access.privatelink", "set it to false",
        ),
        ({"network.endpoints": [{"service": "s3"}]}, "network.endpoints.0", "required"),
        ({"retention_days": 8}, "retention_days", "offers 1, 3, 5, 7"),
        ({"on_call": "nobody"}, "on_call", "pattern"),
        ({"model.service_time.p99_ms": 10}, "model.service_time", "below mean_ms"),
        ({"surges": 2}, "surges", "did you mean `surge`?"),
        ({"surge.times": 60}, "surge.times", "maximum"),
        ({"surge.recover": "100s"}, "surge.recover", "needs 170 s"),
        ({"warm_start_seconds": 400}, "surge.recover", "promise that"),
        ({"surge.within": "soon"}, "surge.within", "write 60s"),
        ({"surge.absorb": 9}, "surge", "lower absorb"),
        ({"groups.0.minimum": 1}, "groups.0.minimum", "write 3"),
        ({"traffic.forecast": NIGHTS, "groups.0.minimum": 2}, "groups.0.minimum", "quietest"),
        ({"traffic.forecast": TWICE}, "traffic.forecast", "same time"),
        ({"traffic.time_zone": "Mars/Olympus"}, "traffic.time_zone", "tz database"),
        ({"groups.0.engine": "torch"}, "groups.0.engine", "chips idle"),
        ({"groups.0.instance_type": "c7i.4xlarge"}, "groups.0.engine", "engine: torch"),
        ({"groups.0.instance_type": "c8g.4xlarge"}, "groups.0.engine", "engine: torch"),
        ({"runbooks": "docs/runbooks"}, "runbooks", "pattern"),
        ({"model.service_time": SLOW}, "model.service_time", "only 19% busy inside an SLO of 300"),
        ({"surge.within": 0}, "surge.within", "greater than or equal to 1"),
        ({"groups.0.reserve": True, "events": []}, "groups.0.reserve", "no events to reserve for"),
        (
            {"events": [EVENT | {"multiplier": 1, "lead_minutes": 120, "reserve_hours": 1}]},
            "events.0", "reserves after its hosts start",
        ),
        ({"groups": [GRAVITON["groups.2"]]}, "groups", "all stand in"),
        (GRAVITON | {"groups.2.minimum": 2}, "groups.2.minimum", "2 of a group that stands in"),
        (SHARDED | {"callers": shared(0.9, 0.1)}, "traffic.plans_per_minute", "needs 8 inf2.xlarge a cell"),
        ({"callers": shared(0.7, 0.4)}, "callers", "shares add up to 1.1"),
        ({"callers": shared(0.5, 0.4)}, "callers", "shares add up to 0.9"),
        (
            {"cells": 2, "caller_shard_cells": 2, "network.cell_weights": [0, 1]},
            "caller_shard_cells", "2 of 1 cells with callers",
        ),
        (UNKNOWABLE, "callers.1.rate", "search-page comes by PrivateLink alone"),
        # Two replicas, 40 ms a plan, nine tenths of them the assistant's.
        (MTLS | {"callers": [ASSISTANT | {"rate": 40}, SEARCH]}, "callers.0.rate", "40 a second is less than the 45"),
        ({"shared_cache": {"nodes": 4}}, "shared_cache.nodes", "4 nodes over 3 zones"),
        ({"shared_cache": {"node_type": "cache.m1.small"}}, "shared_cache", "is not known"),
        ({"shopper_events": {"bucket": True}}, "shopper_events", "bucket needs enabled: true"),
        ({"shopper_events": {"experiment": {"name": "a", "arms": ARMS}}}, "shopper_events", "needs enabled: true"),
        (experiment(control=0, rules=0), "shopper_events.experiment", "a share above 0"),
        (experiment(control=1), "shopper_events.experiment.arms", "at least 2"),
        (experiment("a b", **ARMS), "shopper_events.experiment.name", "pattern"),
        (experiment(**{"control": 1, "x,y=3": 1}), "shopper_events.experiment.arms", "pattern"),
    ],
)  # fmt: skip
def test_a_broken_rule_names_field_and_remedy(tmp_path: Path, changes: dict[str, Any], field: str, words: str) -> None:
    message = refusal(tmp_path, changes)
    assert any(line.strip().startswith(field) and words in line for line in message.splitlines()), message


@pytest.mark.parametrize("length", [{}, {"model.speculation_length": 5}], ids=["left out", "given"])
def test_a_chain_of_four_heads_fits_nxdi(length: dict[str, int]) -> None:
    assert dev_fleet({"model.tree": CHAIN} | length).model.speculation_length == len(CHAIN) + 1


def test_rules_over_several_fields_name_their_source(tmp_path: Path) -> None:
    message = refusal(tmp_path, {"model.sdk": "2.29", "model.async_mode": True})
    assert "release notes" in message
    assert "2.28" in message
    assert "model.async_mode" in message, "every broken rule is named at once"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "not YAML"),
        ("- a", "expected keys"),
        ("", "expected keys"),
        (None, "dev, dev-cpu, mistral-7b, prime-day"),  # the fleets that ship
    ],
)
def test_what_is_no_fleet_file_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "fleet.yaml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(FleetFileError, match=words):
        FleetSettings.from_yaml(file)


def test_a_cell_may_run_on_processors_alone() -> None:
    time = {"mean_ms": 50, "p99_ms": 150, "source": "measured: a test's own figure"}
    group = {"instance_type": "c7a.4xlarge", "engine": "torch", "minimum": 3, "maximum": 6, "service_time": time}
    settings = dev_fleet({"groups": [group]})
    (cpu,) = settings.groups
    assert cpu.chip == "cpu"
    assert sizing.replicas_per_instance(cpu, 2) == 16
    assert sizing.target_utilisation(settings, cpu) == 0.7


def test_one_address_is_told_of_everything_and_two_of_what_each_is_for() -> None:
    one = dev_fleet({"on_call": "a@example.com"}).on_call
    two = dev_fleet({"on_call": {"page": "a@example.com", "ticket": "b@example.com"}}).on_call
    assert (one.page, one.ticket, two.page, two.ticket) == (*["a@example.com"] * 3, "b@example.com")


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("3m", 180), ("1h", 3600), (45, 45)])
def test_durations_are_written_as_people_write_them(text: str | int, seconds: int) -> None:
    assert dev_fleet({"surge.recover": "1h", "surge.within": text}).surge.within == seconds


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
    shape, intents = {"vocab_size": 32000, "num_attention_heads": 8}, {"intents": {"find": {}, "other": {}}}
    (tmp_path / "base").mkdir()
    for name, said in (("model", card), ("base/config", shape), ("vocabulary", intents)):
        (tmp_path / f"{name}.json").write_text(json.dumps(said), encoding="utf-8")
    expected = {"id": "mine", "vocabulary": 32000, "intents": 2, "heads": 0, "tree": [], "max_plan_tokens": 64}
    expected |= {"attention_heads": 8, "key_value_heads": 8, "work_by_choice": 1.0}
    assert read_model_folder(tmp_path) == expected
    (tmp_path / "reader.json").write_text(json.dumps({"bound": {"worth": 0.1, "work": 0.7}}), encoding="utf-8")
    assert read_model_folder(tmp_path)["work_by_choice"] == 0.7


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1"], ids=["empty", "LFS pointer"])
def test_heads_that_were_not_fetched_are_refused_in_words(tmp_path: Path, content: bytes) -> None:
    card = {"id": "mine", "base": "smollm2-135m-instruct", "max_tokens": 64}
    (tmp_path / "model.json").write_text(json.dumps(card), encoding="utf-8")
    (tmp_path / "vocabulary.json").write_text(json.dumps({"intents": {}}), encoding="utf-8")
    (tmp_path / "medusa_heads.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="git lfs pull"):
        read_model_folder(tmp_path)


LINE = "{like: mine.yaml, name: mine-eu, region: eu-west-1, availability_zones: [eu-west-1a, eu-west-1b, eu-west-1c]}\n"


def second_fleet(folder: Path, line: str = LINE) -> FleetSettings:
    (folder / "mine.yaml").write_text(yaml.safe_dump(dev_with({"name": "mine"})), encoding="utf-8")
    (folder / "mine-eu.yaml").write_text(line, encoding="utf-8")
    return FleetSettings.from_yaml(folder / "mine-eu.yaml")


def test_it_is_the_first_fleet_in_another_region(tmp_path: Path) -> None:
    other = second_fleet(tmp_path)
    first = FleetSettings.from_yaml(tmp_path / "mine.yaml")
    own = ("name", "region", "availability_zones")
    assert (other.name, other.region, other.availability_zones[0]) == ("mine-eu", "eu-west-1", "eu-west-1a")
    assert other.model_dump(exclude=set(own)) == first.model_dump(exclude=set(own))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{like: mine.yaml, region: eu-west-1}", "name: mine.yaml has the same"),
        ("{like: nowhere.yaml, name: b}", "nowhere.yaml: cannot be read"),
        ("{like: mine-eu.yaml, name: b}", "mine-eu.yaml is itself like another"),
        ("{like: [mine.yaml], name: b}", "is no file; name the fleet file"),
        ("{like: mine.yaml, name: b, region: nowhere}", "region: String should match pattern"),
    ],
)
def test_what_it_cannot_be_like_is_refused_in_words(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(FleetFileError) as refused:
        second_fleet(tmp_path, line)
    assert said in str(refused.value)


def understood(environment: dict[str, str]) -> AuthSettings:
    """The environment as the service reads it."""
    return AuthSettings.model_validate(
        {name.removeprefix("PEAKPLAN_").lower(): value for name, value in environment.items()}
    )


def test_hosts_know_callers_by_what_the_load_balancer_verifies() -> None:
    limited = {"callers": [ASSISTANT | {"rate": 100}, SEARCH]}
    certified = understood(caller_environment(dev_fleet(MTLS | limited)))
    assert (certified.caller_from, certified.rates) == ("certificate", {"assistant": 100.0})
    tokened = understood(caller_environment(dev_fleet(JWT | limited)))
    assert (tokened.caller_from, tokened.caller_claim) == ("token", "client_id")
    mtls = {"method": "mtls", "trust_bundle": "s3://trust-{account}/authorities.pem?versionId=abc"}
    trusted = dev_fleet({"load_balancer.authentication": mtls}).load_balancer.authentication.trusted("123456789012")
    assert trusted == ("trust-123456789012", "authorities.pem", "abc"), "a changed bundle is a changed template"


def test_the_service_reads_what_a_host_is_told_of_events_and_arms_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file's order is the clients': another one would put shoppers into other arms than the client says."""
    fleet = dev_fleet(experiment("autumn", **{"routing-off": 30, "control": 50, "2": 20}))
    told = events_environment(fleet)
    assert "PEAKPLAN_OUTCOMES_DIR=/var/lib/peakplan/outcomes" in user_data(told).render()
    assert "PEAKPLAN_EXPERIMENT_ARMS=routing-off=30,control=50,2=20" in user_data(told).render()
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert (str(settings.outcomes.dir), settings.outcomes.files) == ("/var/lib/peakplan/outcomes", 64)
    assert settings.experiment.name == "autumn"
    assert list(settings.experiment.shares.items()) == [("routing-off", 30), ("control", 50), ("2", 20)]
    assert events_environment(dev_fleet()) == {}
    most_gigabytes = len(KINDS) * (FILES + 1) * FILE_MEGABYTES / 1000
    assert most_gigabytes < min(volume_gib(fleet, group) for group in fleet.groups) / 4, "the image has the rest"


def test_without_authentication_networks_name_the_callers() -> None:
    told = understood(caller_environment(dev_fleet({"callers": [ASSISTANT, SEARCH]})))
    assert told.caller_from == "forwarded"
    assert [(name, str(network)) for name, network in told.networks] == [
        ("assistant", "10.32.0.0/16"),
        ("privatelink", "10.40.0.0/16"),
    ]


ALONE = {
    "groups": [GRAVITON["groups.2"] | {"instance_type": "c7g.4xlarge", "stands_in": False, "maximum": 9}],
    "traffic.plans_per_minute": 1000,
}


def test_each_group_boots_the_image_of_its_architecture() -> None:
    fleet = dev_fleet(GRAVITON)
    main, beside = images(fleet)
    assert [image_of(fleet, group) for group in fleet.groups] == [main, main, beside]
    assert (main.stack_parameter, beside.stack_parameter) == ("MachineImageId", "Arm64MachineImageId")
    assert beside.parameter == f"{main.parameter}-arm64"
    assert (main.baked_on.instance_type, beside.baked_on.instance_type) == ("inf2.xlarge", "c8g.4xlarge")
    assert ("neuron" in main.container, "neuron" in beside.container) == (True, False)
    chips, processors = (component_parameters(fleet, image) for image in (main, beside))
    assert (chips["CHIPS"], processors["CHIPS"]) == ("inf2 trn1", "cpu"), "nothing is compiled for processors"
    assert "PEAKPLAN_ENGINE=triton" in chips["SETTINGS"]
    assert "PEAKPLAN_ENGINE=torch" in processors["SETTINGS"]
    for changes, architecture in (({}, "x86_64"), (ALONE, "arm64")):
        (image,) = images(dev_fleet(changes))
        assert (image.architecture, image.stack_parameter) == (architecture, "MachineImageId")


GREEDY = {"model.strategy": "autoregressive", "model.heads": 0, "model.tree": [], "model.speculation_length": 0}
TWO_CORES = {"model.tensor_parallel": 2, "model.key_value_heads": 4, "model.attention_heads": 8}
DRAFT = {"folder": "/opt/peakplan/draft", "method": "eagle", "tokens": 5}


def with_tree(changes: dict[str, Any]) -> FleetSettings:
    return dev_fleet({"model.tree": TREE} | changes)


def options(arguments: list[str]) -> dict[str, str]:
    """`vllm serve`'s options that take a value."""
    return dict(zip(arguments[4::2], arguments[5::2], strict=True))


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


def test_vllm_has_a_server_a_replica_which_the_gateway_is_told_of() -> None:
    large = with_tree({"groups": [{"instance_type": "inf2.24xlarge", "minimum": 3, "maximum": 6}]} | TWO_CORES)
    environment = gateway(large, large.groups[0])
    visible = [server.environment["NEURON_RT_VISIBLE_CORES"] for server in servers(large, large.groups[0])]
    assert visible == ["0-1", "2-3", "4-5", "6-7", "8-9", "10-11"]
    assert environment["PEAKPLAN_OPENAI_URL"].count("http://") == 6 == int(environment["PEAKPLAN_REPLICAS"])
    drafted = with_tree({"model.draft": DRAFT})
    server, _ = servers(drafted, drafted.groups[0])
    assert json.loads(options(server.arguments)["--speculative-config"]) == {
        "model": "/opt/peakplan/draft", "method": "eagle", "num_speculative_tokens": 5,
        "max_model_len": drafted.model.sequence_length,
    }  # fmt: skip
    assert gateway(drafted, drafted.groups[0])["PEAKPLAN_STRATEGY"] == "draft"
    batched = with_tree(GREEDY | {"model.batch_size": 4})
    server, _ = servers(batched, batched.groups[0])
    assert options(server.arguments)["--max-num-seqs"] == options(server.arguments)["--num-gpu-blocks-override"] == "4"
    assert gateway(batched, batched.groups[0])["PEAKPLAN_REPLICAS"] == "8"


SHORT = GREEDY | {"model.sequence_length": 481, "model.max_prompt_tokens": 384, "model.max_plan_tokens": 96}
OLD = {"model.sdk": "2.27", "model.image": "neuron:2.9.0-neuronx-py312-sdk2.27.0-ubuntu24.04"}


@pytest.mark.parametrize(
    ("changes", "why"), [(SHORT | {"model.draft": DRAFT}, "486 are needed"), (OLD, r"no vLLM is known for 2\.27")]
)
def test_what_vllm_could_not_run_is_refused(changes: dict[str, Any], why: str) -> None:
    with_tree(SHORT)  # without a draft it is enough
    with pytest.raises(FleetFileError, match=why):
        script(with_tree(changes))


def test_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(dev_with({"model.tree": TREE})), encoding="utf-8")
    assert main(["vllm", str(file)]) == 0
    printed = capsys.readouterr().out
    for words in (
        "vllm-neuronx:0.13.0-neuronx-py312-sdk2.28.0",
        "export PEAKPLAN_ENGINE=openai",
        "Not run on hardware",
    ):
        assert words in printed


def test_nxdi_s_fixed_numbers_are_the_same() -> None:
    assert catalogue().tensor_parallel == configuration.TENSOR_PARALLEL
    assert configuration.CANDIDATES == MEDUSA_RANKS


def test_the_work_that_the_reader_leaves_is_what_its_bound_says(tmp_path: Path) -> None:
    folder = bounded_model(tmp_path / "model", 0.3)
    bound = Reader.load(folder).choices.bound
    assert bound is not None
    assert read_model_folder(folder)["work_by_choice"] == bound.work < 1
    assert get_args(Model.model_fields["routing"].annotation) == get_args(Routing)


def fleet_takes(model: dict[str, Any]) -> bool:
    """Whether a fleet of one chip family may run this model."""
    changes = {f"model.{name}": value for name, value in model.items()}
    groups = [{"instance_type": "inf2.xlarge", "minimum": 3, "maximum": 12}]
    few = {"traffic.plans_per_minute": 300}  # which a replica over both cores carries, too
    try:
        FleetSettings.model_validate(dev_with({"groups": groups} | few | changes))
    except ValidationError:
        return False
    return True


def service_takes(model: dict[str, Any]) -> bool:
    """Whether the service would compile it for the same chip."""
    same = ("tensor_parallel", "max_prompt_tokens", "sequence_length", "speculation_length", "batch_size", "graph")
    given = {name: model[name] for name in same} | {"max_new_tokens": model["max_plan_tokens"]}
    settings = CompileSettings(**given, context_buckets=tuple(model["context_buckets"]))
    heads = {name: model[name] for name in ("attention_heads", "key_value_heads")} | {"num_heads": model["heads"]}
    tree = tuple(map(tuple, model["tree"]))
    described: Any = SimpleNamespace(vocab_size=model["vocabulary"], tree=tree, **heads)
    try:
        neuron_arguments(described, settings)
    except ConfigurationError:
        return False
    return True


@given(
    st.fixed_dictionaries(
        {
            "vocabulary": st.sampled_from([49152, 49153]),
            "heads": st.integers(2, 4),
            "attention_heads": st.just(12),
            "key_value_heads": st.sampled_from([3, 4, 12]),
            "tree": st.sampled_from([CHAIN[:3], [[0], [1], [0, 9]], [[0], [10]], [[1, 0]], []]),
            "tensor_parallel": st.sampled_from([1, 2]),
            "max_prompt_tokens": st.sampled_from([4, 380, 400]),
            "max_plan_tokens": st.just(96),
            "sequence_length": st.sampled_from([0]) | st.integers(480, 512),
            "speculation_length": st.sampled_from([0, 4, 5, 64]),
            "context_buckets": st.sampled_from([[], [32, 380], [64, 400]]),
            "batch_size": st.sampled_from([1, 8]),
            "graph": st.sampled_from(["tree", "chain"]),
        }
    )
)
def test_a_fleet_takes_exactly_the_models_that_the_service_compiles(model: dict[str, Any]) -> None:
    assert fleet_takes(model) == service_takes(model)


@pytest.mark.parametrize("base", KNOWN_BASES)
def test_a_known_base_has_the_shape_that_the_service_reads(base: str) -> None:
    made = sorted(Settings().cache_dir.glob(f"{base}-*/config.json"))
    if not made:
        pytest.skip(f"the base weights are not in {Settings().cache_dir}: any start of the service puts them there")
    assert json.loads(made[-1].read_text(encoding="utf-8")).items() >= KNOWN_BASES[base].items()
