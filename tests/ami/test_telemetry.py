"""A host's Neuron metrics are those that the alarms read, and they name the host's fleet and cell.

Not run on hardware: the sample is written after neuron-monitor-prometheus.py as Neuron SDK 2.x ships it.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.fleet.metrics import metrics
from infra.fleet.parts import REPOSITORY_ROOT
from tests.ami.programs import Programs
from tests.infra.synthesis import resources, templates

AGENT = REPOSITORY_ROOT / "ami" / "agent"
SCRIPT = REPOSITORY_ROOT / "ami" / "host" / "telemetry.py"
WORDS = "FLEET=prime-day CELL=cell-2 GROUP=inf2 LOG_GROUP=/peakplan/prime-day/cell-2"
HOST = dict(f"PEAKPLAN_{word}".split("=") for word in WORDS.split())
NEURON = {name: metric for name, metric in metrics().metrics.items() if metric.source == "neuron"}
# neuron-monitor's metric group that each of the Prometheus script's metrics comes from.
GROUPS = {
    "neuroncore_utilization_ratio": "neuroncore_counters",
    "neuron_runtime_memory_used_bytes": "memory_used",
    "execution_latency_seconds": "execution_stats",
    "execution_errors_total": "execution_stats",
    "execution_status_total": "execution_stats",
    "hardware_ecc_events_total": "neuron_hw_counters",
}


def boot(folder: Path, host: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the host's script with an agent that only notes how it was started."""
    programs = Programs(folder)
    places = {"TEMPLATES": AGENT, "FOLDER": folder, "CONTROL": programs.add("agent-ctl")}
    told = host | {f"PEAKPLAN_AGENT_{name}": place for name, place in places.items()}
    return programs.run(sys.executable, SCRIPT, **told)


@pytest.fixture
def agent(tmp_path: Path) -> Any:
    """The agent's configuration as a host of prime-day's second cell writes it."""
    done = boot(tmp_path, HOST)
    assert done.returncode == 0, done.stderr
    return json.loads((tmp_path / "cloudwatch-agent.json").read_text(encoding="utf-8"))


@pytest.fixture
def declared(agent: Any) -> dict[str, Any]:
    """The agent's declarations by the one metric that each selects."""
    found = {}
    for declaration in agent["logs"]["metrics_collected"]["prometheus"]["emf_processor"]["metric_declaration"]:
        (selector,) = declaration["metric_selectors"]
        found[selector.removeprefix("^").removesuffix("$")] = declaration
    return found


def test_names_dimensions_units_and_namespace_are_the_fleet_s_own(agent: Any, declared: dict[str, Any]) -> None:
    processor = agent["logs"]["metrics_collected"]["prometheus"]["emf_processor"]
    assert processor["metric_namespace"] == metrics().sources["neuron"].namespace
    assert set(declared) == set(NEURON)
    for name, metric in NEURON.items():
        assert tuple(map(tuple, declared[name]["dimensions"])) == metric.dimensions
        assert processor["metric_unit"].get(name, "None") == metric.unit


def test_only_the_values_that_somebody_looks_at_become_metrics(declared: dict[str, Any]) -> None:
    for name, metric in NEURON.items():
        selector = declared[name]["metric_selectors"][0]
        assert re.search(selector, name)
        assert not re.search(selector, name.replace("_total", "_created") + "_"), "what the client library adds"
        for label, wanted in metric.values.items():
            assert declared[name]["source_labels"] == [label]
            every = {*wanted, "p0", "p100", "sram_ecc_corrected", "unknown"}
            matched = {value for value in every if re.search(declared[name]["label_matcher"], value)}
            assert matched == set(wanted)


def test_every_dimension_is_a_label_of_the_scrape_or_of_the_publisher(agent: Any, tmp_path: Path) -> None:
    assert agent
    (job,) = yaml.safe_load((tmp_path / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    (target,) = job["static_configs"]
    assert target["labels"] == {"Fleet": "prime-day", "Cell": "cell-2", "Group": "inf2"}
    assert job["job_name"] == "neuron"
    for metric in NEURON.values():
        for chosen in metric.dimensions:
            assert set(chosen) <= set(target["labels"]) | set(metric.values)


def test_neuron_monitor_collects_what_metrics_need_and_listens_where_the_agent_scrapes() -> None:
    monitor = json.loads((AGENT / "neuron-monitor.json").read_text(encoding="utf-8"))
    (runtimes,) = monitor["neuron_runtimes"]
    assert {each["type"] for each in runtimes["metrics"] + monitor["system_metrics"]} == set(GROUPS.values())
    assert set(GROUPS) == set(NEURON)
    unit = (REPOSITORY_ROOT / "ami" / "systemd" / "peakplan-neuron-monitor.service").read_text(encoding="utf-8")
    (port,) = re.findall(r"--port (\d+)", unit)
    (job,) = yaml.safe_load((AGENT / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"127.0.0.1:{port}"]
    assert "agent/neuron-monitor.json" in unit


def test_the_service_s_lines_go_to_the_cell_s_log_group_by_host(agent: Any, tmp_path: Path) -> None:
    (file,) = agent["logs"]["logs_collected"]["files"]["collect_list"]
    unit = (REPOSITORY_ROOT / "ami" / "systemd" / "peakplan.service").read_text(encoding="utf-8")
    assert set(re.findall(r"^Standard(?:Output|Error)=append:(.+)$", unit, re.MULTILINE)) == {file["file_path"]}
    assert file["log_group_name"] == HOST["PEAKPLAN_LOG_GROUP"]
    assert file["log_stream_name"] == "{instance_id}"
    assert "fetch-config -m ec2 -s -c file:" in (tmp_path / "asked").read_text(encoding="utf-8")


def test_a_host_that_knows_too_little_says_so(tmp_path: Path) -> None:
    done = boot(tmp_path, {"PEAKPLAN_FLEET": "prime-day"})
    assert done.returncode == 2
    assert "host.env does not say PEAKPLAN_CELL" in done.stderr
    assert not (tmp_path / "asked").exists()


@pytest.mark.slow  # a synth of the dev fleet
def test_user_data_tells_a_host_all_that_its_agent_must_know() -> None:
    placeholders = {
        name for file in AGENT.iterdir() for name in re.findall(r"\$\{(\w+)\}", file.read_text(encoding="utf-8"))
    }
    assert placeholders == set(HOST)
    for template in resources(templates("dev")["Cell-1"], "AWS::EC2::LaunchTemplate").values():
        told = json.dumps(template["Properties"]["LaunchTemplateData"]["UserData"])
        assert placeholders <= set(re.findall(r"(PEAKPLAN_\w+)=", told))
