from pathlib import Path
from typing import get_args

import pytest

from service.telemetry import names

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
