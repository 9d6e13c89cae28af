"""What the fleets that ship do not show: JWT, mutual TLS, NAT, a public balancer, reserved capacity, processors."""

import json
from functools import cache
from typing import Any

import pytest

from tests.infra.fleet.fleets import dev_fleet
from tests.infra.synthesis import Template, app_of, findings, only, resources, templates_of

pytestmark = pytest.mark.slow  # a synth of the dev fleet each

JWT = {"method": "jwt", "issuer": "https://issuer.example.com/", "jwks": "https://issuer.example.com/keys"}
MTLS = {"method": "mtls", "trust_bundle": "s3://trusted/authorities/2027.pem"}
RESERVATION = "cr-0123456789abcdef0"
# Two fleets show every branch: what one of them has, the other has not.
LOCKED: dict[str, Any] = {
    "load_balancer.authentication": MTLS,
    "groups.1.capacity_reservation_id": RESERVATION,
}
PUBLIC: dict[str, Any] = {
    "load_balancer.scheme": "internet-facing",
    "load_balancer.authentication": JWT,
    "network.nat": True,
    "access.privatelink": False,
    "callers.0.cidrs": ["198.51.100.0/24"],
}


@cache
def locked() -> dict[str, Template]:
    """An internal fleet behind mutual TLS, its trn1 group on reserved capacity."""
    return _clean(LOCKED)


@cache
def public() -> dict[str, Template]:
    """A fleet on the internet, behind JWT and with NAT."""
    return _clean(PUBLIC)


def _clean(changes: dict[str, Any]) -> dict[str, Template]:
    app = app_of(dev_fleet(changes))
    found = templates_of(app)
    assert findings(app) == []
    return found


def _listener(stacks: dict[str, Template]) -> Any:
    """The one that callers speak TLS to; the others are for PrivateLink's load balancer and its health checks."""
    found = resources(stacks["Cell-1"], "AWS::ElasticLoadBalancingV2::Listener").values()
    (callers,) = [
        each["Properties"] for each in found if "SslPolicy" in each["Properties"] and each["Properties"]["Port"] == 443
    ]
    return callers


def test_a_jwt_is_verified_before_anything_is_forwarded() -> None:
    verify, forward = sorted(_listener(public())["DefaultActions"], key=lambda action: int(action["Order"]))
    assert verify["Type"] == "jwt-validation"
    assert verify["JwtValidationConfig"] == {"Issuer": JWT["issuer"], "JwksEndpoint": JWT["jwks"]}
    assert forward["Type"] == "forward"


def test_mutual_tls_verifies_against_the_trust_store_of_the_bundle() -> None:
    cell = locked()["Cell-1"]
    (name,) = resources(cell, "AWS::ElasticLoadBalancingV2::TrustStore")
    store = only(cell, "AWS::ElasticLoadBalancingV2::TrustStore")
    mutual = _listener(locked())["MutualAuthentication"]
    assert mutual["Mode"] == "verify"
    assert name in json.dumps(mutual["TrustStoreArn"])
    assert store["CaCertificatesBundleS3Bucket"] == "trusted"
    assert store["CaCertificatesBundleS3Key"] == "authorities/2027.pem"
    assert [action["Type"] for action in _listener(locked())["DefaultActions"]] == ["forward"]


