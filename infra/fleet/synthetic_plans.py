"""The canary of every cell: CloudWatch Synthetics asks for a plan each minute, and a rollout stops without one."""

import base64
import json

from pydantic import Field

from infra.fleet.demand import Part
from infra.fleet.network_parts import Authentication, Endpoint

ALARM = "synthetic-plans"
CALLER = "peakplan-canary"  # in the hosts' logs
PORT = 8444  # of the cell's load balancer, for the canary alone
# The newest runtime of that family (CloudWatch user guide, Runtime versions using Python and Selenium Webdriver, read
# on 2026-11-23). A deprecated runtime goes on, but its canary cannot be changed until it names another.
RUNTIME = "syn-python-selenium-14.0"
MEMORY_MIB, TIMEOUT_SECONDS, KEPT_DAYS = 1024, 30, 7
# What a canary in a VPC without the internet reaches (CloudWatch user guide, Running a canary on a VPC).
ENDPOINTS = (
    Endpoint(
        service="monitoring", reason="a canary reports whether its plan was good", actions=("cloudwatch:PutMetricData",)
    ),
    Endpoint(
        service="s3",
        reason="a canary stores what its runs said",
        actions=("s3:PutObject", "s3:GetBucketLocation", "s3:ListAllMyBuckets"),
    ),
)


class SyntheticPlans(Part):
    """The canaries of the cells."""

    enabled: bool = Field(
        default=True, description="A plan a minute is asked of each cell, and a rollout stops where it is not good."
    )


def headers(authentication: Authentication) -> dict[str, str]:
    """Return the headers by which hosts know the canary, where the load balancer has verified callers for them.

    It verifies nobody on the canary's own port, which its security group opens to the canary alone: a canary has
    neither certificate nor token.
    """
    if authentication.method == "mtls":
        return {"X-Amzn-Mtls-Clientcert-Subject": f"CN={CALLER}"}
    if authentication.method == "jwt":
        said = ({"alg": "none"}, {authentication.caller_claim: CALLER})
        parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in said)
        return {"Authorization": f"Bearer {'.'.join(parts)}."}
    return {}


def canary_name(fleet: str, cell: str) -> str:
    return f"peakplan-{fleet}-{cell}"
