"""A fleet that the unmodified CDK CLI deploys into moto, how, and a fresh clone for people who do so by hand."""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from infra.fleet.images import release_tags
from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FleetSettings
from infra.operations.command import synthesis
from tests.infra.fleet.fleets import PROCESSORS, dev_fleet
from tests.infra.moto_server import ACCOUNT, REGION, MotoServer
from tests.infra.synthesis import synthesised

CDK = REPOSITORY_ROOT / "node_modules" / ".bin" / "cdk"


@dataclass(frozen=True)
class Deployment:
    """A deployed fleet and the account that it is in."""

    server: MotoServer
    settings: FleetSettings
    file: Path | None = None  # of its fleet, where it is not one that ships

    def client(self, service: str) -> Any:
        return self.server.client(service)

    def group_names(self) -> list[str]:
        return [f"peakplan-dev-cell-1-{group.chip}" for group in self.settings.groups]

    def groups(self) -> dict[str, Any]:
        found = self.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=self.group_names())
        return {group["AutoScalingGroupName"]: group for group in found["AutoScalingGroups"]}

    def instances(self) -> list[str]:
        """The instances of the first cell that are in service."""
        found = [each for group in self.groups().values() for each in group["Instances"]]
        return [each["InstanceId"] for each in found if each["LifecycleState"] == "InService"]

    def laws(self) -> dict[str, ScalingLaw]:
        laws = [ScalingLaw.for_group(self.settings, group) for group in self.settings.groups]
        return dict(zip(self.group_names(), laws, strict=True))


def environment_of(server: MotoServer) -> dict[str, str]:
    """The Node that Python's package brings comes first, as in the Makefile."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return server.environment() | {"CDK_DISABLE_CLI_TELEMETRY": "true", "PATH": path}


def run_line(server: MotoServer, *line: str) -> subprocess.CompletedProcess[str]:
    """Run a command as people do, from the repository's root."""
    return subprocess.run(
        line, cwd=REPOSITORY_ROOT, env=environment_of(server), capture_output=True, text=True, check=False
    )


def run_cdk(server: MotoServer, *words: str) -> None:
    """The CDK CLI, which must succeed."""
    done = run_line(server, str(CDK), *words, "--no-notices")
    assert done.returncode == 0, done.stdout + done.stderr


def prepare(server: MotoServer, settings: FleetSettings | None = None, assembly: Path | None = None) -> None:
    """Make the account as the guide does: bootstrapped, with a certificate and a base image in its parameters.

    For the dev fleet, unless settings and what was synthesised of them are given.
    """
    certificate = server.client("acm").request_certificate(DomainName="plan.planner.internal")["CertificateArn"]
    settings = settings or dev_fleet()
    values = {
        settings.load_balancer.certificate_parameter: certificate,
        settings.machine_image.base_parameter: "ami-12c6146b",
    }
    for name, value in values.items():
        server.client("ssm").put_parameter(Name=name, Value=value, Type="String")
    # moto reads its tables of images at the first call, which takes seconds; not within a stack, please.
    server.client("ec2").describe_images(Owners=["self"])
    server.client("ec2").describe_vpcs()
    run_cdk(server, "bootstrap", "--app", str(assembly or as_it_ships()), f"aws://{ACCOUNT}/{REGION}")