def test_a_public_load_balancer_stands_in_public_subnets_and_lets_named_networks_alone_in() -> None:
    cell = public()["Cell-1"]
    balancer = only(cell, "AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert balancer["Scheme"] == "internet-facing"
    parameters = {name: each["Default"] for name, each in cell["Parameters"].items() if "Default" in each}
    subnets = [parameters[subnet["Ref"]] for subnet in balancer["Subnets"]]
    assert subnets == [f"/peakplan/dev/network/public-subnet-{number}" for number in (1, 2, 3)]
    groups = resources(cell, "AWS::EC2::SecurityGroup").values()
    sources = [rule["CidrIp"] for group in groups for rule in group["Properties"].get("SecurityGroupIngress", [])]
    assert sources == ["198.51.100.0/24"]


def test_hosts_stay_private_behind_a_public_load_balancer() -> None:
    cell = public()["Cell-1"]
    parameters = {name: each["Default"] for name, each in cell["Parameters"].items() if "Default" in each}
    for group in resources(cell, "AWS::AutoScaling::AutoScalingGroup").values():
        subnets = [parameters[subnet["Ref"]] for subnet in group["Properties"]["VPCZoneIdentifier"]]
        assert subnets == [f"/peakplan/dev/network/cell-subnet-{number}" for number in (1, 2, 3)]


def test_nat_is_one_gateway_a_zone_and_hosts_may_reach_https_through_it() -> None:
    network = public()["Network"]
    assert len(resources(network, "AWS::EC2::NatGateway")) == 3
    (routes,) = {
        tuple(sorted(route["Properties"]))
        for route in resources(network, "AWS::EC2::Route").values()
        if "NatGatewayId" in route["Properties"]
    }
    assert "DestinationCidrBlock" in routes
    rules = [
        rule
        for group in resources(public()["Cell-1"], "AWS::EC2::SecurityGroup").values()
        for rule in group["Properties"].get("SecurityGroupEgress", [])
    ]
    anywhere = [(rule["FromPort"], rule["ToPort"]) for rule in rules if rule.get("CidrIp") == "0.0.0.0/0"]
    assert anywhere == [(443, 443)]


def test_without_nat_nothing_reaches_the_internet() -> None:
    network = locked()["Network"]
    assert not resources(network, "AWS::EC2::NatGateway")
    assert not resources(network, "AWS::EC2::InternetGateway")
    assert "0.0.0.0/0" not in json.dumps(resources(locked()["Cell-1"], "AWS::EC2::SecurityGroup"))


def test_reserved_capacity_is_used_first_by_its_own_group_alone() -> None:
    groups = resources(locked()["Cell-1"], "AWS::AutoScaling::AutoScalingGroup").values()
    reserved = {
        each["Properties"]["AutoScalingGroupName"]: each["Properties"].get("CapacityReservationSpecification")
        for each in groups
    }
    assert reserved == {
        "peakplan-dev-cell-1-inf2": None,
        "peakplan-dev-cell-1-trn1": {
            "CapacityReservationPreference": "capacity-reservations-first",
            "CapacityReservationTarget": {"CapacityReservationIds": [RESERVATION]},
        },
    }


PROCESSORS: dict[str, Any] = {
    "groups": [
        {
            "instance_type": "c7a.4xlarge",
            "engine": "torch",
            "service_time": {"mean_ms": 49.3, "p99_ms": 153.5, "source": "measured: the figures of another machine"},
            "minimum": 3,
            "maximum": 6,
        }
    ]
}


@cache
def processors() -> dict[str, Template]:
    """A fleet without a Neuron chip."""
    return _clean(PROCESSORS)


def test_a_cell_of_processors_runs_our_kernels_and_watches_no_chip() -> None:
    cell = processors()["Cell-1"]
    (template,) = resources(cell, "AWS::EC2::LaunchTemplate").values()
    data = template["Properties"]["LaunchTemplateData"]
    assert data["InstanceType"] == "c7a.4xlarge"
    told = json.dumps(data["UserData"])
    assert "PEAKPLAN_ENGINE=torch" in told
    assert "PEAKPLAN_GROUP=cpu" in told
    names = json.dumps(processors()["Observability"])
    assert "cell-1-neuron-" not in names
    assert "CPUUtilization" in names


def test_the_image_of_a_fleet_of_processors_is_baked_and_proven_on_one() -> None:
    image = processors()["Image"]
    assert only(image, "AWS::ImageBuilder::InfrastructureConfiguration")["InstanceTypes"] == ["c7a.4xlarge"]
    (recipe,) = resources(image, "AWS::ImageBuilder::ImageRecipe").values()
    parameters = {
        parameter["Name"]: parameter["Value"][0]
        for component in recipe["Properties"]["Components"]
        for parameter in component.get("Parameters", [])
    }
    assert parameters["CHIPS"] == "cpu"
    assert "PEAKPLAN_ENGINE=torch" in parameters["SETTINGS"]
