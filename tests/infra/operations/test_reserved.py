"""What EC2 holds reserved, compared with what the fleet's events ask for."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from infra.fleet.reservations import reserved
from infra.fleet.settings import FLEETS, FleetSettings
from infra.operations import preflight
from infra.operations.preflight import Verdict
from infra.operations.reserved import holdings

PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")


def test_reservations_that_ec2_does_not_hold_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One zone's reservation did not grow for the event; another fleet's of the same type does not make up for it."""
    event = next(iter(reserved(PRIME_DAY, PRIME_DAY.groups[0])))
    other = next(iter(reserved(PRIME_DAY, PRIME_DAY.groups[1])))
    counts = {"inf2.xlarge": event.instances, "trn1.2xlarge": other.instances}
    held = {
        f"cr-{kind}-{zone}": {
            "State": "active", "InstanceType": kind, "AvailabilityZone": zone, "TotalInstanceCount": count,
        }
        for kind, count in counts.items()
        for zone in PRIME_DAY.availability_zones
    }  # fmt: skip
    held["cr-inf2.xlarge-us-east-1d"]["TotalInstanceCount"] = 1

    pages = {
        "describe_stacks": [{"Stacks": [{"StackName": "peakplan-prime-day-cell-1"}]}],
        "describe_capacity_reservations": [{"CapacityReservations": list(held.values())}],
    }
    asked: list[Any] = []

    class Api:
        def get_paginator(self, name: str) -> Any:
            def paginate(**words: Any) -> Any:
                asked.append(words)
                return pages[name]

            return SimpleNamespace(paginate=paginate)

    clients = {"cloudformation": Api(), "ec2": Api()}
    found = {(each.instance_type, each.zone): each for each in holdings(PRIME_DAY, clients.__getitem__, event.starts)}
    assert len(found) == 6
    lacking = [each for each in found.values() if each.held < each.wanted]
    assert [(each.zone, each.held, each.wanted, each.event) for each in lacking] == [
        ("us-east-1d", 1, event.instances, "prime-day-2027")
    ]
    assert {"Name": "tag:peakplan:fleet", "Values": ["prime-day"]} in asked[-1]["Filters"], "not another fleet's"
    before = holdings(PRIME_DAY, clients.__getitem__, event.opens - timedelta(minutes=1))
    assert list(before) == [], "nothing is reserved, and nothing paid for, outside events"
    monkeypatch.setattr(preflight, "holdings", lambda *_: lacking)
    (said,) = preflight._reservations(PRIME_DAY, clients.__getitem__)
    assert said.verdict is Verdict.LACKS
    assert f"us-east-1d: 1 of {event.instances} reserved while prime-day-2027 is open" in said.what
