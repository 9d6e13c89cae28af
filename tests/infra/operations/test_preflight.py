"""The preflight reports what an account lacks to run the fleet, and passes an account that lacks nothing.

Against moto, and for Service Quotas, of which moto knows little, against answers that botocore checks for their shape.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from infra.fleet.calendar import reserved
from infra.fleet.settings import FLEETS, FleetSettings
from infra.operations import preflight
from infra.operations.preflight import Verdict, holdings, inspect
from infra.operations.quotas import needs
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.moto_server import MotoServer, stubbed
from tests.infra.operations.rollout_account import image_of

# Names, codes and what a new account has, as Service Quotas lists them.
DEFAULTS = {
    "ec2": {
        "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances": ("L-1216C47A", 5),
        "Running On-Demand Inf instances": ("L-1945791B", 8),
        "Running On-Demand Trn instances": ("L-2C3B7624", 8),
    },
    "ebs": {"Storage for General Purpose SSD (gp3) volumes, in TiB": ("L-7A658B76", 50)},
    "elasticloadbalancing": {
        "Application Load Balancers per Region": ("L-53DA6B97", 50),
        "Targets per Application Load Balancer": ("L-7E6692B2", 1000),
        "Network Load Balancers per Region": ("L-69A177A2", 50),
        # The first of these is not the one that limits a region.
        "Reserved Application Load Balancer Capacity Units (LCUs) per Application Load Balancer": ("L-0BB7B635", 15000),
        "Reserved Application Load Balancer Capacity Units (LCU) per Region": ("L-8A66D0E6", 0),
    },
    "elasticache": {"Nodes per Region": ("L-DFE45DF3", 300)},
    "vpc": {
        "VPCs per Region": ("L-F678F1CE", 5),
        "Network interfaces per Region": ("L-DF5E4CA3", 5000),
        "Interface VPC endpoints per VPC": ("L-29B6F2EB", 50),
        "Inbound or outbound rules per security group": ("L-0EA8095F", 60),
    },
}


def quotas(settings: FleetSettings, granted: dict[str, float]) -> Any:
    """A Service Quotas client that lists the defaults, and what was `granted` (by name) before them."""
    client, stub = stubbed("service-quotas")
    for service in dict.fromkeys(need.service for need in needs(settings) if need.code):
        listed = {name: (code, value) for name, (code, value) in DEFAULTS[service].items()}
        for operation, values in (("list_service_quotas", granted), ("list_aws_default_service_quotas", None)):
            found = [
                {"ServiceCode": service, "QuotaCode": code, "QuotaName": name, "Value": float(value)}
                for name, (code, default) in listed.items()
                for value in [default if values is None else values.get(name, default)]
            ]
            stub.add_response(operation, {"Quotas": found}, {"ServiceCode": service})
    return client


class Account:
    """A region of moto with everything that a deploy needs, from which a test removes something.

    Its certificate is as ACM would describe it once it was imported, but for what is `certified`.
    """

    def __init__(
        self, server: MotoServer, settings: FleetSettings, granted: dict[str, float], **certified: Any
    ) -> None:
        self.server, self.settings, self._quotas = server, settings, quotas(settings, granted)
        self.root_gib, self.offered = 50, set(settings.availability_zones)
        names = [f"plan.{settings.network.domain}", f"*.plan.{settings.network.domain}"]
        lasts = datetime.now(UTC) + timedelta(days=300)
        imported = {"DomainName": names[0], "SubjectAlternativeNames": names, "Status": "ISSUED", "NotAfter": lasts}
        self._acm = SimpleNamespace(describe_certificate=lambda **_: {"Certificate": imported | certified})

    def client(self, name: str) -> Any:
        others = {"service-quotas": self._quotas, "acm": self._acm, "ec2": Offering(self)}
        return others.get(name) or self.server.client(name)

    def prepare(self) -> None:
        """Everything that a deploy needs beside quotas."""
        settings, machine = self.settings, self.settings.machine_image
        put = {
            "/cdk-bootstrap/hnb659fds/version": "25",
            machine.base_parameter: "ami-12c6146b",
            machine.parameter: image_of(settings, self.server.client("ec2")),
            settings.load_balancer.certificate_parameter: "arn:certificate",
        }
        for name, value in put.items():
            self.server.client("ssm").put_parameter(Name=name, Value=value, Type="String", Overwrite=True)
        if settings.load_balancer.authentication.trust_bundle:
            bucket, key, _ = settings.load_balancer.authentication.trusted("123456789012")
            self.server.client("s3").create_bucket(Bucket=bucket)
            self.server.client("s3").put_object(Bucket=bucket, Key=key, Body=b"PEM")

    def found(self, verdict: Verdict) -> list[str]:
        return [str(finding) for finding in inspect(self.settings, self.client) if finding.verdict is verdict]


class Offering:
    """moto's EC2, except for the zones that offer an instance type and an image's root size."""

    def __init__(self, account: Account) -> None:
        self._account, self._ec2 = account, account.server.client("ec2")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ec2, name)

    def describe_images(self, **asked: Any) -> Any:
        found = self._ec2.describe_images(**asked)
        for image in found["Images"]:
            root = {"DeviceName": image["RootDeviceName"], "Ebs": {"VolumeSize": self._account.root_gib}}
            image["BlockDeviceMappings"] = [root]
        return found

    def get_paginator(self, name: str) -> "Offering":
        assert name == "describe_instance_type_offerings"
        return self

    def paginate(self, *, LocationType: str, Filters: list[Any]) -> Iterator[dict[str, Any]]:  # noqa: N803  # boto3's
        assert LocationType == "availability-zone"
        kind = Filters[0]["Values"][0]
        yield {"InstanceTypeOfferings": [{"InstanceType": kind, "Location": zone} for zone in self._account.offered]}


def named(fleet: FleetSettings, name: str) -> FleetSettings:
    """The fleet with parameters of its own in the one account."""
    machine = fleet.machine_image.model_copy(
        update={"parameter": f"/imagebuilder/{name}", "base_parameter": f"/{name}/base"}
    )
    balancer = fleet.load_balancer.model_copy(update={"certificate_parameter": f"/{name}/certificate"})
    return fleet.model_copy(update={"name": name, "machine_image": machine, "load_balancer": balancer})


# What prime-day asks of an account, granted.
GRANTED = {
    "Running On-Demand Inf instances": 5000.0,
    "Running On-Demand Trn instances": 2500.0,
    "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances": 4000.0,
    "Storage for General Purpose SSD (gp3) volumes, in TiB": 200.0,
}


@pytest.fixture
def ready(moto_server: MotoServer) -> Callable[..., Account]:
    """Makes an account with everything that a fleet's deploy needs."""

    def make(name: str, fleet: FleetSettings, granted: dict[str, float] = GRANTED, **certified: Any) -> Account:
        account = Account(moto_server, named(fleet, name), granted, **certified)
        account.prepare()
        return account

    return make


