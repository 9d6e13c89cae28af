"""An account that cannot run the fleet is told so, with what to ask for; one that can is let through.

Against moto, and for Service Quotas, of which moto knows little, against answers that botocore checks for their shape.
"""

import json
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from infra.fleet.settings import FLEETS, FleetSettings
from infra.operations import preflight
from infra.operations.preflight import Verdict
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.moto_server import MotoServer
from tests.infra.operations.preflight_account import GRANTED, Account, certified, named

PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")


def test_default_quotas_list_what_prime_day_lacks(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account(moto_server, named(PRIME_DAY, "prime-lacks"))
    account.prepare()
    certified(account, monkeypatch)
    lacking = account.found(Verdict.LACKS)
    assert len(lacking) == 4, lacking
    inf, trn, standard, disks = lacking
    assert "4636 needed (vCPUs of 6 cells x 156 inf2.xlarge, and 37 a cell that a lost zone leaves reserved, and" in inf
    assert ", and a bake), 8" in inf
    assert "--service-code ec2 --quota-code L-1945791B --desired-value 4636" in inf
    assert "2352 needed (vCPUs of 6 cells x 39 trn1.2xlarge, and 10 a cell" in trn
    assert "3456 needed (vCPUs of 6 cells x 36 c7a.4xlarge), 5 granted" in standard
    assert "68 needed (root volumes of 1386 instances, the warm pool's too), 50 granted" in disks


def test_granted_quotas_let_prime_day_through(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account(moto_server, named(PRIME_DAY, "prime-granted"), GRANTED)
    account.prepare()
    certified(account, monkeypatch)
    assert account.found(Verdict.LACKS) == []


def test_reserved_capacity_is_asked_for_where_a_fleet_reserves(
    moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = named(PRIME_DAY, "prime-reserves")
    reserving = fleet.load_balancer.model_copy(update={"reserve_capacity": True})
    account = Account(moto_server, fleet.model_copy(update={"load_balancer": reserving}), GRANTED)
    account.prepare()
    certified(account, monkeypatch)
    (lacking,) = account.found(Verdict.LACKS)
    assert "Reserved Application Load Balancer Capacity Units (LCU) per Region" in lacking
    assert ", 0 granted" in lacking
    assert "--quota-code L-8A66D0E6" in lacking


def test_an_empty_account_is_told_everything_that_it_lacks(moto_server: MotoServer) -> None:
    empty = named(dev_fleet(), "empty")
    lacking = "\n".join(Account(moto_server, empty, GRANTED).found(Verdict.LACKS))
    assert "no base image: the parameter /empty/base is not there" in lacking
    assert "no certificate: the parameter /empty/certificate is not there" in lacking


def test_a_zone_without_the_chip_is_named_with_those_that_have_it(
    moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account(moto_server, named(dev_fleet(), "zones"), GRANTED)
    account.prepare()
    certified(account, monkeypatch)
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
    moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch, certificate: dict[str, Any], words: str
) -> None:
    account = Account(moto_server, named(dev_fleet(), "certificate"), GRANTED)
    account.prepare()
    certified(account, monkeypatch, **certificate)
    (lacking,) = account.found(Verdict.LACKS)
    assert words in lacking


def test_an_image_that_hosts_could_not_boot_is_found_before(
    moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account(moto_server, named(dev_fleet(), "image"), GRANTED)
    account.prepare()
    certified(account, monkeypatch)
    account.root_gib = 150
    base, release = account.found(Verdict.LACKS)
    assert "base image ami-12c6146b has a root of 150 GiB, and hosts get 50" in base
    assert "has a root of 150 GiB, and hosts get 50\n      -> machine_image.root_gib: 150" in release


def test_what_the_fleet_file_names_must_be_there(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {
        "access": {"privatelink": False, "transit_gateway": "tgw-0123456789abcdef0"},
        "callers.0.cidrs": ["10.0.0.0/12"],
        "load_balancer.authentication": {"method": "mtls", "trust_bundle": "s3://trust-{account}/authorities.pem"},
    }
    account = Account(moto_server, named(dev_fleet(changes), "names"), GRANTED)
    account.prepare()
    certified(account, monkeypatch)
    moto_server.client("s3").delete_object(Bucket="trust-123456789012", Key="authorities.pem")
    lacking = "\n".join(account.found(Verdict.LACKS))
    assert "s3://trust-123456789012/authorities.pem" in lacking


def test_a_trust_bucket_of_somebody_else_is_refused(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3's names are everybody's: whoever takes one first would say which clients are trusted."""
    authentication = {"method": "mtls", "trust_bundle": "s3://trust-{account}/authorities.pem"}
    settings = dev_fleet({"load_balancer.authentication": authentication})
    s3 = moto_server.client("s3")
    asked: list[dict[str, str]] = []

    def head_object(**given: str) -> dict[str, str]:
        asked.append(given)
        return {}  # its bucket keeps no versions

    monkeypatch.setattr(s3, "head_object", head_object)
    clients = {"s3": s3}
    found = preflight._named_by_id(settings, lambda name: clients.get(name) or moto_server.client(name))
    assert [str(finding) for finding in found] == ["ok    s3://trust-123456789012/authorities.pem is there"]
    assert asked == [{"Bucket": "trust-123456789012", "Key": "authorities.pem", "ExpectedBucketOwner": "123456789012"}]


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


def test_without_credentials_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    assert preflight.main(["dev"]) == 2
    assert "AWS cannot be reached" in capsys.readouterr().err


def test_a_page_that_nobody_confirmed_is_found() -> None:
    topic = "arn:aws:sns:us-east-1:123456789012:peakplan-dev-{}"
    said = [
        {"SubscriptionArn": "PendingConfirmation", "TopicArn": topic.format("pages"), "Endpoint": "night@example.com"},
        {"SubscriptionArn": "arn:...", "TopicArn": topic.format("tickets"), "Endpoint": "desk@example.com"},
        {"SubscriptionArn": "PendingConfirmation", "TopicArn": topic.format("others"), "Endpoint": "who@example.com"},
    ]
    client = boto3.client("sns", region_name="us-east-1", aws_access_key_id="t", aws_secret_access_key="t")
    with Stubber(client) as stub:
        stub.add_response("list_subscriptions", {"Subscriptions": said}, {})
        (found,) = preflight._subscriptions(dev_fleet(), lambda _: client)
    assert (found.verdict, found.what) == (Verdict.LACKS, "night@example.com has not confirmed its subscription")


@pytest.mark.parametrize(("pays", "lacking"), [("999999999999", 1), ("123456789012", 0), (None, 0)])
def test_a_member_account_is_told_that_it_cannot_watch_cost_by_tags(pays: str | None, lacking: int) -> None:
    names = ("organizations", "sts")
    clients = {
        name: boto3.client(name, region_name="us-east-1", aws_access_key_id="t", aws_secret_access_key="t")
        for name in names
    }
    stubs = {name: Stubber(client) for name, client in clients.items()}
    for stub in stubs.values():
        stub.activate()
    if pays:
        stubs["organizations"].add_response("describe_organization", {"Organization": {"MasterAccountId": pays}}, {})
    else:
        stubs["organizations"].add_client_error("describe_organization", "AWSOrganizationsNotInUseException")
    me = {"Account": "123456789012", "UserId": "u", "Arn": "arn:aws:iam::123456789012:user/operator"}
    stubs["sts"].add_response("get_caller_identity", me, {})
    asked = dev_fleet({"cost_anomalies": True})
    assert len(list(preflight._payer(asked, clients.__getitem__))) == lacking
    assert list(preflight._payer(dev_fleet(), clients.__getitem__)) == []
