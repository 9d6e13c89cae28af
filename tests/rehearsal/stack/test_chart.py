"""The Helm chart: Helm's own library lints and renders it, Kubernetes's schemas and Envoy accept what comes of it."""

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.fleet.sizing import HIGHEST_UTILISATION
from rehearsal.stack.folder import CELLS, PARTS, ROOT, RULES, certify, found
from tests.rehearsal.stack.parts import needs_parts

CHART = ROOT / "rehearsal" / "stack" / "chart"
KUBERNETES = "1.30"  # the oldest that Chart.yaml admits
NO_SCHEMA = ("keda.sh/", "monitoring.coreos.com/")
needs_helm = pytest.mark.skipif(
    find_spec("helm_python") is None, reason="Helm's library is not installed: peakplan tools install stack"
)
Manifest = dict[str, Any]


@cache
def _run(values: str) -> tuple[list[Manifest], list[str]]:
    """Return the manifests of these values, and what `helm lint` or Kubernetes's schemas find wrong with them."""
    import helm_python

    report = helm_python.lint(CHART, json.loads(values), strict=True, kube_version=f"v{KUBERNETES}.0")
    if refused := [str(each) for each in report["messages"] if each["severity"] > 1] + report["errors"]:
        return [], refused
    with helm_python.Chart.load(CHART) as chart:
        rendered = chart.render(json.loads(values), name="shop", namespace="planner")
    manifests = [each for text in rendered.values() for each in yaml.safe_load_all(text) if each]
    return manifests, [fault for each in manifests for fault in _faults(each)]


def _faults(manifest: Manifest) -> Iterator[str]:
    import kubernetes_validate

    if manifest["apiVersion"].startswith(NO_SCHEMA):
        return
    try:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{manifest['kind']} {manifest['metadata']['name']}: {error.message}"


def _of(kind: str, values: str = "{}") -> dict[str, Manifest]:
    manifests, faults = _run(values)
    assert faults == []
    return {each["metadata"]["name"]: each for each in manifests if each["kind"] == kind}


@needs_helm
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"hosts": {"minimum": 1}}, "minimum"),  # of the chart's own schema
        ({"hosts": {"enviroment": {}}}, "enviroment"),
        ({"hosts": {"resources": {"limit": {"cpu": "1"}}}}, "limit"),  # of Kubernetes's
    ],
)
def test_a_value_that_means_nothing_is_refused(values: dict[str, Any], said: str) -> None:
    assert said in "".join(_run(json.dumps(values))[1])


