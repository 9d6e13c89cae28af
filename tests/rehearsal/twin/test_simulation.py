"""What prime-day's own scaling law keeps of its promises, request by request, and what the verdict says of it."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from infra.fleet import sizing
from infra.fleet.alarm_kinds import MetricAlarm
from infra.fleet.alarms import cell_alarms
from infra.fleet.network_parts import Caller
from infra.fleet.parts import Group
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FLEETS, FleetSettings
from rehearsal.twin.alarms import fired
from rehearsal.twin.cell import FAILED, OUTCOMES
from rehearsal.twin.curves import Curve, steady
from rehearsal.twin.rehearsal import attempt, judge
from rehearsal.twin.scenarios import SCENARIOS, Course, Situation, begins, chosen, event_of
from rehearsal.twin.simulation import simulate
from rehearsal.twin.work import stated

PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
# A quarter of prime-day without its forecast by hour or what stands in, so that a test takes a second.
SMALL = PRIME_DAY.model_copy(
    update={
        "traffic": PRIME_DAY.traffic.model_copy(update={"plans_per_minute": 60_000, "forecast": ()}),
        "groups": tuple(
            group.model_copy(update={"minimum": minimum})
            for group, minimum in zip(PRIME_DAY.groups[:2], (9, 3), strict=True)
        ),
    }
)
DEV = FleetSettings.from_yaml(FLEETS / "dev.yaml")
CURVE = steady(1200)


def situation(name: str = "nominal", settings: FleetSettings = DEV, **options: object) -> Situation:
    scenario = SCENARIOS[name]
    made = Situation(settings, CURVE, stated(settings), scenario, nodes=6, after=400)
    return replace(made, **options)  # type: ignore[arg-type]


def test_every_request_of_a_course_has_its_outcome() -> None:
    for name in ("nominal", "zone-lost", "retries", "failing-release"):
        course = simulate(situation(name))
        assert course.left_in_flight == 0
        assert course.column("requests").sum() == course.arrived > 10_000
        assert course.values[:, 1 : 1 + len(OUTCOMES)].sum() == course.arrived


def test_dev_carries_its_forecast_and_a_lost_zone() -> None:
    for name in ("nominal", "zone-lost", "zone-refused", "fail-fast", "silence"):
        trial = attempt(situation(name))
        assert trial.verdict.holds, (name, [str(each) for each in trial.verdict.judgements])


def test_a_lost_zone_fails_until_the_nodes_notice_and_no_longer() -> None:
    """Two checks, five seconds apart, the last with its timeout: 9 to 14 seconds."""
    course = simulate(situation("zone-lost"))
    assert course.fault is not None
    window = int(course.fault // 10)
    assert course.values[: window - 1, 1 + FAILED].sum() == 0, "what is under way when it happens is lost, too"
    assert course.column("failed")[window] > 0.1 * course.column("requests")[window]
    assert course.column("failed")[window + 2 :].sum() == 0
    assert course.column("healthy")[-1] == pytest.approx(course.column("healthy")[0] * 2 / 3, abs=1)


def test_a_fault_is_simulated_for_as_long_wherever_in_a_trace_the_peak_is() -> None:
    rises = Curve("rises", np.linspace(0.2, 1.0, 900), 60)
    courses = [
        simulate(situation("zone-lost", curve=curve))
        for curve in (CURVE, rises, replace(rises, relative=rises.relative[::-1]))
    ]
    assert {(len(course.values), course.fault) for course in courses} == {(70, 300.0)}
    assert courses[1].column("requests")[-1] > 0.8 * courses[1].column("requests").max(), "its end goes on"


def test_too_few_hosts_with_a_lost_zone_fail_by_rule_and_not_by_latency() -> None:
    """The gateway plans by the reader before the deadline: p99 alone never shows it."""
    trial = attempt(situation("zone-lost", SMALL, hosts=20))  # 13 are busy at the event's peak, and 12 are left
    _, failed, p99, at_the_end = trial.verdict.judgements
    assert not trial.verdict.holds
    assert trial.verdict.recovery_minutes is None
    assert not at_the_end.holds
    assert p99.holds
    assert failed.holds


def test_what_loads_nobody_announced_meet() -> None:
    """Ten times the load within a minute: carried within the promised time from a full pool, not from an empty one."""
    full, empty = (simulate(situation(name, SMALL, after=600)) for name in ("flash-x10", "flash-x10-empty-pool"))
    after = int(((full.fault or 0) + SMALL.surge.recover) // 10)
    shares = [course.column("rules")[after:] / course.column("requests")[after:] for course in (full, empty)]
    assert full.column("rules").max() > 0.5 * full.column("requests").max(), "the reader answers: it is a surge"
    assert shares[0].mean() < 0.01
    assert shares[1].mean() > 0.2
    assert max(course.column("p99_ms").max() for course in (full, empty)) <= 300


def test_noise_alone_adds_no_host_and_silence_removes_none() -> None:
    for name in ("nominal", "silence"):
        course = simulate(situation(name, SMALL))
        assert set(course.column("desired")) == {course.column("desired")[0]}


def test_a_bad_release_is_stopped_and_rolled_back() -> None:
    course = simulate(situation("failing-release", after=1500, curve=steady(3000)))
    assert course.fault is not None
    begun, rolled_back = int(course.fault // 10), int((course.fault + 300 + DEV.boot_seconds) // 10)
    assert course.column("rules")[begun : rolled_back - 10].sum() > 0
    assert course.column("rules")[rolled_back + 10 :].sum() == 0


def test_cold_caches_cost_what_was_remembered() -> None:
    course = simulate(situation("cold-cache"))
    assert course.fault is not None
    window = int(course.fault // 10)
    assert course.column("cache")[window - 1] > 1.5 * course.column("cache")[window]


@pytest.mark.parametrize(
    ("callers", "times"),
    [
        pytest.param(SMALL.callers, 3 / 2, id="with a share: they have two cells left of three"),
        pytest.param(
            tuple(each.model_copy(update={"share": None}) for each in SMALL.callers), 6 / 5, id="spread over all"
        ),
    ],
)
def test_a_cell_moved_out_brings_its_callers_here(callers: tuple[Caller, ...], times: float) -> None:
    course = simulate(situation("cell-out", SMALL.model_copy(update={"callers": callers})))
    assert course.fault is not None
    requests = course.column("requests")
    assert requests[-20:].mean() == pytest.approx(times * requests[: int(course.fault // 10)].mean(), rel=0.05)


def test_a_lost_shared_cache_costs_hits_and_no_plan() -> None:
    trial = attempt(situation("lost-cache", SMALL))
    assert trial.verdict.holds, [str(each) for each in trial.verdict.judgements]
    before, after = trial.course.hits
    assert before > after + 0.1
    assert [alarm.key for alarm in fired(trial.course, SCENARIOS["lost-cache"], SMALL)] == ["shared-cache-down"]
    alone = simulate(situation("cold-cache", SMALL)).hits[0]  # hosts that never shared
    assert after == pytest.approx(alone, abs=0.08)


def test_a_lost_reservation_leaves_a_zone_without_chips_and_the_event_holds() -> None:
    trial = attempt(situation("lost-reservation", SMALL))
    assert trial.verdict.holds, [str(each) for each in trial.verdict.judgements]
    assert "reservations" in {alarm.key for alarm in fired(trial.course, SCENARIOS["lost-reservation"], SMALL)}
    chips = sum(attempt(situation("nominal", SMALL)).course.mean_hosts[:2])
    assert sum(trial.course.mean_hosts[:2]) == pytest.approx(2 / 3 * chips)


def with_groups(*groups: Group) -> FleetSettings:
    """Half of prime-day with these groups, which absorb twice the load and not three times."""
    traffic = SMALL.traffic.model_copy(update={"plans_per_minute": 120_000})
    surge = SMALL.surge.model_copy(update={"absorb": 2.0})
    return SMALL.model_copy(update={"groups": groups, "traffic": traffic, "surge": surge})


def test_processors_take_over_where_no_chip_can_be_started() -> None:
    """They grow by themselves: what is asked of chips that are full is what shows them the lack."""
    *chips, shipped = PRIME_DAY.groups
    assert shipped.stands_in
    processors = shipped.model_copy(update={"instance_type": "c7a.2xlarge"})
    trial = attempt(situation("no-chips", with_groups(*chips, processors), after=300))
    assert trial.verdict.holds, [str(each) for each in trial.verdict.judgements]
    hosts = trial.course.column("stand_in_seconds") / (8 * 10)
    assert hosts[0] == hosts[25] == shipped.minimum, "an ordinary peak needs none of them"
    assert hosts.max() > 2 * shipped.minimum
    for groups in (chips, [*chips, processors.model_copy(update={"maximum": shipped.minimum})]):
        assert not attempt(situation("no-chips", with_groups(*groups), after=300)).verdict.holds
    assert "no-chips" in chosen("all", with_groups(*chips))[1]
    assert "no-chips" in {scenario.name for scenario in chosen("all", PRIME_DAY)[0]}


def test_a_ticket_tells_where_processors_stand_in() -> None:
    lacking = attempt(situation("no-chips", with_groups(*PRIME_DAY.groups), after=1200))
    enough = attempt(situation("nominal", with_groups(*PRIME_DAY.groups)))
    fleet = with_groups(*PRIME_DAY.groups)
    assert "stand-in" in {alarm.key for alarm in fired(lacking.course, SCENARIOS["no-chips"], fleet)}
    assert "stand-in" not in {alarm.key for alarm in fired(enough.course, SCENARIOS["nominal"], fleet)}


def test_an_event_begins_with_its_scheduled_floor_and_an_ordinary_peak_in_its_fullest_hours() -> None:
    event = event_of(PRIME_DAY)
    assert event is not None
    assert event[1] == 4
    assert begins(situation(settings=PRIME_DAY)) == event[0]
    ordinary = situation("flash-x4", PRIME_DAY)
    peak = begins(ordinary) + timedelta(seconds=CURVE.peak_second)
    law = ScalingLaw.for_group(PRIME_DAY, PRIME_DAY.groups[0])
    assert law.floor_at(peak) == sizing.floor_for(PRIME_DAY, PRIME_DAY.groups[0])


def test_alarms_fire_in_order_and_tell_the_right_people() -> None:
    trial = attempt(situation("zone-lost", PRIME_DAY.model_copy(update={"traffic": SMALL.traffic}), hosts=20))
    heard = fired(trial.course, SCENARIOS["zone-lost"], PRIME_DAY)
    assert [alarm.at for alarm in heard] == sorted(alarm.at for alarm in heard)
    tells = {alarm.key: alarm.tells for alarm in heard}
    assert tells.get("page", PRIME_DAY.on_call.page) == PRIME_DAY.on_call.page
    assert all(alarm.at > (trial.course.fault or 0) for alarm in heard), "nothing fires before anything happens"
    (unhealthy,) = [alarm for alarm in cell_alarms(PRIME_DAY) if alarm.key == "unhealthy-hosts"]
    assert isinstance(unhealthy, MetricAlarm)
    (told,) = [alarm.after_fault for alarm in heard if alarm.key == "unhealthy-hosts"]
    assert told == unhealthy.breaching * unhealthy.period_seconds + 15, "whole minutes, and 15 s until they are known"


def test_scenarios_are_chosen_by_name_and_the_rest_is_explained() -> None:
    scenarios, left_out = chosen("all", DEV)
    assert "nominal" in {scenario.name for scenario in scenarios}
    assert "5 times" in left_out["flash-x10"]
    assert "one cell" in left_out["cell-out"]
    assert "canary" in left_out["failing-release"]
    assert "lost-cache" not in left_out
    without = DEV.model_copy(update={"shared_cache": DEV.shared_cache.model_copy(update={"enabled": False})})
    assert "lost-cache" in chosen("all", without)[1], "there is none to lose"
    assert chosen("failing-release", DEV) == ([SCENARIOS["failing-release"]], {})
    assert "failing-release" in {scenario.name for scenario in chosen("all", PRIME_DAY)[0]}


def test_shares_by_rule_in_a_surge_do_not_count_while_the_fleet_may_recover() -> None:
    course: Course = simulate(situation("flash-x4", SMALL, after=600))
    surge = SCENARIOS["flash-x4"]
    excused, judged = (judge(course, each, SMALL).judgements[0].found for each in (surge, replace(surge, flash=1.0)))
    assert excused < judged
