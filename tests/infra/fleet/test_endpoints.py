"""A VPC has one endpoint of a service, whoever asks for it: bill, quotas and addresses count it once."""

import pytest

from infra.fleet import addresses
from infra.fleet.cost import Prices, bills
from infra.fleet.settings import FleetSettings
from infra.operations.quotas import needs
from tests.infra.fleet.fleets import dev_fleet

OWN = {"service": "monitoring", "reason": "hosts publish a metric of ours", "actions": ["cloudwatch:PutMetricData"]}
KMS = {"service": "kms", "reason": "hosts decrypt a table at boot", "actions": ["kms:Decrypt"]}


def counted(settings: FleetSettings) -> tuple[float, float, int]:
    """How many a zone the bill and the quota count, and the addresses that a zone needs."""
    billed = sum(
        item.count
        for item in bills(settings, Prices.from_json())[0].items
        if item.what.startswith("interface endpoint")
    )
    (need,) = [each for each in needs(settings) if each.name == "Interface VPC endpoints per VPC"]
    return billed / len(settings.availability_zones), need.amount, addresses.needed_in_a_zone(settings)


def test_a_fleet_that_lists_what_its_canaries_reach_pays_for_it_once() -> None:
    assert counted(dev_fleet({"network.endpoints": [OWN]})) == counted(dev_fleet())


@pytest.mark.parametrize("enabled", [True, False])
def test_each_service_more_counts_one_in_all_three(enabled: bool) -> None:
    canaries = {"synthetic_plans.enabled": enabled}
    billed, quota, taken = counted(dev_fleet(canaries))
    assert counted(dev_fleet({**canaries, "network.endpoints": [KMS]})) == (billed + 1, quota + 1, taken + 1)
    assert billed == quota == 4 + enabled, "four of every host, and the canaries' monitoring; s3 is a route"


def test_the_canaries_endpoint_takes_an_address_too() -> None:
    without = counted(dev_fleet({"synthetic_plans.enabled": False}))[2]
    assert counted(dev_fleet())[2] == without + 1
