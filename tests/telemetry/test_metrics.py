"""What the service counts: as EMF lines by AWS's schema and rules beyond it, and as Prometheus and vLLM name it."""

import asyncio
import errno
import json
import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.telemetry import names
from service.telemetry.metrics import EmfCollector, Label, Metrics, Outcome, Reading
from service.telemetry.names import DegradedReason, answer_sources, metric_names

SCHEMA = json.loads(Path(__file__).with_name("emf_schema.json").read_text(encoding="utf-8"))
WHO = {"Fleet": "dev", "Cell": "cell-1", "Group": ""}


def documents(collector: EmfCollector) -> list[dict[str, Any]]:
    """Return the lines, each checked: the schema, and a value for every metric and dimension that is named."""
    found = [json.loads(line) for line in collector.lines({"ModelVersion": "v1"})]
    for document in found:
        jsonschema.validate(document, SCHEMA)
        for directive in document["_aws"]["CloudWatchMetrics"]:
            assert directive["Dimensions"]
            for name in (metric["Name"] for metric in directive["Metrics"]):
                values = document[name] if isinstance(document[name], list) else [document[name]]
                assert 1 <= len(values) <= 100
                assert all(isinstance(value, int | float) for value in values)
            for dimension in (name for chosen in directive["Dimensions"] for name in chosen):
                assert 1 <= len(document[dimension]) <= 1024
    return found


def of(found: list[dict[str, Any]], name: str, source: str | None = None) -> list[float]:
    values: list[float] = []
    for document in found:
        if name in document and (source is None or document.get("Source") == source):
            values += document[name] if isinstance(document[name], list) else [document[name]]
    return values


def directive_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (
        directive
        for directive in document["_aws"]["CloudWatchMetrics"]
        if name in {metric["Name"] for metric in directive["Metrics"]}
    )
    return dict(found)


def test_latency_comes_by_rung_with_every_value_and_counts_as_sums() -> None:
    collector = EmfCollector(WHO)
    for milliseconds in range(250):
        collector.add("Latency", milliseconds, ("Source", "model"))
        collector.add("Answered", 1, ("Source", "model"))
    collector.add("Latency", 1.5, ("Source", "cache"))
    collector.add("Requests", 1)
    found = documents(collector)
    assert sorted(of(found, "Latency", "model")) == list(range(250))
    assert of(found, "Latency", "cache") == [1.5]
    assert of(found, "Answered", "model") == [250]
    assert of(found, "Requests") == [1]
    latency = directive_of(next(document for document in found if document.get("Source") == "model"), "Latency")
    assert latency["Namespace"] == "Peakplan"
    assert latency["Dimensions"] == [["Fleet", "Cell"], ["Fleet", "Cell", "Source"]]
    assert all(document["ModelVersion"] == "v1" for document in found)
    assert documents(collector) == []


def test_without_a_group_its_dimension_is_left_out_and_with_one_it_is_there() -> None:
    for group, expected in (("", [["Fleet", "Cell"]]), ("inf2", [["Fleet", "Cell"], ["Fleet", "Cell", "Group"]])):
        collector = EmfCollector(WHO | {"Group": group})
        collector.add("Requests", 3)
        (document,) = documents(collector)
        directive = directive_of(document, "Requests")
        assert directive["Dimensions"] == expected
        assert directive["Metrics"] == [{"Name": "Requests", "Unit": "Count", "StorageResolution": 1}]


def test_a_metric_that_the_fleet_does_not_know_is_an_error() -> None:
    with pytest.raises(KeyError):
        EmfCollector(WHO).add("Requets", 1)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(metric_names())),
            st.floats(0, 1e6, allow_nan=False),
            st.sampled_from([None, *(("Source", source) for source in answer_sources())]),
        ),
        max_size=300,
    )
)
def test_whatever_is_measured_is_a_valid_document(values: list[tuple[str, float, Label | None]]) -> None:
    collector = EmfCollector(WHO | {"Group": "inf2"})
    for name, value, label in values:
        dimensions = metric_names()[name].dimensions
        if label is None or ("Fleet", "Cell", "Source") not in dimensions:
            own = [name for chosen in dimensions for name in chosen if name in ("Reason", "Intent", "Position")]
            label = (own[0], "x") if own else None
        collector.add(name, value, label)
    found = documents(collector)
    assert {name for name, _, _ in values} == {name for name in metric_names() if of(found, name)}
    assert documents(collector) == []


