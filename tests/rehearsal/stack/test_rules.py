"""Every alert fires in Prometheus's own engine in trouble, and clears after it; Grafana's own model takes the board."""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from rehearsal.stack.folder import PARTS, ROOT, RULES, found
from rehearsal.stack.monitor import DASHBOARD
from tests.rehearsal.stack.parts import needs_parts

STEP = 30  # seconds
LABELS = {"fleet": "stack", "cell": "cell-1"}


@dataclass(frozen=True)
class Trouble:
    """Series of a cell in trouble and after it: what a counter grows by in a step, or a gauge's two values.

    `beside` is what counters of another cell grow by all the time.
    """

    grows: dict[str, tuple[float, float]]
    stands: dict[str, tuple[float, float]]
    minutes: int = 40
    beside: dict[str, float] = field(default_factory=dict)


def _trouble(
    minutes: int = 40,
    grows: dict[str, tuple[float, float]] | None = None,
    beside: dict[str, float] | None = None,
    **stands: tuple[float, float],
) -> Trouble:
    return Trouble(grows or {}, stands, minutes, beside or {})


GOOD, BAD = "peakplan_slo_good_total", "peakplan_slo_bad_total"
DEGRADED, REQUESTS = "peakplan_degraded_total", "peakplan_requests_total"
ASKED = {GOOD: (90, 90), REQUESTS: (100, 100)}
SHOWN, CLICKED, BOUGHT = (f"peakplan_answers_{what}_total" for what in ("shown", "clicked", "bought"))


def _shoppers(what: str, here: tuple[float, float], there: float, shown: float = 100) -> Trouble:
    """Answers of two cells' plans: of `shown` in a step, how many of ours and of the other's led to something."""
    ours, others = '{plannedin="cell-1"}', '{plannedin="cell-2"}'
    return _trouble(
        minutes=90,
        grows={SHOWN + ours: (shown, shown), what + ours: here},
        beside={SHOWN + others: shown, what + others: there},
    )


TROUBLES = {
    "FastBurn": _trouble(grows={**ASKED, BAD: (10, 0)}),
    "SlowBurn": _trouble(grows={**ASKED, BAD: (10, 0)}),
    "ModelFastBurn": _trouble(grows={**ASKED, BAD: (0, 0), DEGRADED: (40, 0)}),
    "ModelSlowBurn": _trouble(grows={**ASKED, BAD: (0, 0), DEGRADED: (40, 0)}),
    "P99": _trouble(aws_applicationelb_target_response_time_p99=(0.4, 0.1)),
    "Saturation": _trouble(grows={"peakplan_offered_work_total": (60, 10), "peakplan_replica_seconds_total": (30, 30)}),
    "UnhealthyHosts": _trouble(
        aws_applicationelb_healthy_host_count_minimum=(2, 4), aws_applicationelb_un_healthy_host_count_maximum=(2, 0)
    ),
    "LaunchFailures": _trouble(
        aws_autoscaling_group_desired_capacity_average=(4, 4), aws_autoscaling_group_in_service_instances_average=(3, 4)
    ),
    # Ten hosts of sixteen replicas each, of which three are always in service.
    "StandIn": _trouble(grows={'peakplan_replica_seconds_total{group="cpu"}': (10 * 16 * STEP, 3 * 16 * STEP)}),
    "DegradedShare": _trouble(grows={REQUESTS: (100, 100), DEGRADED: (10, 0)}),
    "MostlyDegraded": _trouble(grows={REQUESTS: (100, 100), DEGRADED: (60, 0)}),
    "RulesDiffer": _trouble(
        minutes=240,
        grows={
            "peakplan_spot_checks_total": (10, 10),
            "peakplan_spot_checks_differing_total": (5, 1),
            "peakplan_spot_checks_expected_total": (1, 1),
        },
    ),
    "SyntheticPlans": _trouble(cloudwatchsynthetics_success_percent_average=(0, 100)),
    "Privatelink": _trouble(aws_networkelb_healthy_host_count_minimum=(0, 1)),
    "Reservations": _trouble(aws_scheduler_target_error_count_sum=(1, 0)),
    "SharedCacheDown": _trouble(peakplan_shared_cache_down=(1, 0)),
    "SharedCacheFull": _trouble(
        aws_elasticache_database_memory_usage_percentage_maximum=(180, 20),
        aws_elasticache_engine_cpuutilization_maximum=(10, 10),
    ),
    "NeuronHardware": _trouble(grows={'hardware_ecc_events_total{event_type="mem_ecc_uncorrected"}': (1, 0)}),
    "NeuronRuntime": _trouble(
        grows={
            'execution_errors_total{error_type="numerical"}': (5, 0),
            'execution_status_total{status_type="completed"}': (100, 100),
        }
    ),
    "DeployHealth": _trouble(grows={**ASKED, BAD: (0, 0), "peakplan_replica_restarts_total": (3, 0)}),
    "ShoppersClickLess": _shoppers(CLICKED, (8, 10), 10),
    "ShoppersBuyLess": _shoppers(BOUGHT, (1, 2), 2),
    "TelemetrySilent": _trouble(grows={GOOD: (0, 90), BAD: (0, 0)}, aws_applicationelb_request_count_sum=(200, 200)),
}
# What is no harm that a cell does: few shoppers, all cells alike, less than chance tells apart.
NO_TROUBLES = {
    "few shoppers": _shoppers(CLICKED, (0.8, 0.8), 1, shown=8),
    "every cell alike": _shoppers(CLICKED, (2, 2), 2),
    "within chance": _shoppers(CLICKED, (9.5, 9.5), 10),
    "better": _shoppers(CLICKED, (12, 12), 10),
}


