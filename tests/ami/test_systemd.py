"""A host of the warm pool, from its first boot to its end, under a systemd that really boots it."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from infra.node import use_packaged_node

use_packaged_node()

from infra.constructs.host import user_data  # noqa: E402
from tests.ami.booting import Machine, machine, missing  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "every need is met")]

HOST = {
    "PEAKPLAN_FLEET": "dev",
    "PEAKPLAN_CELL": "cell-1",
    "PEAKPLAN_GROUP": "inf2",
    "PEAKPLAN_AUTO_SCALING_GROUP": "group",
    "PEAKPLAN_LOG_GROUP": "/peakplan/dev/cell-1",
    "PEAKPLAN_LAUNCH_HOOK": "prove-ready",
    "PEAKPLAN_TERMINATE_HOOK": "drain",
    "PEAKPLAN_DRAIN_SECONDS": "1",
}


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder whose name is short enough for podman."""
    with TemporaryDirectory(prefix="peakplan-") as folder:
        yield Path(folder)


@pytest.fixture
def instance(disk: Path) -> Machine:
    return machine(disk, user_data(HOST).render())


def test_a_warm_host_serves_at_every_start_and_leaves_at_once(instance: Machine) -> None:
    instance.target("Warmed:Stopped")
    with instance.running():  # launched into the warm pool
        instance.comes_to_ask("prove-ready")
    instance.target("InService")
    with instance.running():  # taken out of it: user data does not run again
        instance.comes_to_ask("prove-ready", "prove-ready")
        instance.target("Warmed:Stopped")  # scaled in, and kept
        instance.comes_to_ask("prove-ready", "prove-ready", "drain")
        assert instance.state("peakplan.service") == "inactive"
    instance.target("InService")
    with instance.running():
        instance.comes_to_ask("prove-ready", "prove-ready", "drain", "prove-ready")
        instance.target("Terminated")
        instance.comes_to_ask("prove-ready", "prove-ready", "drain", "prove-ready", "drain")


def test_an_image_that_nobody_told_who_it_is_starts_nothing(disk: Path) -> None:
    """Where it is baked and tested there is no group to answer to."""
    nobody = machine(disk, "#!/bin/bash\ntrue\n")
    nobody.target("")
    with nobody.running():
        nobody.boots()
        started = [nobody.state(f"peakplan{part}") for part in (".service", "-ready.service", "-drain.service")]
    assert started == ["inactive"] * 3
    assert nobody.asked() == []