ME = {"Account": "123456789012", "UserId": "u", "Arn": "arn:aws:iam::123456789012:user/operator"}
PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")


Ready = Callable[..., Account]


def test_default_quotas_list_what_prime_day_lacks_and_granted_ones_let_it_through(ready: Ready) -> None:
    lacking = ready("prime-lacks", PRIME_DAY, {}).found(Verdict.LACKS)
    assert len(lacking) == 4, lacking
    inf, trn, standard, disks = lacking
    assert "4636 needed (vCPUs of 6 cells x 156 inf2.xlarge, and 37 a cell that a lost zone leaves reserved, and" in inf
    assert ", and a bake), 8" in inf
    assert "--service-code ec2 --quota-code L-1945791B --desired-value 4636" in inf
    assert "2352 needed (vCPUs of 6 cells x 39 trn1.2xlarge, and 10 a cell" in trn
    assert "3456 needed (vCPUs of 6 cells x 36 c7a.4xlarge), 5 granted" in standard
    assert "68 needed (root volumes of 1386 instances, the warm pool's too), 50 granted" in disks
    assert ready("prime-granted", PRIME_DAY).found(Verdict.LACKS) == []
    reserving = PRIME_DAY.load_balancer.model_copy(update={"reserve_capacity": True})
    (lacks,) = ready("prime-reserves", PRIME_DAY.model_copy(update={"load_balancer": reserving})).found(Verdict.LACKS)
    assert "Reserved Application Load Balancer Capacity Units (LCU) per Region" in lacks
    assert ", 0 granted" in lacks
    assert "--quota-code L-8A66D0E6" in lacks


