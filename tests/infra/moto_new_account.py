"""What an account has before any fleet, and moto's has not: Amazon's and Canonical's images, zones, granted quotas."""

import json
from typing import Any

from moto.ec2.models import amis, instance_types
from moto.servicequotas.responses import ServiceQuotasResponse

REGION, ZONES = "us-east-1", ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d")
BASE_IMAGE = "ami-0ba5e00000000228a"
# The one that a fleet pins, and its neighbours: an older one, other systems, frameworks, SDKs and roots.
IMAGES = (
    (BASE_IMAGE, "Deep Learning Base Neuron AMI (Ubuntu 24.04) 20260226", "Neuron SDK 2.28.1", "/dev/sda1"),
    ("ami-00000000000000001", "Deep Learning Base Neuron AMI (Ubuntu 24.04) 20260115", "Neuron SDK 2.28", "/dev/sda1"),
    ("ami-00000000000000002", "Deep Learning Base Neuron AMI (Ubuntu 24.04) 20260601", "Neuron SDK 2.29", "/dev/sda1"),
    ("ami-00000000000000003", "Deep Learning Base Neuron AMI (Amazon Linux 2023) 20260401", "SDK 2.28", "/dev/xvda"),
    ("ami-00000000000000004", "Deep Learning AMI Neuron (Ubuntu 24.04) 20260401", "Neuron SDK 2.28.1", "/dev/sda1"),
    ("ami-00000000000000005", "Deep Learning Base Neuron AMI (Ubuntu 24.04) 20260402", "Neuron SDK 2.28", "/dev/xvda"),
    (
        "ami-00000000000000006",
        "Deep Learning Base Neuron AMI (Ubuntu 24.04) PyTorch 20260403",
        "Neuron SDK 2.28",
        "/dev/sda1",
    ),
)
# Canonical's for arm64: the newest, an older one, and a newer one of the same name that somebody else made public.
UBUNTU, CANONICAL = "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-arm64-server", "099720109477"
ARM64_IMAGE = "ami-0ba5e0000000a264a"
UBUNTU_IMAGES = (
    (ARM64_IMAGE, f"{UBUNTU}-20260310", CANONICAL),
    ("ami-00000000000000007", f"{UBUNTU}-20260110", CANONICAL),
    ("ami-00000000000000008", f"{UBUNTU}-20260401", "111122223333"),
)
QUOTA = 100_000.0
# Service Quotas' names and codes; infra/operations/quotas.py looks them up by code.
QUOTAS = {
    "ec2": ("L-1216C47A", "L-1945791B", "L-2C3B7624"),
    "ebs": ("L-7A658B76",),
    "elasticloadbalancing": ("L-53DA6B97", "L-7E6692B2", "L-69A177A2", "L-0BB7B635", "L-8A66D0E6"),
    "elasticache": ("L-DFE45DF3",),
    "vpc": ("L-F678F1CE", "L-DF5E4CA3", "L-29B6F2EB", "L-0EA8095F"),
}


def _image(id: str, name: str, sdk: str, root: str) -> dict[str, Any]:
    date = name[-8:]
    return {
        "ami_id": id,
        "name": name,
        "description": f"Supported EC2 instances: Inf2, Trn1. {sdk}",
        "owner_id": "898082745236",
        "public": True,
        "virtualization_type": "hvm",
        "architecture": "x86_64",
        "root_device_name": root,
        "root_device_type": "ebs",
        "creation_date": f"{date[:4]}-{date[4:6]}-{date[6:]}T00:00:00.000Z",
    }


def _list_service_quotas(self: ServiceQuotasResponse) -> str:
    service = str(json.loads(self.body)["ServiceCode"])
    quotas = [
        {"ServiceCode": service, "QuotaCode": code, "QuotaName": code, "Value": QUOTA} for code in QUOTAS[service]
    ]
    return json.dumps({"Quotas": quotas})


def furnish_the_account() -> None:
    """Extend moto in this process, before it makes its first EC2 backend."""
    amis.AMIS.extend(_image(*each) for each in IMAGES)
    for id, name, owner in UBUNTU_IMAGES:
        described = {"owner_id": owner, "architecture": "arm64", "description": "Canonical, Ubuntu, 24.04, arm64"}
        amis.AMIS.append(_image(id, name, "", "/dev/sda1") | described)
    offered = instance_types.INSTANCE_TYPE_OFFERINGS["availability-zone"][REGION]
    for kind in ("inf2.xlarge", "trn1.2xlarge"):
        offered.extend({"InstanceType": kind, "Location": zone, "LocationType": "availability-zone"} for zone in ZONES)
    for operation in ("list_service_quotas", "list_aws_default_service_quotas"):
        setattr(ServiceQuotasResponse, operation, _list_service_quotas)
