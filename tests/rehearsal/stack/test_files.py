"""The stack's plain files pass the validators of the programs that read them, and compose has what they name."""

import json
import re
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest
import yaml

from rehearsal.stack.folder import (
    CELLS,
    MOST_HOSTS,
    PARTS,
    ROOT,
    RULES,
    Shape,
    StackError,
    found,
    hurried,
    set_clock,
    write_hosts,
)
from rehearsal.stack.live import DEADLINE
from rehearsal.stack.processes import Programs
from tests.rehearsal.stack.parts import NETWORK, a_folder, needs_parts

SCHEMA = Path(__file__).with_name("compose_schema.json")  # compose-spec/compose-spec, Apache-2.0, at 170098b


def _checked(*command: str | Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@needs_parts
@pytest.mark.parametrize("hurry", [1, 12])
def test_prometheus_takes_its_configuration_and_every_rule(tmp_path: Path, hurry: int) -> None:
    folder = a_folder(tmp_path / "stack", hurry=hurry)

    assert "2 rule files found" in _checked(found("promtool"), "check", "config", folder.path / "prometheus.yml")
    _checked(found("promtool"), "check", "rules", *sorted((folder.path / "rules").glob("*.yaml")))


@needs_parts
def test_alertmanager_sends_pages_and_tickets_to_different_receivers() -> None:
    configuration = PARTS / "alertmanager.yml"
    _checked(found("amtool"), "check-config", configuration)

    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    severities = {rule["labels"]["severity"] for group in rules for rule in group["rules"] if "alert" in rule}
    assert severities == {"page", "ticket"}
    for severity in severities:
        command = (found("amtool"), "config", "routes", "test", f"--config.file={configuration}")
        assert _checked(*command, f"severity={severity}", "fleet=stack", "cell=cell-1").split()[0] == severity


def test_envoy_adds_to_its_histograms_at_least_as_often_as_prometheus_looks() -> None:
    """Otherwise each window of a rule may lie between two additions: p99 had no number in a whole rehearsal."""
    envoy = yaml.safe_load((PARTS / "envoy.yaml").read_text(encoding="utf-8"))
    shortest = re.search(
        r"scrape_interval: (\d+)ms", hurried((PARTS / "prometheus.yml").read_text(encoding="utf-8"), 15)
    )

    assert shortest
    assert 1000 * float(envoy["stats_flush_interval"].removesuffix("s")) <= int(shortest.group(1))


def test_a_hurried_clock_shortens_windows_and_leaves_names_and_lines() -> None:
    rule = "expr: count_over_time((cell:peakplan_requests:60s > 20)[300s:60s]) >= 3\n  interval: 30s"

    assert hurried(rule, 12) == (
        "expr: count_over_time((cell:peakplan_requests:60s > 20)[25000ms:5000ms]) >= 3\n  interval: 2500ms"
    )
    assert hurried(rule, 1) == rule


def test_a_scrape_may_take_as_long_as_the_time_between_two(tmp_path: Path) -> None:
    """Half a second was too little on a busy machine: the panel of p99 found no two scrapes in its window."""
    scraping = yaml.safe_load((a_folder(tmp_path / "stack", hurry=12).path / "prometheus.yml").read_text("utf-8"))

    assert scraping["global"]["scrape_interval"] == scraping["global"]["scrape_timeout"] == "1250ms"


def test_a_shape_that_the_files_do_not_have_is_refused() -> None:
    with pytest.raises(StackError, match="1 to 4"):
        Shape(hosts=MOST_HOSTS + 1)


def test_a_draining_host_stays_listed_and_says_so(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "stack", hosts=2)
    first, second = folder.hosts("cell-1")

    write_hosts(folder, "cell-1", frozenset([first]))

    listed = yaml.safe_load((folder.path / "hosts" / "cell-1.yaml").read_text(encoding="utf-8"))
    states = [each["health_status"] for each in listed["resources"][0]["endpoints"][0]["lb_endpoints"]]
    assert states == ["DRAINING", "UNKNOWN"]
    assert _endpoints(folder.path / "hosts" / "cell-1.yaml") == [first, second]


def test_compose_follows_its_schema() -> None:
    schema, compose = json.loads(SCHEMA.read_text(encoding="utf-8")), _compose()

    jsonschema.Draft7Validator(schema).validate(compose)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate({**compose, "services": {"envoy": {"imagine": "envoy"}}})


def test_compose_runs_every_address_that_the_files_name() -> None:
    services = _compose()["services"].values()
    has = {service["networks"]["peakplan"]["ipv4_address"] for service in services if "networks" in service}
    files = [path for path in PARTS.rglob("*.y*ml") if path.name != "compose.yaml"]
    named = {found for path in files for found in re.findall(r"172\.20\.\d+\.\d+", path.read_text(encoding="utf-8"))}

    assert len(named) > 8
    assert named <= has
    assert len(has) == sum("networks" in service for service in services), "two services share an address"


def test_hosts_send_traces_where_the_collector_takes_them() -> None:
    collector = yaml.safe_load((PARTS / "collector.yaml").read_text(encoding="utf-8"))
    services = _compose()["services"]
    taken = f"http://{collector['receivers']['otlp']['protocols']['http']['endpoint']}"
    hosts = [service for name, service in services.items() if "-host-" in name]

    assert len(hosts) == len(CELLS) * MOST_HOSTS
    assert {service["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] for service in hosts} == {taken}
    for kind in ("receivers", "processors", "exporters"):
        for pipeline in collector["service"]["pipelines"].values():
            assert set(pipeline[kind]) <= set(collector[kind])


def test_composes_hosts_and_what_fills_it_find_the_shop_and_can_speak_to_it() -> None:
    services = _compose()["services"]
    shop, filling = services["shop"], services["shop-products"]
    hosts = [service for name, service in services.items() if "-host-" in name]
    user, password = shop["environment"]["POSTGRES_USER"], shop["environment"]["POSTGRES_PASSWORD"]
    place = f"{shop['networks']['peakplan']['ipv4_address']}:5432/{shop['environment']['POSTGRES_DB']}"

    for service in (*hosts, filling):
        assert service["environment"]["PEAKPLAN_SAMPLE_SHOP_URL"] == f"postgresql://{user}:{password}@{place}"
        assert service["build"]["args"] == {"POSTGRES": "postgres"}
    assert "python -m peakplan_client.postgres_products" in filling["entrypoint"][-1]
    assert find_spec("peakplan_client.postgres_products") is not None


def test_compose_mounts_what_is_there() -> None:
    mounted = [
        volume.split(":")[0] for service in _compose()["services"].values() for volume in service.get("volumes", [])
    ]
    places = [(PARTS / path).resolve() for path in mounted if path.startswith(".")]

    assert len(places) > 8
    assert [place for place in places if not place.exists()] in ([], [ROOT / "certificates" / "stack"])


def test_every_alert_links_a_runbook_of_this_repository() -> None:
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    links = [rule["annotations"]["runbook_url"] for group in rules for rule in group["rules"] if "alert" in rule]

    assert len(links) > 15
    assert not [link for link in links if not (ROOT / link).is_file()]


def _endpoints(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    assert NETWORK in text
    listed = yaml.safe_load(text)["resources"][0]["endpoints"][0]["lb_endpoints"]
    return [each["endpoint"]["address"]["socket_address"]["address"] for each in listed]


def _compose() -> dict[str, dict[str, dict[str, dict[str, dict[str, str]]]]]:
    loaded: dict[str, dict[str, dict[str, dict[str, dict[str, str]]]]]
    loaded = yaml.safe_load((PARTS / "compose.yaml").read_text(encoding="utf-8"))
    return loaded


def test_a_hosts_clock_is_set_while_it_runs_and_its_timers_go_on(tmp_path: Path) -> None:
    """As the rehearsal does it, by libfaketime; a host without a file for its clock has the machine's."""
    if not list(Path("/usr").glob("lib*/**/faketime/libfaketimeMT.so.1")):
        pytest.skip("libfaketime is not installed: apt-get install faketime")
    folder = a_folder(tmp_path / "stack")
    set_clock(folder, "127.19.1.11", "+3600")
    programs = Programs(folder, {}, light=True)
    asked = "import time; print(time.time(), time.monotonic())"

    told = subprocess.run(
        [sys.executable, "-c", asked], env=programs.clock_of("127.19.1.11"), capture_output=True, text=True, check=True
    )

    there, timer = map(float, told.stdout.split())
    assert there - time.time() == pytest.approx(3600, abs=60)
    assert timer == pytest.approx(time.monotonic(), abs=60)
    assert programs.clock_of("127.19.1.12") == {}


def test_all_requests_of_a_lost_cell_may_be_retried_and_none_while_its_host_may_still_answer() -> None:
    """Envoy counts retries of an aggregate cluster against its own limit, three at once by default."""
    envoy = yaml.safe_load((PARTS / "envoy.yaml").read_text(encoding="utf-8"))
    aggregates = [each for each in envoy["static_resources"]["clusters"] if "cluster_type" in each]
    manager = envoy["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    routes = {each.get("name"): each.get("route") for each in manager["route_config"]["virtual_hosts"][0]["routes"]}

    assert len(aggregates) == len(CELLS)
    assert all(each["circuit_breakers"]["thresholds"][0]["max_retries"] >= 1000 for each in aggregates)
    tried, all_of_it = routes["plan"]["retry_policy"]["per_try_timeout"], routes["plan"]["timeout"]
    assert DEADLINE < float(tried.rstrip("s")) < float(all_of_it.rstrip("s"))


def test_a_program_that_ends_with_its_parent_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    """Envoy is such a one: a successor that a scenario's thread starts went on only until the scenario had acted."""
    programs = Programs(a_folder(tmp_path / "stack"), {}, light=True)
    says = "print('asked', flush=True)"
    ends_with_parent = f"import ctypes, time; ctypes.CDLL(None).prctl(1, 15, 0, 0, 0); {says}; time.sleep(60)"

    def act() -> None:
        programs.start("envoy", [sys.executable, "-c", ends_with_parent])
        end = time.monotonic() + 20
        while "asked" not in programs.log_of("envoy") and time.monotonic() < end:
            time.sleep(0.02)

    acts = threading.Thread(target=act)
    acts.start()
    acts.join()
    try:
        assert "asked" in programs.log_of("envoy")
        with pytest.raises(subprocess.TimeoutExpired):
            programs.wait("envoy", 0.5)
    finally:
        programs.stop()
