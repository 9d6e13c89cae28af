"""Cost: the arithmetic adds up, is printed, agrees with what was measured and published, and follows the price file."""

import json
import logging
import math
from dataclasses import replace
from pathlib import Path

import pytest

from infra.fleet import addresses, neuron_estimate, sizing
from infra.fleet.__main__ import main
from infra.fleet.cost import (
    HOURS_A_MONTH,
    LOGGED_A_PLAN,
    METRICS_A_HOST_FLUSH,
    METRICS_A_PLAN,
    Prices,
    bills,
    mean_floor,
    mean_share,
    spending,
)
from infra.fleet.cost import PRICES as PRICE_FILE
from infra.fleet.cost_report import (
    CPU_TYPES,
    FIGURES,
    KINDS,
    NoWay,
    Way,
    by_routing,
    cpu_service_time,
    options,
    routed,
    way,
)
from infra.fleet.instances import catalogue, processor
from infra.fleet.model_folder import MISTRAL, PLANNERS, SHIPPED, Planner
from infra.fleet.neuron_estimate import Deployed, Loop, Measured, layer_bytes, plan_bytes
from infra.fleet.settings import FLEETS, FleetSettings
from infra.operations.quotas import needs
from service.telemetry.logs import JsonFormatter
from service.telemetry.metrics import EmfCollector, Metrics, Outcome, Reading
from tests.infra.fleet.fleets import dev_fleet

PRIME_DAY, PRICES = FleetSettings.from_yaml(FLEETS / "prime-day.yaml"), Prices.from_json()


def test_rules_by_choice_leave_a_smaller_fleet_for_the_same_plans(capsys: pytest.CaptureFixture[str]) -> None:
    model = PRIME_DAY.model.model_copy(update={"work_by_choice": 0.6})
    settings = PRIME_DAY.model_copy(update={"model": model})
    always = routed(settings, "always")
    for group in settings.groups:
        assert sizing.group_rate(always, group, 4) == pytest.approx(0.6 * sizing.group_rate(settings, group, 4))
    unrouted = {bill.load: bill.hourly for bill in bills(PRIME_DAY, PRICES)}
    for off, chosen in by_routing(settings, PRICES):
        assert off.plans_per_minute == chosen.plans_per_minute
        assert unrouted[off.load] == off.hourly > chosen.hourly
    event = [chosen.hourly / off.hourly for off, chosen in by_routing(settings, PRICES)][1]
    assert event == pytest.approx(0.6, abs=0.05), "hosts are nearly all of an event's bill"
    assert main(["cost", "prime-day"]) == 0
    assert "prime-day-2027: off, overload" in capsys.readouterr().out


def test_prime_day_is_sized_for_a_million_plans_a_minute_and_every_instance_type_has_a_price() -> None:
    assert set(PRICES.instance_hour) == set(catalogue().types)
    peak = max(bills(PRIME_DAY, PRICES), key=lambda bill: bill.plans_per_minute)
    assert peak.plans_per_minute == 1_000_000
    assert peak.per_million_plans == pytest.approx(peak.hourly / 60)
    instances = sum(item.count for item in peak.items if item.what.endswith("in service"))
    plans_a_second = instances * 2 / 3 * 2 * 0.6162 / 0.040  # one zone of three lost, each of two replicas 61.62% busy
    assert plans_a_second >= 1_000_000 / 60


def test_the_bill_follows_the_price_file_and_what_cannot_be_read_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = json.loads(PRICE_FILE.read_text(encoding="utf-8"))
    prices["instance_hour"]["inf2.xlarge"] = 100
    dearer = tmp_path / "prices.json"
    dearer.write_text(json.dumps(prices), encoding="utf-8")
    assert main(["cost", "dev", "--prices", str(dearer)]) == 0
    assert "300.00  inf2.xlarge in service: 3 x 100" in capsys.readouterr().out
    dearer.write_text("{}", encoding="utf-8")
    assert main(["cost", "dev", "--prices", str(dearer)]) == 2
    assert "not a price file" in capsys.readouterr().err
    assert main(["check", "nowhere"]) == 2
    assert "Fleets that ship: dev, dev-cpu, mistral-7b, prime-day" in capsys.readouterr().err


