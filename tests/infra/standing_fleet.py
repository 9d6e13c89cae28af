"""A fleet of two cells that stands in moto for a whole test run, after two releases; nobody takes it down.

test_deploy.py has a fleet of its own, through its whole life.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.fleet.settings import FleetSettings
from tests.infra.deployment import CDK, Deployment, bake, deploy, prepare, synthesise
from tests.infra.fleet.fleets import PROCESSORS, dev_with
from tests.infra.moto_server import running_moto

FILE, ASSEMBLY = "dev.yaml", "assembly"
EVENT = {"name": "sale", "start": "2030-07-13T07:00:00Z", "end": "2030-07-14T07:00:00Z", "multiplier": 2}
# The dev fleet with another law: an event, more room, another SLO; processors that stand in, a cell to move callers to.
CHANGES: dict[str, Any] = {
    **PROCESSORS,
    "cells": 2,
    "caller_shard_cells": 2,
    "events": [EVENT],
    "groups.0.maximum": 8,
    "slo.p99_ms": 400,
    "traffic.plans_per_minute": 6000,
}


@pytest.fixture(scope="session")
def standing_assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fleet's file, dev.yaml, and what a deploy synthesises of it: it is deployed in more than one account."""
    folder = tmp_path_factory.mktemp("standing-assembly")
    (folder / FILE).write_text(yaml.safe_dump(dev_with(CHANGES)), encoding="utf-8")
    with running_moto(folder / "server.log") as server:
        synthesise(server, str(folder / FILE), folder / ASSEMBLY)
    return folder


@contextmanager
def standing(folder: Path, synthesised: Path) -> Iterator[Deployment]:
    """The deployed fleet, at the second of two releases, in an account of its own."""
    file, assembly = synthesised / FILE, synthesised / ASSEMBLY
    with running_moto(folder / "server.log") as server:
        prepare(server)
        for commit in ("0000aaaa", "0000bbbb"):
            bake(server, commit)
            done = deploy(server, str(file), assembly=assembly)
            assert done.returncode == 0, done.stdout + done.stderr
        yield Deployment(server, FleetSettings.from_yaml(file), file)


@pytest.fixture(scope="session")
def standing_fleet(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """The fleet of the whole run: whoever changes it puts it back."""
    if not CDK.exists():
        pytest.skip("the CDK CLI is not installed: npm ci")
    with standing(tmp_path_factory.mktemp("standing"), request.getfixturevalue("standing_assembly")) as deployment:
        yield deployment