@needs_helm
def test_a_host_is_asked_when_it_is_ready_and_drains_before_it_ends() -> None:
    hosts = {name: each for name, each in _of("Deployment").items() if name.removeprefix("shop-") in CELLS}

    assert set(hosts) == {f"shop-{cell}" for cell in CELLS}
    for host in hosts.values():
        assert host["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
        pod = host["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        paths = {probe: container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "readiness", "liveness")}
        assert paths == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz"}
        variables = {each["name"]: each["value"] for each in container["env"]}
        assert 2 < int(variables["PEAKPLAN_DRAIN_SECONDS"]) < pod["terminationGracePeriodSeconds"]
        assert variables["PEAKPLAN_CACHE_URL"].startswith(f"redis://shop-{variables['PEAKPLAN_CELL']}-cache:")
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert pod["securityContext"]["runAsUser"] == 10001, "service/Dockerfile's"


@needs_helm
def test_no_drain_of_nodes_takes_more_than_one_of_a_part() -> None:
    budgets, pods = _of("PodDisruptionBudget"), _of("Deployment")

    assert {budget["spec"]["maxUnavailable"] for budget in budgets.values()} == {1}
    for name in (*(f"shop-{cell}" for cell in CELLS), "shop-envoy"):
        labels = pods[name]["spec"]["template"]["metadata"]["labels"]
        assert budgets[name]["spec"]["selector"]["matchLabels"].items() <= labels.items()


@needs_helm
def test_cells_are_scaled_by_offered_work_as_the_fleet_is() -> None:
    keda, none = _of("ScaledObject"), _of("Deployment", '{"scaling": {"kind": "none"}}')
    hpa = _of("HorizontalPodAutoscaler", '{"scaling": {"kind": "hpa"}, "hosts": {"replicas": 2}}')

    for cell in CELLS:
        (trigger,) = keda[f"shop-{cell}"]["spec"]["triggers"]
        assert float(trigger["metadata"]["threshold"]) == HIGHEST_UTILISATION
        assert f'peakplan_offered_work_total{{fleet="stack",cell="{cell}"}}' in trigger["metadata"]["query"]
        (metric,) = hpa[f"shop-{cell}"]["spec"]["metrics"]
        assert float(metric["pods"]["target"]["averageValue"]) == 2 * HIGHEST_UTILISATION
        assert none[f"shop-{cell}"]["spec"]["replicas"] == 3
        assert "replicas" not in _of("Deployment")[f"shop-{cell}"]["spec"], "a release would take hosts away"
    assert not _of("HorizontalPodAutoscaler")


@needs_helm
@needs_parts
def test_envoy_takes_the_charts_file_which_is_the_stacks_but_for_addresses(tmp_path: Path) -> None:
    text = _of("ConfigMap")["shop-envoy"]["data"]["envoy.yaml"]
    here, there = yaml.safe_load((PARTS / "envoy.yaml").read_text(encoding="utf-8")), yaml.safe_load(text)
    certify(tmp_path / "certificates", "127.0.0.1")
    file = tmp_path / "envoy.yaml"
    file.write_text(text.replace("/etc/peakplan", str(tmp_path)), encoding="utf-8")

    done = subprocess.run([found("envoy"), "--mode", "validate", "-c", str(file)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    named = {each["name"]: each for each in there["static_resources"]["clusters"]}
    for cluster in here["static_resources"]["clusters"]:
        other = named[cluster["name"]]
        if cluster.get("type") == "EDS":
            (endpoint,) = other["load_assignment"]["endpoints"][0]["lb_endpoints"]
            assert endpoint["endpoint"]["address"]["socket_address"]["address"] == f"shop-{cluster['name']}.planner.svc"
            del cluster["type"], cluster["eds_cluster_config"], other["type"], other["load_assignment"]
            del other["dns_refresh_rate"], other["respect_dns_ttl"]
        assert other == cluster
    for part in (here, there):
        part["static_resources"].pop("clusters")
    there["admin"]["address"] = here["admin"]["address"]
    there["static_resources"]["listeners"][0]["address"] = here["static_resources"]["listeners"][0]["address"]
    assert there == here
    names = {service["metadata"]["name"] for service in _of("Service").values()}
    assert {f"shop-{cell}" for cell in CELLS} <= names


@needs_helm
def test_prometheus_has_the_alarms_rules_and_the_labels_that_they_ask_for() -> None:
    rules = _of("PrometheusRule")
    monitors = _of("PodMonitor")

    assert rules["shop-prometheus-rules"]["spec"] == yaml.safe_load(RULES.read_text(encoding="utf-8"))
    endpoint = monitors["shop-host"]["spec"]["podMetricsEndpoints"][0]
    labels = {each["targetLabel"]: each.get("replacement") for each in endpoint["relabelings"]}
    assert labels == {"fleet": "stack", "job": "peakplan", "cell": None}
    assert not _of("PrometheusRule", '{"monitoring": {"enabled": false}}')


@needs_helm
def test_a_shop_in_ones_own_postgresql_is_filled_and_searched_by_every_host() -> None:
    values = '{"shop": {"urlSecret": "shop-url"}}'
    wanted = {"secretKeyRef": {"name": "shop-url", "key": "url"}}
    job = _of("Job", values)["shop-shop-products"]["spec"]["template"]["spec"]

    pods = [_of("Deployment", values)[f"shop-{cell}"]["spec"]["template"]["spec"] for cell in CELLS]
    for pod in (job, *pods):
        variables = {each["name"]: each.get("valueFrom") for each in pod["containers"][0]["env"]}
        assert variables["PEAKPLAN_SAMPLE_SHOP_URL"] == wanted
    assert not _of("Job"), "without a database of one's own each host keeps its sample shop in SQLite"


@needs_helm
def test_nobody_but_envoy_and_prometheus_reaches_a_host() -> None:
    policy = _of("NetworkPolicy")["shop-hosts"]["spec"]

    (rule,) = policy["ingress"]
    assert [sorted(peer) for peer in rule["from"]] == [["podSelector"], ["namespaceSelector"]]
    assert rule["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "envoy"
    for cell in CELLS:
        labels = _of("Deployment")[f"shop-{cell}"]["spec"]["template"]["metadata"]["labels"]
        assert policy["podSelector"]["matchLabels"].items() <= labels.items()