def test_the_arithmetic_source_and_date_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    measured, stated = cpu_service_time("c7i.4xlarge"), cpu_service_time("c8g.4xlarge")
    assert measured is not None
    assert stated is not None
    assert main(["cost", "prime-day"]) == 0
    printed = capsys.readouterr().out
    for words in (
        "16,666.7 plans a second",
        "1 - 40 ln(100) / (2 (300 - 60))",
        "a million plans",
        "STATED",
        "not measured on hardware",
        f"service time of c7i.4xlarge: {measured.mean_ms:g} ms, measured",
        f"service time of c8g.4xlarge: {stated.mean_ms:g} ms, stated, no arm64 core was timed",
        "network load balancers, for PrivateLink",
        "network load balancer capacity units",
        "inf2.xlarge alone",
        "as in the file",
        "half inf2.xlarge, half c7",
        "request logs",
        "metrics in logs (EMF)",
        "flow logs",
        "access logs kept",
        "custom metrics",
        "metrics in alarms of 10 s",
        "detailed monitoring",
    ):
        assert words in printed
    assert PRICES.date in printed


def test_what_is_logged_and_measured_of_a_plan_weighs_what_the_bill_says() -> None:
    """By the service's own code: a request's log line, its values in metrics, and what a quiet host reports."""

    def reported(plans: int) -> int:
        metrics = Metrics(
            lambda: Reading(totals={"Admitted": plans}, asked=plans, service_seconds=0.02, replicas=1),
            300,
            EmfCollector({"Fleet": "prime-day", "Cell": "cell-1", "Group": "inf2", "Release": "ami-0123456789abcdef0"}),
        )
        for number in range(plans):
            metrics.arrived()
            metrics.planned(
                Outcome(
                    source="model",
                    milliseconds=20 + number / 7,
                    degraded=False,
                    queue_milliseconds=number / 13,
                    tokens_per_step=2 + number / 100,
                    forced_percent=10 + number / 9,
                    intent="find_product",
                )
            )
        return sum(len(line) + 1 for line in metrics.lines())

    assert reported(0) == pytest.approx(METRICS_A_HOST_FLUSH, rel=0.25)
    assert (reported(600) - reported(0)) / 600 == pytest.approx(METRICS_A_PLAN, rel=0.25)
    fields = {"request_id": "0" * 32, "status": 200, "milliseconds": 52.93, "source": "model", "intent": "find_product"}
    fields |= {"queue_ms": 0.038, "model_ms": 49.832, "steps": 3, "plan_tokens": 13}
    record = logging.makeLogRecord({"name": "service.api", "levelname": "INFO", "msg": "POST /plan", **fields})
    assert len(JsonFormatter().format(record)) + 1 == pytest.approx(LOGGED_A_PLAN, rel=0.25)


def test_options_are_compared_on_the_ordinary_peak_and_say_their_ground() -> None:
    found = {option.name: option for option in options(PRIME_DAY, PRICES)}
    cheapest, *_ = options(PRIME_DAY, PRICES)
    assert {"as in the file", *(f"{kind} alone" for kind in ("inf2.xlarge", *CPU_TYPES))} <= set(found)
    assert found["c8g.4xlarge alone"].ground == "stated"
    inf2 = found["inf2.xlarge alone"]
    assert inf2.counts == (("inf2.xlarge", math.ceil(250_000 / 60 / (0.61624 / 0.02))),)
    assert (inf2.ground, found["c7a.4xlarge alone"].ground) == ("stated", "measured elsewhere")
    assert cheapest.hourly == min(option.hourly for option in found.values())


def test_network_load_balancers_cost_where_callers_come_by_privatelink() -> None:
    def lines(fleet: FleetSettings) -> dict[str, float]:
        return {item.what: item.count for item in bills(fleet, PRICES)[0].items}

    found = lines(PRIME_DAY)
    assert found["network load balancers, for PrivateLink"] == PRIME_DAY.cells
    assert found["network load balancer capacity units"] == found["load balancer capacity units"]
    routed = PRIME_DAY.access.model_copy(update={"privatelink": False})
    assert lines(PRIME_DAY.model_copy(update={"access": routed}))["network load balancers, for PrivateLink"] == 0


def test_a_step_of_the_estimate_is_the_published_latency_of_a_model_that_was_measured() -> None:
    """bert-base has 170 MB of layers in bfloat16, and AWS publishes 0.999 ms for it on a core of inf2.xlarge."""
    bert = neuron_estimate.FIXED_MS + 170e6 / neuron_estimate.BYTES_PER_MS
    assert bert == pytest.approx(0.999, rel=0.02)
    assert neuron_estimate.layer_bytes() == 212_336_640


