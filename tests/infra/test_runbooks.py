"""The commands of the runbooks exist: nobody finds out at night that an option was a dream."""

import re
from pathlib import Path
from typing import Any

import boto3
import botocore
import pytest

from infra.fleet.metrics import metrics

RUNBOOKS = sorted(Path("docs/runbooks").glob("*.md"))
# What the AWS CLI adds to every operation, and commands that it has beyond the APIs.
EVERYWHERE = {"query", "output", "max-items"}
OWN_COMMANDS = {
    ("logs", "tail"): {"since", "filter-pattern", "format"},
    ("ssm", "start-session"): {"target"},
}


def commands(text: str) -> list[tuple[str, str, set[str]]]:
    """Service, operation and options of every `aws` command, in code blocks and between backticks."""
    found = []
    for code in re.findall(r"```\n(.*?)```|`([^`]+)`", text, re.DOTALL):
        joined = re.sub(r"\\?\n\s*(?=-|\")", " ", "".join(code))  # an option on the next line belongs to its command
        for line in joined.splitlines():
            plain = re.sub(r"\"?\$\((?!aws )[^()]*\)\"?", "now", line)  # "$(date ...)" is an option's value
            bare = re.sub(r"'[^']*'|\"(?:\\.|[^\"\\$]|\$(?!\())*\"", "''", plain)
            for service, operation, rest in re.findall(r"\baws ([a-z0-9-]+) ([a-z0-9-]+)([^|;)]*)", bare):
                found.append((service, operation, set(re.findall(r"--([a-z-]+)", rest))))
    return found


def options(service: str, operation: str) -> set[str]:
    """The options that the AWS CLI derives from the API's own model. Raises KeyError for an unknown operation."""
    if (service, operation) in OWN_COMMANDS:
        return OWN_COMMANDS[service, operation]
    api: Any = boto3.client(service, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    name = api.meta.method_to_api_mapping[operation.replace("-", "_")]
    shape = api.meta.service_model.operation_model(name).input_shape
    known = {} if shape is None else shape.members
    hyphened = {botocore.xform_name(member, "-") for member in known}
    negated = {f"no-{member}" for member in hyphened}
    return hyphened | negated


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_every_aws_command_and_option_exists(path: Path) -> None:
    found = commands(path.read_text(encoding="utf-8"))

    assert found
    for service, operation, given in found:
        assert given <= options(service, operation) | EVERYWHERE, f"{path}: aws {service} {operation}"


def test_a_dreamt_option_is_seen() -> None:
    (command,) = commands("```\naws autoscaling set-desired-capacity \\\n  --auto-scaling-group-nom x\n```")

    assert command == ("autoscaling", "set-desired-capacity", {"auto-scaling-group-nom"})
    assert not command[2] <= options(*command[:2])


def test_on_call_finds_every_reason_of_a_plan_by_rule() -> None:
    runbook = Path("docs/runbooks/degraded-share.md").read_text(encoding="utf-8")

    told = re.findall(r"^\| `(\w+)` \|", runbook, re.MULTILINE)
    assert sorted(told) == sorted(metrics().metric("Fallbacks").values["Reason"])
