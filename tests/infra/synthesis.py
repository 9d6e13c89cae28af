"""Fleets synthesised once a test run, each in a process of its own and as app.py composes them."""

import json
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from aws_cdk import App
from cfnlint.api import ManualArgs, lint  # type: ignore[import-untyped]

from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.settings import FLEETS, FleetSettings
from infra.stacks import compose
from tests.infra.fleet.fleets import GRAVITON, dev_fleet

Template = dict[str, Any]
_BY_STACK = "templates-by-stack.json"


def app_of(settings: FleetSettings, outdir: str | None = None) -> App:
    """A fleet's app, composed and not synthesised yet; CDK's feature flags are those of cdk.json."""
    context = json.loads((REPOSITORY_ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    outdir = outdir or mkdtemp(prefix=f"peakplan-{settings.name}-")
    app = App(context=context, analytics_reporting=False, stack_traces=False, outdir=outdir)
    compose(app, settings)
    return app


def templates_of(app: App) -> dict[str, Template]:
    """The templates of an app by the stacks' ids, as they lie on disk."""
    assembly = app.synth()
    return {
        stack.id: json.loads(Path(stack.template_full_path).read_text(encoding="utf-8")) for stack in assembly.stacks
    }


def changed_fleet(changes: dict[str, Any]) -> dict[str, Template]:
    """The templates of the dev fleet with changes, by dotted keys; every check is content with them."""
    with TemporaryDirectory(prefix="peakplan-changed-") as outdir:
        found = _elsewhere(json.dumps(changes), outdir)
        assert findings(outdir) == []
        return found


def findings(outdir: str) -> list[str]:
    """The checks' findings in a synthesised app that are not accepted: rule and construct."""
    report = json.loads((Path(outdir) / "validation-report.json").read_text(encoding="utf-8"))
    return [
        f"{violation['ruleName']} at {place['constructPath']}"
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
        for place in violation["violatingConstructs"]
    ]


@cache
def synthesised(fleet: str) -> tuple[Path, dict[str, Template]]:
    """The folder that a fleet that ships is synthesised into, and its templates. Shared: read only."""
    outdir = mkdtemp(prefix=f"peakplan-{fleet}-")
    return Path(outdir), _elsewhere(fleet, outdir)


def _elsewhere(fleet: str, outdir: str) -> dict[str, Template]:
    """The templates of a fleet that a process of its own synthesises.

    CDK's Node keeps every construct of every app, and grows slow with gigabytes; and it runs without asserts, as a
    deploy's synthesis does: jsii's checks of types at run time are half of it.
    """
    command = [sys.executable, "-O", "-m", "tests.infra.synthesis", fleet, outdir]
    done = subprocess.run(command, cwd=REPOSITORY_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Template] = json.loads((Path(outdir) / _BY_STACK).read_text(encoding="utf-8"))
    return found


def templates(fleet: str) -> dict[str, Template]:
    """The templates of a fleet that ships. Shared: read only."""
    return synthesised(fleet)[1]


def resources(template: Template, kind: str) -> dict[str, Any]:
    """The resources of one type by logical id."""
    return {name: each for name, each in template["Resources"].items() if each["Type"] == kind}


def all_of(template: Template, kind: str) -> list[Any]:
    """The properties of each resource of a type, without its AWS::."""
    return [each["Properties"] for each in resources(template, f"AWS::{kind}").values()]


def only(template: Template, kind: str) -> Any:
    """The properties of the one resource of its type."""
    (found,) = all_of(template, kind.removeprefix("AWS::"))
    return found


def told(parameter: str) -> Any:
    """The image that a stack is told, or else the one that was baked last."""
    return {"Fn::If": [f"{parameter}Left", {"Ref": f"Newest{parameter}"}, {"Ref": parameter}]}


def lint_findings(template: Template) -> list[str]:
    """What cfn-lint finds in a template."""
    # W3010 would have zones looked up; ours are named in the fleet file, because inf2 and trn1 are not in every zone.
    config = ManualArgs(regions=["us-east-1"], ignore_checks=["W3010"])
    found = lint(json.dumps(template), config=config)
    return [f"{match.rule.id} {match.message} {match.path}" for match in found]


def main(fleet: str, outdir: str) -> None:
    """Synthesise a fleet that ships, by its name, or the dev fleet with changes."""
    ships = not fleet.startswith("{")
    settings = FleetSettings.from_yaml(FLEETS / f"{fleet}.yaml") if ships else dev_fleet(json.loads(fleet))
    found = templates_of(app_of(settings, outdir))
    (Path(outdir) / _BY_STACK).write_text(json.dumps(found), encoding="utf-8")


JWT = {"method": "jwt", "issuer": "https://issuer.example.com/", "jwks": "https://issuer.example.com/keys"}
MTLS = {"method": "mtls", "trust_bundle": "s3://trusted-123456789012/authorities/2027.pem"}
AUTHORITY = "arn:aws:acm-pca:us-east-1:123456789012:certificate-authority/0123"
OWN_KEY = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"
ACCOUNTS = ("111122223333", "444455556666")
VPCS = (
    {"vpc_id": "vpc-0123456a", "region": "us-east-1"},
    {"vpc_id": "vpc-0123456b", "region": "us-east-1", "account": "111122223333"},
)
NETWORKS = ("10.0.0.0/12", "10.32.0.0/13")
WAYS = {"transit_gateway": "tgw-0123456789abcdef0", "peering": "pcx-0123456789abcdef0"}
_SALE = {"name": "sale", "start": "2030-07-13T07:00:00Z", "end": "2030-07-14T07:00:00Z", "lead_minutes": 60}
LOCKED: dict[str, Any] = {
    "load_balancer.authentication": MTLS,
    "load_balancer.certificate_authority": AUTHORITY,
    "groups.1.reserve": True,
    "events": [_SALE | {"multiplier": 1}],
    "groups.0.maximum": 12,
    "maximum_cell_instances": 20,
    "callers.0.accounts": list(ACCOUNTS),
    "access.acceptance_required": False,
    "access.caller_vpcs": list(VPCS),
    "log_key": OWN_KEY,
    "machine_image.scan": True,
    "cost_anomalies": True,
    "shopper_events": {
        "enabled": True,
        "bucket": True,
        "days": 40,
        "experiment": {"name": "autumn", "arms": {"control": 50, "2": 30, "rules": 20}},
    },
}
PUBLIC: dict[str, Any] = {
    "load_balancer.scheme": "internet-facing",
    "load_balancer.authentication": JWT,
    "load_balancer.reserve_capacity": True,
    "events": [_SALE | {"multiplier": 1.5}],
    "network.nat": True,
    "access.privatelink": False,
    "callers.0.cidrs": ["198.51.100.0/24"],
}
_BY_NETWORK: dict[str, Any] = {"access.privatelink": False, "callers.0.cidrs": list(NETWORKS)}
ROUTED: dict[str, Any] = _BY_NETWORK | {
    "access.transit_gateway": WAYS["transit_gateway"],
    "groups": [{"instance_type": "inf2.xlarge", "minimum": 3, "maximum": 10}],
    "cells": 2,
    "network.cell_weights": [0, 1],
    "network.endpoints": [{"service": "s3", "reason": "hosts read a table at boot", "actions": ["s3:GetObject"]}],
}
PEERED: dict[str, Any] = _BY_NETWORK | {"access.peering": WAYS["peering"]} | GRAVITON


# An internal fleet behind mutual TLS and PrivateLink, with keys and an authority of its own and reservations.
locked = cache(partial(changed_fleet, LOCKED))
# A fleet on the internet, behind JWT, with NAT and reserved balancers.
public = cache(partial(changed_fleet, PUBLIC))
# A fleet of one kind of hosts and a sandbox, whose callers come through a transit gateway, and that reaches S3.
routed = cache(partial(changed_fleet, ROUTED))
# A fleet of two architectures, whose callers come through a peering.
peered = cache(partial(changed_fleet, PEERED))


if __name__ == "__main__":
    main(*sys.argv[1:])
