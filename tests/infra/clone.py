"""A fresh clone of this repository, to which the packages of this environment are lent."""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from infra.fleet.parts import REPOSITORY_ROOT
from tests.infra.deployment import environment_of
from tests.infra.moto_server import MotoServer

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