def test_an_empty_account_is_told_everything_that_it_lacks(moto_server: MotoServer) -> None:
    lacking = "\n".join(Account(moto_server, named(dev_fleet(), "empty"), GRANTED).found(Verdict.LACKS))
    assert "no base image: the parameter /empty/base is not there" in lacking
    assert "no certificate: the parameter /empty/certificate is not there" in lacking


def test_a_zone_without_the_chip_is_named_with_those_that_have_it(ready: Ready) -> None:
    account = ready("zones", dev_fleet())
    account.offered = {"us-east-1a", "us-east-1b", "us-east-1f"}
    lacking = account.found(Verdict.LACKS)
    assert len(lacking) == 2
    assert "inf2.xlarge is not offered in us-east-1c" in lacking[0]
    assert "choose from us-east-1a, us-east-1b, us-east-1f" in lacking[0]


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        ({"Status": "PENDING_VALIDATION"}, "nobody can prove a private name to a public CA"),
        ({"SubjectAlternativeNames": []}, "not for *.plan.planner.internal"),
        ({"NotAfter": datetime(2026, 1, 1, tzinfo=UTC)}, "ends on 2026-01-01"),
    ],
    ids=["not issued", "a name is missing", "it ends"],
)
def test_a_certificate_that_callers_would_refuse_is_found_before(
    ready: Ready, certificate: dict[str, Any], words: str
) -> None:
    (lacking,) = ready("certificate", dev_fleet(), **certificate).found(Verdict.LACKS)
    assert words in lacking


def test_an_image_that_hosts_could_not_boot_is_found_before(ready: Ready) -> None:
    account = ready("image", dev_fleet())
    account.root_gib = 150
    base, release = account.found(Verdict.LACKS)
    assert "base image ami-12c6146b has a root of 150 GiB, and hosts get 50" in base
    assert "has a root of 150 GiB, and hosts get 50\n      -> machine_image.root_gib: 150" in release


def test_what_the_fleet_file_names_must_be_there(ready: Ready, moto_server: MotoServer) -> None:
    changes = {
        "access": {"privatelink": False, "transit_gateway": "tgw-0123456789abcdef0"},
        "callers.0.cidrs": ["10.0.0.0/12"],
        "load_balancer.authentication": {"method": "mtls", "trust_bundle": "s3://trust-{account}/authorities.pem"},
    }
    account = ready("names", dev_fleet(changes))
    moto_server.client("s3").delete_object(Bucket="trust-123456789012", Key="authorities.pem")
    assert "s3://trust-123456789012/authorities.pem" in "\n".join(account.found(Verdict.LACKS))


def test_a_trust_bucket_of_somebody_else_is_refused() -> None:
    """Bucket names are global: another account that owns the bucket would decide which clients are trusted."""
    authentication = {"method": "mtls", "trust_bundle": "s3://trust-{account}/authorities.pem"}
    settings = dev_fleet({"load_balancer.authentication": authentication})
    (s3, kept), (sts, who) = stubbed("s3"), stubbed("sts")
    who.add_response("get_caller_identity", ME, {})
    owned = {"Bucket": "trust-123456789012", "Key": "authorities.pem", "ExpectedBucketOwner": "123456789012"}
    kept.add_response("head_object", {}, owned)  # its bucket keeps no versions
    found = preflight._named_by_id(settings, {"s3": s3, "sts": sts, "ec2": None}.__getitem__)
    assert [str(finding) for finding in found] == ["ok    s3://trust-123456789012/authorities.pem is there"]