def metrics_of(reading: Reading) -> tuple[Metrics, EmfCollector]:
    collector = EmfCollector(WHO)
    return Metrics(lambda: reading, 300.0, collector), collector


def test_a_request_becomes_its_metrics() -> None:
    metrics, _ = metrics_of(Reading(totals={"Admitted": 2, "CacheHits": 1}, outstanding=3, replicas=2))
    for _ in range(4):
        metrics.arrived()
    metrics.planned(
        Outcome(
            source="model",
            milliseconds=120.5,
            degraded=False,
            queue_milliseconds=10,
            tokens_per_step=2.5,
            forced_percent=40,
        )
    )
    metrics.planned(Outcome(source="fallback", milliseconds=301, degraded=True, reason="deadline", intent="support"))
    metrics.shed()
    metrics.failed()
    found = [json.loads(line) for line in metrics.lines()]
    for document in found:
        jsonschema.validate(document, SCHEMA)
    expected = {
        "Requests": [4], "Answered": [1, 1], "Degraded": [1], "Shed": [1], "SloGood": [1], "SloBad": [3],
        "QueueTime": [10], "TokensPerStep": [2.5], "ForcedShare": [40], "Admitted": [2], "CacheHits": [1],
        "OutstandingPerReplica": [1.5], "ReplicasInService": [2], "ModelLatency": [120.5], "Fallbacks": [1],
        "Intents": [1],
    }  # fmt: skip
    assert {name: of(found, name) for name in expected} == expected


def test_totals_are_counted_once_and_replicas_once_a_minute() -> None:
    metrics, _ = metrics_of(Reading(totals={"ReplicaRestarts": 3}, replicas=2))
    first, *rest = [[json.loads(line) for line in metrics.lines()] for _ in range(7)]
    assert (of(first, "ReplicaRestarts"), of(first, "ReplicasInService")) == ([3], [2])
    assert [of(found, "ReplicaRestarts") for found in rest] == [[0]] * 6
    assert [of(found, "Requests") for found in rest] == [[0]] * 6, "a quiet host is not a silent one"
    assert [of(found, "ReplicasInService") for found in rest] == [[]] * 5 + [[2]]


def test_offered_work_counts_what_was_refused_and_replica_seconds_what_could_be_done() -> None:
    reading = Reading(asked=40, service_seconds=0.05, replicas=2)
    now = 100.0
    collector = EmfCollector(WHO | {"Group": "inf2"})
    metrics = Metrics(lambda: reading, 300.0, collector, clock=lambda: now)
    for _ in range(9):
        metrics.shed()  # past the reader's own limit: it wanted a plan all the same
    metrics.shed(for_want_of_room=False)  # its caller asks too often: no reason to grow
    now = 110.0
    (document,) = [json.loads(line) for line in metrics.lines()]
    assert document["OfferedWork"] == pytest.approx((40 + 9) * 0.05)
    assert document["ReplicaSeconds"] == pytest.approx(20)
    now = 120.0
    (document,) = [json.loads(line) for line in metrics.lines()]
    assert (document["OfferedWork"], document["ReplicaSeconds"]) == (0, pytest.approx(20))
    assert directive_of(document, "OfferedWork")["Metrics"][0]["StorageResolution"] == 1


def test_a_reason_and_an_intent_are_dimensions() -> None:
    collector = EmfCollector(WHO | {"Release": "r-7"})
    metrics = Metrics(Reading, 300.0, collector)
    reasons: tuple[DegradedReason, ...] = ("deadline", "deadline", "engine")
    for reason in reasons:
        metrics.planned(Outcome(source="fallback", milliseconds=2, degraded=True, reason=reason, intent="find_product"))
    found = [json.loads(line) for line in metrics.lines()]
    assert {document["Reason"]: document["Fallbacks"] for document in found if "Reason" in document} == {
        "deadline": 2,
        "engine": 1,
    }
    assert [document["Intents"] for document in found if document.get("Intent") == "find_product"] == [3]
    (degraded,) = [document for document in found if "Degraded" in document]
    assert degraded["Release"] == "r-7"
    assert ["Fleet", "Cell", "Release"] in directive_of(degraded, "Degraded")["Dimensions"]


