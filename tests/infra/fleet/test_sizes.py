"""What planners of other sizes cost by instance: formulae that agree with what was measured and published."""

from dataclasses import replace

import pytest

from infra.fleet.__main__ import main
from infra.fleet.cost import Prices
from infra.fleet.cost_report import cpu_service_time
from infra.fleet.instances import catalogue
from infra.fleet.model_folder import _memory
from infra.fleet.neuron_estimate import CACHE_PASSES, CHIPS, POSITIONS, Deployed, Loop
from infra.fleet.planners import GIB, MISTRAL, PLANNERS, SHIPPED, Planner
from infra.fleet.settings import FLEETS, FleetSettings
from infra.fleet.sizes import KINDS, NoWay, Way, pays_from, table, way

PRICES = Prices.from_json()
EIGHT = next(planner for planner in PLANNERS if planner.name.startswith("8B"))


@pytest.mark.parametrize(
    ("planner", "billions"),
    [*zip(PLANNERS, (0.1345, 0.3618, 1.236, 3.213, 7.242, 8.030), strict=True)],
    ids=lambda each: str(each),
)
def test_a_shape_has_the_parameters_that_its_base_is_published_with(planner: Planner, billions: float) -> None:
    assert planner.parameters / 1e9 == pytest.approx(billions, rel=0.001)


def test_the_shipped_planner_s_way_is_what_its_own_tables_say() -> None:
    found, own = way(SHIPPED, "c7a.4xlarge", PRICES), cpu_service_time("c7a.4xlarge")
    assert isinstance(found, Way)
    assert own is not None
    assert found.per_million == pytest.approx(0.82112 / 3600 / (16 * 1000 / own.mean_ms) * 1e6, rel=0.01)


def test_a_larger_planner_reads_more_and_takes_longer_everywhere() -> None:
    for kind in KINDS:
        ways = [found for planner in PLANNERS if isinstance(found := way(planner, kind, PRICES), Way)]
        assert [each.per_million for each in ways] == sorted(each.per_million for each in ways)
        assert all(each.p99_ms <= 300 for each in ways)


def test_8b_on_two_cores_takes_what_its_weights_over_their_memory_take() -> None:
    loop, deployed = Loop.read(), Deployed(EIGHT, "inf2", cores=2)
    read = EIGHT.layer_bytes / 2 / CHIPS["inf2"].bytes_per_ms
    assert read < deployed.step_ms < 1.15 * read
    assert deployed.busy_ms(loop) > loop.forwards * deployed.step_ms
    assert replace(deployed, cores=1, batch=8).lacking_gib(16) > 0, "one core has not the memory"
    assert deployed.lacking_gib(16) == 0


def test_seven_billion_answer_on_the_large_instances_of_either_chip_and_on_no_small_one() -> None:
    for kind in ("inf2.24xlarge", "inf2.48xlarge", "trn1.32xlarge"):
        found = way(MISTRAL, kind, PRICES)
        assert isinstance(found, Way)
        assert "48 rows" in found.how, "where a step mostly reads weights, rows are nearly free"
    assert isinstance(way(MISTRAL, "inf2.xlarge", PRICES), NoWay)


def test_the_seed_s_fleet_states_what_the_formulae_say() -> None:
    fleet = FleetSettings.from_yaml(FLEETS / "mistral-7b.yaml")
    model, loop = fleet.model, Loop.read(rows=48)
    for group in fleet.groups:
        deployed = Deployed(MISTRAL, group.chip, model.batch_size, model.tensor_parallel, model.speculation_length)
        assert model.service_time.mean_ms == pytest.approx(deployed.busy_ms(loop), rel=0.05)
        assert model.service_time.p99_ms == pytest.approx(deployed.p99_ms(loop), rel=0.05)
    assert model.weight_bytes == MISTRAL.layer_bytes + MISTRAL.embedding_bytes
    assert fleet.slo.p99_ms == 300
    prime_day = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
    assert fleet.traffic == prime_day.traffic
    assert fleet.surge.times == prime_day.surge.times


def test_a_step_passes_the_cache_whose_positions_it_attends_to() -> None:
    deployed = Deployed(MISTRAL, "inf2", batch=4, cores=8)
    wide = replace(deployed, planner=replace(MISTRAL, key_value_heads=32))
    more = (wide.planner.cache_bytes(POSITIONS, 4) / 8 - MISTRAL.cache_bytes(POSITIONS, 4) / 8) * CACHE_PASSES
    weights = wide.planner.layer_bytes / 8 - MISTRAL.layer_bytes / 8
    rate, flops = CHIPS["inf2"].bytes_per_ms, CHIPS["inf2"].flops_per_ms
    expected = (more + weights) / rate + 4 * deployed.rows * weights / flops
    assert wide.step_ms - deployed.step_ms == pytest.approx(expected)


def test_what_does_not_run_says_why() -> None:
    slow, small = way(EIGHT, "c7a.4xlarge", PRICES), way(replace(EIGHT, layers=400), "c7a.4xlarge", PRICES)
    assert isinstance(slow, NoWay)
    assert slow.reason.startswith("p99 ")
    assert isinstance(small, NoWay)
    assert small.reason.endswith("GiB lack")


def test_each_instance_pays_from_a_size_on() -> None:
    rows = table(PRICES)
    assert pays_from(rows, "inf2.xlarge") == next(planner for planner in PLANNERS if planner.name.startswith("360M"))
    assert pays_from(rows, "trn2.3xlarge") == next(planner for planner in PLANNERS if planner.name.startswith("3B"))
    assert pays_from(rows, "c8g.4xlarge") == SHIPPED, "by a stated time: nobody has timed an arm64 core"
    assert pays_from(rows, "trn1.2xlarge") is None


def test_make_cost_prints_every_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "dev"]) == 0
    printed = capsys.readouterr().out
    assert all(f"{planner.name} on {kind}: " in printed for planner in PLANNERS for kind in KINDS)


def test_the_memory_of_a_folder_s_base_is_that_of_its_shape() -> None:
    config = {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256,
    }  # fmt: skip
    found = _memory(config)
    assert found["weight_bytes"] == EIGHT.layer_bytes + EIGHT.embedding_bytes
    assert found["cache_bytes"] * 512 == EIGHT.cache_bytes(512)
    assert found["weight_bytes"] / GIB == pytest.approx(14, abs=0.1)
    assert _memory({"vocab_size": 3, "num_attention_heads": 2}) == {}


def test_a_chip_of_trn2_has_four_logical_cores() -> None:
    types = catalogue().types
    assert types["trn2.3xlarge"].cores == catalogue().cores_per_chip["trn2"] == 4
    assert types["trn2.48xlarge"].device_gib == 16 * types["trn2.3xlarge"].device_gib