def test_estimates_are_printed_for_every_kind_with_their_formula(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "dev"]) == 0
    printed = capsys.readouterr().out
    loop = neuron_estimate.Loop.read()
    for batch in neuron_estimate.BATCHES:
        rate = neuron_estimate.plans_per_second("inf2.xlarge", loop, batch)
        assert rate == pytest.approx(2 * batch * 1000 / neuron_estimate.busy_ms(loop, batch)), "a replica a core"
        million = 0.7582 / 3600 / rate * 1e6
        assert f"{rate:.0f}  plans a second, {million:.2f} USD a million: inf2.xlarge, batch {batch}" in printed
    for kind in ("inf2.8xlarge", "trn1.2xlarge", "c7i.4xlarge", "c8g.4xlarge"):
        assert f"a million: {kind}, " in printed
    assert all(f"{planner.name} on {kind}: " in printed for planner in PLANNERS for kind in KINDS)
    assert "no Neuron chip was used" in printed


def test_the_week_s_average_is_below_its_peak() -> None:
    inf2 = PRIME_DAY.groups[0]
    assert inf2.minimum < mean_floor(PRIME_DAY, inf2) < sizing.floor_for(PRIME_DAY, inf2)
    assert 0.35 < mean_share(PRIME_DAY) < 1


def test_programs_get_the_same_bill_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "prime-day", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    prices = PRICES
    for each, bill in zip(told["loads"], bills(PRIME_DAY, prices), strict=True):
        assert each["hourly"] == pytest.approx(sum(item["hourly"] for item in each["items"]))
        assert (each["load"], each["hourly"]) == (bill.load, pytest.approx(bill.hourly))
    assert (told["currency"], told["prices"]["date"]) == (prices.currency, prices.date)
    assert all(each["counts"] and each["hourly"] > 0 for each in told["alternatives"])
    assert main(["check", "dev", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sound"]


@pytest.mark.parametrize("kind", CPU_TYPES)
def test_a_host_reads_no_more_than_its_share_of_the_socket(kind: str) -> None:
    time, cores, socket = cpu_service_time(kind), catalogue().types[kind].cores, processor(kind)
    assert time is not None
    read = cores * 1000 / time.mean_ms * plan_bytes(FIGURES)
    assert read <= 1.002 * socket.gigabytes_per_second * 1e9 * cores / socket.cores


def figures(folder: Path, **machines: tuple[str, str, float, bool]) -> Path:
    """Figures of decoding: each machine's processor, kernel and forwards, and whether the kernel was forced."""
    decoding = {
        name: {"machine": {"processor": processor}, "kernel": kernel, "forced": forced}
        | {"strategies": {"medusa": {"forwards": forwards}}}
        for name, (processor, kernel, forwards, forced) in machines.items()
    }
    (folder / "decoding.json").write_text(json.dumps({"machines": decoding}), encoding="utf-8")
    (folder / "serving.json").write_text(json.dumps({"machine": {"processor": "Zen 5"}}), encoding="utf-8")
    return folder


def test_the_forwards_are_those_of_the_processor_that_was_loaded_whatever_sorts_first(tmp_path: Path) -> None:
    ours = {"zen_forced": ("Zen 5", "avx2", 9.0, True), "zen": ("Zen 5", "avx512vnni", 2.0, False)}
    figures(tmp_path, a=("A", "avx2", 7.0, False), **ours)
    assert plan_bytes(tmp_path) == 2 * layer_bytes() / 2
    narrow = Measured.read(tmp_path).narrow
    assert narrow is not None
    assert narrow["forced"], "AVX2 of the same processor, not of the other"


def test_without_figures_and_with_another_processor_s_processors_are_not_compared(tmp_path: Path) -> None:
    assert cpu_service_time(figures=tmp_path) is None
    assert cpu_service_time("c8g.4xlarge", tmp_path) is None
    figures(tmp_path, a=("A", "avx2", 7.0, False))
    with pytest.raises(KeyError, match="no entry of Zen 5"):
        plan_bytes(tmp_path)
    assert cpu_service_time("c7a.4xlarge", tmp_path) is None


EIGHT = next(planner for planner in PLANNERS if planner.name.startswith("8B"))


def test_a_shape_has_the_parameters_that_its_base_is_published_with() -> None:
    billions = [planner.parameters / 1e9 for planner in PLANNERS]
    assert billions == pytest.approx([0.1345, 0.3618, 1.236, 3.213, 7.242, 8.030], rel=0.001)


def cost_of(planner: Planner, kind: str) -> Way:
    found = way(planner, kind, PRICES)
    assert isinstance(found, Way), found
    return found


def test_a_larger_planner_reads_more_and_takes_longer_everywhere_and_what_does_not_run_says_why() -> None:
    own = cpu_service_time("c7a.4xlarge")
    assert own is not None
    per_million = 0.82112 / 3600 / (16 * 1000 / own.mean_ms) * 1e6
    assert cost_of(SHIPPED, "c7a.4xlarge").per_million == pytest.approx(per_million, rel=0.01), "as its own tables say"
    for kind in KINDS:
        ways = [found for planner in PLANNERS if isinstance(found := way(planner, kind, PRICES), Way)]
        assert [each.per_million for each in ways] == sorted(each.per_million for each in ways)
        assert all(each.p99_ms <= 300 for each in ways)
    for kind in ("inf2.24xlarge", "inf2.48xlarge", "trn1.32xlarge"):
        assert "48 rows" in cost_of(MISTRAL, kind).how, "where a step mostly reads weights, rows are nearly free"
    assert isinstance(way(MISTRAL, "inf2.xlarge", PRICES), NoWay)
    slow, small = way(EIGHT, "c7a.4xlarge", PRICES), way(replace(EIGHT, layers=400), "c7a.4xlarge", PRICES)
    assert isinstance(slow, NoWay)
    assert slow.reason.startswith("p99 ")
    assert isinstance(small, NoWay)
    assert small.reason.endswith("GiB lack")


def test_the_seed_s_fleet_states_what_the_formulae_say() -> None:
    fleet = FleetSettings.from_yaml(FLEETS / "mistral-7b.yaml")
    model, loop = fleet.model, Loop.read(rows=48)
    for group in fleet.groups:
        deployed = Deployed(MISTRAL, group.chip, model.batch_size, model.tensor_parallel, model.speculation_length)
        assert model.service_time.mean_ms == pytest.approx(deployed.busy_ms(loop), rel=0.05)
        assert model.service_time.p99_ms == pytest.approx(deployed.p99_ms(loop), rel=0.05)
    assert model.weight_bytes == MISTRAL.layer_bytes + MISTRAL.embedding_bytes
    assert fleet.slo.p99_ms == 300
    assert (fleet.traffic, fleet.surge.times) == (PRIME_DAY.traffic, PRIME_DAY.surge.times)


OWN = {"service": "monitoring", "reason": "hosts publish a metric of ours", "actions": ["cloudwatch:PutMetricData"]}
KMS = {"service": "kms", "reason": "hosts decrypt a table at boot", "actions": ["kms:Decrypt"]}


def counted(settings: FleetSettings) -> tuple[float, float, int]:
    """How many a zone the bill and the quota count, and the addresses that a zone needs."""
    billed = sum(item.count for item in bills(settings, PRICES)[0].items if item.what.startswith("interface endpoint"))
    (need,) = [each for each in needs(settings) if each.name == "Interface VPC endpoints per VPC"]
    return billed / len(settings.availability_zones), need.amount, addresses.needed_in_a_zone(settings)


@pytest.mark.parametrize("enabled", [True, False])
def test_each_service_more_counts_one_in_all_three(enabled: bool) -> None:
    canaries = {"synthetic_plans.enabled": enabled}
    billed, quota, taken = counted(dev_fleet(canaries))
    assert counted(dev_fleet({**canaries, "network.endpoints": [KMS]})) == (billed + 1, quota + 1, taken + 1)
    assert counted(dev_fleet({"network.endpoints": [OWN]})) == counted(dev_fleet()), (
        "canaries reach it: it is paid once"
    )
    assert billed == quota == 4 + enabled, "four of every host, and the canaries' monitoring; s3 is a route"


SALE = {"name": "sale", "start": "2030-07-13T07:00:00Z", "end": "2030-07-14T07:00:00Z", "multiplier": 2}


def test_a_month_has_its_dearest_event_and_a_fifth_above_unless_the_fleet_file_says_otherwise() -> None:
    small = SALE | {"name": "small", "start": "2030-08-13T07:00:00Z", "end": "2030-08-13T08:00:00Z", "multiplier": 1.5}
    settings = dev_fleet({"events": [SALE, small], "groups.0.maximum": 8})
    ordinary, sale, _ = (bill.hourly for bill in bills(settings, PRICES))
    expected = 1.2 * (ordinary * HOURS_A_MONTH + 24 * (sale - ordinary))
    assert spending(settings).month == pytest.approx(expected, abs=1)
    assert spending(settings).surprise == pytest.approx(ordinary * HOURS_A_MONTH / 60, abs=1)
    assert spending(dev_fleet({"monthly_budget": 1234})).month == 1234
