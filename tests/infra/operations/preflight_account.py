"""Accounts for preflight: a region of moto, with Service Quotas whose answers botocore checks for their shape."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from infra.fleet.release_tags import release_tags
from infra.fleet.settings import FleetSettings
from infra.operations.preflight import Verdict, inspect
from infra.operations.quotas import needs
from tests.infra.moto_server import MotoServer

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


def quotas(settings: FleetSettings, granted: dict[str, float] | None = None) -> Any:
    """A Service Quotas client that lists the defaults, and what was `granted` (by name) before them."""
    client = boto3.client(
        "service-quotas", region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing"
    )
    stub = Stubber(client)
    for service in dict.fromkeys(need.service for need in needs(settings) if need.code):
        listed = {name: (code, value) for name, (code, value) in DEFAULTS[service].items()}
        for operation, values in (("list_service_quotas", granted or {}), ("list_aws_default_service_quotas", None)):
            found = [
                {"ServiceCode": service, "QuotaCode": code, "QuotaName": name, "Value": float(value)}
                for name, (code, default) in listed.items()
                for value in [default if values is None else values.get(name, default)]
            ]
            stub.add_response(operation, {"Quotas": found}, {"ServiceCode": service})
    stub.activate()
    return client


class Account:
    """A region of moto with what the guide asks for, or without some of it."""

    def __init__(self, server: MotoServer, settings: FleetSettings, granted: dict[str, float] | None = None) -> None:
        self.server, self.settings = server, settings
        self._quotas = quotas(settings, granted)
        self.root_gib = 50
        self.offered: set[str] = set(settings.availability_zones)

    def client(self, name: str) -> Any:
        if name == "service-quotas":
            return self._quotas
        return Offering(self) if name == "ec2" else self.server.client(name)

    def put(self, name: str, value: str) -> None:
        self.server.client("ssm").put_parameter(Name=name, Value=value, Type="String", Overwrite=True)

    def prepare(self) -> None:
        """Everything that a deploy needs beside quotas."""
        settings, machine = self.settings, self.settings.machine_image
        self.put("/cdk-bootstrap/hnb659fds/version", "25")
        self.put(machine.base_parameter, "ami-12c6146b")
        self.put(machine.parameter, self.image())
        certificate = self.server.client("acm").request_certificate(
            DomainName=f"plan.{settings.network.domain}", SubjectAlternativeNames=[f"*.plan.{settings.network.domain}"]
        )["CertificateArn"]
        self.server.client("acm").describe_certificate(CertificateArn=certificate)
        self.put(settings.load_balancer.certificate_parameter, certificate)
        if settings.load_balancer.authentication.trust_bundle:
            bucket, key, _ = settings.load_balancer.authentication.trusted("123456789012")
            self.server.client("s3").create_bucket(Bucket=bucket)
            self.server.client("s3").put_object(Bucket=bucket, Key=key, Body=b"PEM")

    def image(self) -> str:
        ec2 = self.server.client("ec2")
        made: str = ec2.register_image(Name=f"{self.settings.name}-image", RootDeviceName="/dev/sda1")["ImageId"]
        tags = release_tags(self.settings, {"service": "a" * 64, "model": "b" * 64, "host": "c" * 64}, "0123abcd")
        ec2.create_tags(Resources=[made], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
        return made

    def found(self, verdict: Verdict) -> list[str]:
        return [str(finding) for finding in inspect(self.settings, self.client) if finding.verdict is verdict]


class Offering:
    """moto's EC2, but for the zones that offer an instance type and the size of an image's root."""

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


def certified(account: Account, monkeypatch: pytest.MonkeyPatch, **found: Any) -> None:
    """The account's certificate as ACM would describe it once it was imported."""
    domain = account.settings.network.domain
    imported = {
        "DomainName": f"plan.{domain}",
        "SubjectAlternativeNames": [f"plan.{domain}", f"*.plan.{domain}"],
        "Status": "ISSUED",
        "NotAfter": datetime.now(UTC) + timedelta(days=300),
    }
    given = account.client

    def client(name: str) -> Any:
        if name != "acm":
            return given(name)
        real = given(name)
        real.describe_certificate = lambda **_: {"Certificate": imported | found}
        return real

    monkeypatch.setattr(account, "client", client)