def test_prometheus_tells_the_same_and_of_drafts_and_prefixes_what_vllm_does() -> None:
    metrics, _ = metrics_of(Reading(totals={"Admitted": 2}, outstanding=3, replicas=2))
    metrics.arrived()
    outcome = Outcome(source="model", milliseconds=120.5, degraded=False, queue_milliseconds=10)
    metrics.planned(replace(outcome, drafts=3, draft_tokens=30, accepted_by_position=(3, 1), prompt_tokens=11))
    metrics.planned(
        replace(outcome, drafts=3, draft_tokens=30, accepted_by_position=(1,), prompt_tokens=24, cached_tokens=11)
    )
    text = metrics.exposition().decode()
    for line in (
        "peakplan_requests_total 1.0",
        'peakplan_answered_total{source="model"} 2.0',
        'peakplan_answered_total{source="fallback"} 0.0',
        'peakplan_latency_seconds_bucket{le="0.15",source="model"} 2.0',
        'peakplan_latency_seconds_bucket{le="0.1",source="model"} 0.0',
        "peakplan_admitted_total 2.0",
        "peakplan_outstanding_per_replica 1.5",
        "peakplan_slo_good_total 2.0",
        "peakplan_prefix_cache_queries_total 35.0",
        "peakplan_prefix_cache_hits_total 11.0",
        "peakplan_spec_decode_num_drafts_total 6.0",
        "peakplan_spec_decode_num_draft_tokens_total 60.0",
        "peakplan_spec_decode_num_accepted_tokens_total 5.0",
        'peakplan_spec_decode_num_accepted_tokens_per_pos_total{position="0"} 4.0',
        'peakplan_spec_decode_num_accepted_tokens_per_pos_total{position="1"} 1.0',
        'peakplan_spec_decode_num_accepted_tokens_per_pos_total{position="7"} 0.0',
    ):
        assert line in text.splitlines(), line


def counting_metrics() -> Metrics:
    return Metrics(Reading, 300.0, EmfCollector({"Fleet": "dev", "Cell": "cell-1"}))


@pytest.mark.anyio
async def test_lines_are_published_while_it_runs_and_once_more_at_the_end() -> None:
    metrics, written = counting_metrics(), []
    publishing = asyncio.create_task(metrics.publish_for_ever(written.append, seconds=0.01))
    async with asyncio.timeout(20):
        while len(written) < 2:
            await asyncio.sleep(0.005)
    metrics.arrived()
    publishing.cancel()
    await asyncio.wait({publishing})
    lines = b"".join(written).decode().splitlines()
    assert sum(json.loads(line).get("Requests", 0) for line in lines) == 1


@pytest.mark.anyio
async def test_a_full_disk_costs_metrics_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    def full(_: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    publishing = asyncio.create_task(counting_metrics().publish_for_ever(full, seconds=0.005))
    with caplog.at_level(logging.WARNING):
        await asyncio.sleep(0.1)
    assert not publishing.done()
    assert "metrics not written" in caplog.text
    publishing.cancel()
    await asyncio.wait({publishing})


@pytest.mark.anyio
async def test_metrics_that_nobody_reads_neither_hold_up_the_service_nor_pile_up() -> None:
    stalled, written = threading.Event(), []

    def write(data: bytes) -> None:
        written.append(data)
        stalled.wait(60)

    metrics = counting_metrics()
    publishing = asyncio.create_task(metrics.publish_for_ever(write, seconds=0.01))
    async with asyncio.timeout(20):
        while not written:
            await asyncio.sleep(0.005)
        metrics.arrived()
        while '"Requests":1' in "".join(metrics.lines()):
            await asyncio.sleep(0.005)
    assert len(written) == 1
    threads = threading.active_count()
    await asyncio.sleep(0.1)
    assert threading.active_count() == threads
    publishing.cancel()
    await asyncio.wait({publishing}, timeout=20)
    assert publishing.done()
    stalled.set()


FLEET_LIST = Path(names.__file__).parents[2] / "infra" / "fleet" / "metrics.json"


@pytest.mark.skipif(not FLEET_LIST.is_file(), reason="service/ stands alone here, without infra/")
def test_the_copy_is_the_fleets_own_list() -> None:
    assert names.FILE.read_bytes() == FLEET_LIST.read_bytes(), f"cp {FLEET_LIST} {names.FILE}"


def test_only_the_services_metrics_are_ours() -> None:
    known = names.metric_names()
    assert {"Latency", "Requests", "SloGood", "SloBad", "ReplicaRestarts"} <= set(known)
    assert "HealthyHostCount" not in known
    assert known["Requests"].resolution == 1
    assert names.namespace() == "Peakplan"
    assert {"cache", "model", "fallback"} <= set(names.answer_sources())


def test_the_fleets_list_names_the_reasons_that_answers_give() -> None:
    assert names.metric_names()["Fallbacks"].values["Reason"] == get_args(names.DegradedReason)