def _rules() -> dict[str, dict[str, dict[str, str]]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {
        rule["alert"].removeprefix("Peakplan"): rule for group in groups for rule in group["rules"] if "alert" in rule
    }


def _needed(name: str) -> dict[str, list[dict[str, list[dict[str, str]]]]]:
    """Return the rules' file with this alert and the recordings that it needs: all of them take a minute an hour."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    words = next(rule["expr"] for rule in rules if rule.get("alert") == f"Peakplan{name}")
    kept = {f"Peakplan{name}"}
    while more := {rule["record"] for rule in rules if "record" in rule and rule["record"] in words} - kept:
        kept |= more
        words += "".join(rule["expr"] for rule in rules if rule.get("record") in more)
    for group in groups:
        group["rules"] = [rule for rule in group["rules"] if kept & {rule.get("alert"), rule.get("record")}]
    return {"groups": [group for group in groups if group["rules"]]}


def _labelled(series: str, **other: str) -> str:
    name, _, labels = series.partition("{")
    cell = ",".join(f'{label}="{value}"' for label, value in (LABELS | other).items())
    return f"{name}{{{cell}{',' + labels if labels else '}'}"


def _test(name: str, trouble: Trouble, *, is_trouble: bool = True) -> dict[str, object]:
    steps, after = trouble.minutes * 60 // STEP, 2 * trouble.minutes * 60 // STEP
    series = {f'up{{job="peakplan",fleet="{LABELS["fleet"]}",cell="{LABELS["cell"]}"}}': f"1x{steps + after}"}
    for counter, (worse, better) in trouble.grows.items():
        series[_labelled(counter)] = f"0+{worse}x{steps} {worse * steps + better}+{better}x{after - 1}"
    for gauge, (worse, better) in trouble.stands.items():
        series[_labelled(gauge)] = f"{worse}x{steps} {better}x{after - 1}"
    for counter, grows in trouble.beside.items():
        series[_labelled(counter, cell="cell-2")] = f"0+{grows}x{steps + after}"
    if trouble.beside:
        series[_labelled('up{job="peakplan"}', cell="cell-2")] = f"1x{steps + after}"
    rule = _rules()[name]
    fires = {"exp_labels": {**LABELS, **rule["labels"]}, "exp_annotations": rule["annotations"]}
    moments = [(trouble.minutes, [fires] if is_trouble else []), (3 * trouble.minutes - 1, [])]
    return {
        "interval": f"{STEP}s",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": f"Peakplan{name}", "exp_alerts": alerts}
            for minute, alerts in moments
        ],
    }


def _run(folder: Path, rules: Path, tests: list[dict[str, object]]) -> subprocess.CompletedProcess[str]:
    written = folder / "tests.yaml"
    document = {"rule_files": [str(rules.resolve())], "evaluation_interval": f"{STEP}s", "tests": tests}
    written.write_text(yaml.safe_dump(document), encoding="utf-8")
    command = [found("promtool"), "test", "rules", str(written)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_alert_has_a_trouble_here() -> None:
    assert set(TROUBLES) == set(_rules())


@needs_parts
@pytest.mark.parametrize(
    ("name", "trouble", "is_trouble"),
    [
        *(pytest.param(name, trouble, True, id=name) for name, trouble in TROUBLES.items()),
        *(pytest.param("ShoppersClickLess", trouble, False, id=name) for name, trouble in NO_TROUBLES.items()),
    ],
)
def test_the_alert_fires_in_trouble_alone_and_clears_after_it(
    name: str, trouble: Trouble, is_trouble: bool, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump(_needed(name)), encoding="utf-8")

    done = _run(tmp_path, rules, [_test(name, trouble, is_trouble=is_trouble)])

    assert done.returncode == 0, done.stdout + done.stderr


@needs_parts
def test_envoy_stands_for_the_balancer_cell_by_cell(tmp_path: Path) -> None:
    """Two minutes of 4 requests a second, one in a hundred without an answer; a host of four is not healthy."""
    cell, balancer = 'fleet="stack",cell="cell-1"', 'fleet="stack",cell="cell-1",envoy_cluster_name="cell-1-first"'
    series = {
        f"envoy_cluster_upstream_rq_completed{{{balancer}}}": "0+60x20",
        f'envoy_cluster_upstream_rq_xx{{{balancer},envoy_response_code_class="5"}}': "0+6x20",
        f'envoy_cluster_upstream_rq_time_bucket{{{balancer},le="50"}}': "0+54x20",
        f'envoy_cluster_upstream_rq_time_bucket{{{balancer},le="100"}}': "0+60x20",
        f'envoy_cluster_upstream_rq_time_bucket{{{balancer},le="+Inf"}}': "0+60x20",
        f'envoy_cluster_membership_total{{{cell},envoy_cluster_name="cell-1"}}': "4x20",
        f'envoy_cluster_membership_healthy{{{cell},envoy_cluster_name="cell-1"}}': "3x20",
        f'up{{{cell},job="peakplan",instance="a"}}': "1x20",
        f'up{{{cell},job="peakplan",instance="b"}}': "0x20",
        f"peakplan_shed_total{{{cell}}}": "0+2x20",
        f"redis_memory_used_bytes{{{cell}}}": "32x20",
        f"redis_memory_max_bytes{{{cell}}}": "64x20",
    }
    wanted = {
        "aws_applicationelb_request_count_sum": 240,
        "aws_applicationelb_httpcode_elb_5_xx_count_sum": 16,
        "aws_applicationelb_target_response_time_p99": 0.095,
        "aws_applicationelb_healthy_host_count_minimum": 3,
        "aws_applicationelb_un_healthy_host_count_maximum": 1,
        "aws_networkelb_healthy_host_count_minimum": 1,
        "aws_autoscaling_group_desired_capacity_average": 2,
        "aws_autoscaling_group_in_service_instances_average": 1,
        "aws_elasticache_database_memory_usage_percentage_maximum": 50,
    }
    asked = [
        {"expr": f"round({name}, 0.001)", "eval_time": "4m", "exp_samples": [{"labels": f"{{{cell}}}", "value": value}]}
        for name, value in wanted.items()
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]

    done = _run(
        tmp_path,
        PARTS / "balancer-rules.yaml",
        [{"interval": "15s", "input_series": inputs, "promql_expr_test": asked}],
    )

    assert done.returncode == 0, done.stdout + done.stderr


needs_grafana = pytest.mark.skipif(
    find_spec("grafana_foundation_sdk") is None, reason="Grafana's model is not installed: peakplan tools install stack"
)


def _unknown(board: dict[str, Any]) -> Iterator[str]:
    """Yield what Grafana's own model of a dashboard does not know."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models import dashboard, units

    register_default_plugins()
    yield from _lost(board, json.loads(JSONEncoder().encode(dashboard.Dashboard.from_json(board))), "the dashboard")
    known = {value for name, value in vars(units).items() if not name.startswith("_")}
    for panel in board["panels"]:
        unit = panel["fieldConfig"]["defaults"].get("unit")
        if unit not in known:
            yield f"panel {panel['title']}: Grafana knows no unit {unit!r}"


def _lost(written: Any, read: Any, where: str) -> Iterator[str]:
    """Yield what the model does not take over as it is written; it adds its own defaults."""
    if isinstance(written, dict) and isinstance(read, dict):
        for key, value in written.items():
            if key not in read:
                yield f"{where}: Grafana knows no {key!r}"
            else:
                yield from _lost(value, read[key], f"{where}, {key}")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for number, pair in enumerate(zip(written, read, strict=True)):
            yield from _lost(*pair, f"{where} {number}")
    elif written != read:
        yield f"{where}: Grafana reads {read!r} where {written!r} is written"


@needs_grafana
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"unit": "percents"}, "panel p99: Grafana knows no unit 'percents'"),
        ({"treshold": 3}, "knows no 'treshold'"),
        ({"thresholds": {"mode": "absolute", "steps": [{"colour": "red", "value": None}]}}, "knows no 'colour'"),
    ],
)
def test_grafana_takes_every_key_and_unit_and_what_it_would_overlook_is_told(change: dict[str, Any], said: str) -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panel = next(panel for panel in board["panels"] if panel["title"] == "p99")
    panel["fieldConfig"]["defaults"] |= change

    faults = list(_unknown(board))

    assert bool(faults) == bool(said)
    assert said in "".join(faults)


def test_grafanas_model_is_of_the_grafana_that_compose_runs() -> None:
    compose = yaml.safe_load((PARTS / "compose.yaml").read_text(encoding="utf-8"))
    image = compose["services"]["grafana"]["image"].partition(":")[2]
    pinned = re.search(r'"grafana-foundation-sdk==\d+!([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert pinned is not None
    assert pinned[1] == image