def test_the_command_says_what_it_found(
    moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    found = [preflight.Finding(Verdict.GOOD, "fine")]
    monkeypatch.setattr(preflight, "inspect", lambda settings, clients: found)  # noqa: ARG005
    assert preflight.main(["dev"]) == 0
    assert "dev can be deployed" in capsys.readouterr().out
    found.append(preflight.Finding(Verdict.LACKS, "no certificate", "import one"))
    assert preflight.main(["dev"]) == 1
    assert "dev cannot be deployed: 1 lack" in capsys.readouterr().out
    assert preflight.main(["dev", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "fleet": "dev",
        "can_be_deployed": False,
        "findings": [
            {"verdict": "ok", "what": "fine", "remedy": ""},
            {"verdict": "LACKS", "what": "no certificate", "remedy": "import one"},
        ],
    }
    assert preflight.main(["nowhere"]) == 2
    monkeypatch.undo()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert preflight.main(["dev"]) == 2
    assert "AWS cannot be reached" in capsys.readouterr().err


def test_a_page_that_nobody_confirmed_is_found() -> None:
    topic = "arn:aws:sns:us-east-1:123456789012:peakplan-dev-{}"
    said = [
        {"SubscriptionArn": "PendingConfirmation", "TopicArn": topic.format("pages"), "Endpoint": "night@example.com"},
        {"SubscriptionArn": "arn:...", "TopicArn": topic.format("tickets"), "Endpoint": "desk@example.com"},
        {"SubscriptionArn": "PendingConfirmation", "TopicArn": topic.format("others"), "Endpoint": "who@example.com"},
    ]
    client, stub = stubbed("sns")
    stub.add_response("list_subscriptions", {"Subscriptions": said}, {})
    (found,) = preflight._subscriptions(dev_fleet(), lambda _: client)
    assert (found.verdict, found.what) == (Verdict.LACKS, "night@example.com has not confirmed its subscription")


@pytest.mark.parametrize(("pays", "lacking"), [("999999999999", 1), ("123456789012", 0), (None, 0)])
def test_a_member_account_is_told_that_it_cannot_watch_cost_by_tags(pays: str | None, lacking: int) -> None:
    (organizations, asked_of), (sts, asked_who) = stubbed("organizations"), stubbed("sts")
    clients = {"organizations": organizations, "sts": sts}
    if pays:
        asked_of.add_response("describe_organization", {"Organization": {"MasterAccountId": pays}}, {})
    else:
        asked_of.add_client_error("describe_organization", "AWSOrganizationsNotInUseException")
    asked_who.add_response("get_caller_identity", ME, {})
    asked = dev_fleet({"cost_anomalies": True})
    assert len(list(preflight._payer(asked, clients.__getitem__))) == lacking
    assert list(preflight._payer(dev_fleet(), clients.__getitem__)) == []


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

    def paginator(name: str) -> Any:
        return SimpleNamespace(paginate=lambda **words: asked.append(words) or pages[name])

    def clients(_: str) -> Any:
        return SimpleNamespace(get_paginator=paginator)

    found = {(each.instance_type, each.zone): each for each in holdings(PRIME_DAY, clients, event.starts)}
    assert len(found) == 6
    lacking = [each for each in found.values() if each.held < each.wanted]
    assert [(each.zone, each.held, each.wanted, each.event) for each in lacking] == [
        ("us-east-1d", 1, event.instances, "prime-day-2027")
    ]
    assert {"Name": "tag:peakplan:fleet", "Values": ["prime-day"]} in asked[-1]["Filters"], "not another fleet's"
    before = holdings(PRIME_DAY, clients, event.opens - timedelta(minutes=1))
    assert list(before) == [], "nothing is reserved, and nothing paid for, outside events"
    monkeypatch.setattr(preflight, "holdings", lambda *_: lacking)
    (said,) = preflight._reservations(PRIME_DAY, clients)
    assert said.verdict is Verdict.LACKS
    assert f"us-east-1d: 1 of {event.instances} reserved while prime-day-2027 is open" in said.what