def synthesise(server: MotoServer, fleet: str, folder: Path) -> Path:
    """Synthesise a fleet as a deploy does it, for several deploys."""
    done = run_line(server, *synthesis(fleet, [str(CDK), "--no-notices"], str(folder)))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def deploy(
    server: MotoServer, fleet: str, *words: str, assembly: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """`make deploy FLEET=...` without its waits, and without a terminal; of what was synthesised before, if given.

    The rehearsal before it takes minutes, and operations/test_rollout.py has it. `words` are more of its options.
    """
    known = "" if assembly is None else f"rollout.synthesis = lambda *of: ['cp', '-R', '{assembly}/.', of[-1]]; "
    unrehearsed = (
        "from infra.operations import rollout, teardown; teardown.CALLERS_LEAVE_SECONDS = 0; "
        "rollout.POLL_SECONDS = 0.5; "
        f"{known}rollout.rehearsal = lambda *_: ['true']; raise SystemExit(rollout.main())"
    )
    rollout = (sys.executable, "-c", unrehearsed, "--bake", "0", "0", *words, fleet)
    return run_line(server, *rollout, "--", str(CDK), "--no-notices")


def bake(server: MotoServer, commit: str, settings: FleetSettings | None = None) -> str:
    """The image pipeline's work: an image with its release's tags, and its id in the parameter; dev's by default."""
    settings, ec2 = settings or dev_fleet(), server.client("ec2")
    name = f"peakplan-{settings.name}-{commit}"
    image: str = ec2.register_image(Name=name, RootDeviceName="/dev/sda1")["ImageId"]
    tags = release_tags(settings, {name: commit for name in ("service", "model", "host")}, commit)
    ec2.create_tags(Resources=[image], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
    parameter = {"Name": settings.machine_image.parameter, "Value": image, "Type": "String", "Overwrite": True}
    server.client("ssm").put_parameter(**parameter)
    return image


def as_it_ships() -> str:
    """Where the synthesised dev fleet lies."""
    return str(synthesised("dev")[0])


EVENT = {"name": "sale", "start": "2030-07-13T07:00:00Z", "end": "2030-07-14T07:00:00Z", "multiplier": 2}
# The dev fleet with processors that stand in and a cell to move callers to, and the same under another law: an event,
# more room, another SLO.
TWO_CELLS: dict[str, Any] = {**PROCESSORS, "cells": 2, "caller_shard_cells": 2, "traffic.plans_per_minute": 6000}
LARGER: dict[str, Any] = {**TWO_CELLS, "events": [EVENT], "groups.0.maximum": 8, "slo.p99_ms": 400}


# What make installs of Python's packages, each with hashes: lent, because pip would take minutes and gigabytes.
LENT = ("command", "service", "fleet", "test")


def fresh_clone(folder: Path, requirements: str = "") -> Path:
    """A clone of what is committed, with Python's packages lent to it and nothing else; Node's are not.

    `requirements` is a file of the clone: those packages alone are lent.
    """
    clone = folder / "peakplan"
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY_ROOT), str(clone)], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(clone / ".venv")], check=True)
    (packages,) = (clone / ".venv" / "lib").glob("python3*/site-packages")
    lent = [str((clone / folder).resolve()) for folder in _installed_folders(clone)]
    if requirements:
        _lend(re.findall(r"^[\w.-]+", (clone / requirements).read_text(encoding="utf-8"), re.MULTILINE), packages)
    else:
        lent.insert(0, sysconfig.get_path("purelib"))
    (packages / "lent.pth").write_text("".join(f"{each}\n" for each in lent), encoding="utf-8")
    command = clone / ".venv" / "bin" / "peakplan"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(str(clone))}/.venv/bin/python -m peakplan "$@"\n')
    command.chmod(0o755)
    _note(clone, *LENT)
    return clone


def _lend(names: list[str], packages: Path) -> None:
    """Link the modules of some packages, as pip would have installed them; one for another system is not here."""
    ours = Path(sysconfig.get_path("purelib"))
    for name in names:
        with suppress(PackageNotFoundError):
            for top in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
                if not (packages / top).exists():
                    (packages / top).symlink_to(ours / top)


def _note(clone: Path, *names: str) -> None:
    """Let the clone's commands take these for installed."""
    script = "import sys; from peakplan.environment import note; [note(name) for name in sys.argv[1:]]"
    subprocess.run([sys.executable, "-P", "-c", script, *names], env={"PYTHONPATH": str(clone)}, check=True)


def _installed_folders(clone: Path) -> list[str]:
    """What `pip install --editable .` of make puts on Python's path; a .pth that is lent is not read a second time."""
    said = tomllib.loads((clone / "pyproject.toml").read_text(encoding="utf-8"))
    folders: list[str] = said["tool"]["hatch"]["build"]["dev-mode-dirs"]
    return folders


def with_cdk(clone: Path) -> Path:
    """Lend it the CDK CLI, too."""
    (clone / "node_modules").symlink_to(REPOSITORY_ROOT / "node_modules")
    _note(clone, "cdk")
    return clone


def operators_environment(server: MotoServer, *programs: Path) -> dict[str, str]:
    """The environment of a person with credentials: nothing in it is of pytest, or of the make that started it.

    `programs` are folders that come first on the path.
    """
    foreign = ("MAKE", "MFLAGS", "PYTHON", "VIRTUAL_ENV", "FLEET", "ORDER")
    kept = {name: value for name, value in environment_of(server).items() if not name.startswith(foreign)}
    path = [*map(str, programs), *(each for each in kept["PATH"].split(os.pathsep) if "node_modules" not in each)]
    return kept | {"PATH": os.pathsep.join(path)}


def type_in(clone: Path, environment: dict[str, str], lines: str) -> subprocess.CompletedProcess[str]:
    """Run lines in a shell of the clone's folder, to the first that fails; their prompts get no answer."""
    shell = ["bash", "-euo", "pipefail", "-c", lines]
    return subprocess.run(
        shell, cwd=clone, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
