"""Replaces this process by another program of the checkout: its module, its environment, and the extra it needs."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

import click

# Where the programs are: the checkout, or what a wheel carries of it (hatch_build.py).
_CARRIED = Path(__file__).parent / "_house"
IS_WHEEL = _CARRIED.is_dir()
CHECKOUT = _CARRIED if IS_WHEEL else Path(__file__).parents[1]

# For each extra of pyproject.toml, a package that tells whether it is installed.
EXTRAS = {
    "service": "fastapi",
    "torch": "torch",
    "triton": "grpc",
    "fleet": "yaml",
    "cdk": "aws_cdk",
    "train": "transformers",
    "load": "tqdm",
    "shop": "pyarrow",
    "value": "duckdb",
}


def need(*extras: str) -> None:
    """Raise ClickException, which names what to install, unless the packages of these extras are installed."""
    missing = [extra for extra in extras if find_spec(EXTRAS[extra]) is None]
    if missing:
        names = ",".join("fleet" if extra == "cdk" else extra for extra in missing)
        raise click.ClickException(f"this needs packages that are not installed: {how_to_install(names)}")
    if IS_WHEEL and str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))  # for what runs in this process


def how_to_install(extras: str) -> str:
    """Say how to get the packages of some extras here."""
    if IS_WHEEL:
        return f"pip install '{_installed_from()}[{extras}]'"
    return (
        f"pip install -e '{CHECKOUT}[{extras}]', or, by hash and with all else that commands need, "
        "`peakplan tools install test`"
    )


def _installed_from() -> str:
    """Return the file that pip installed, as it noted (PEP 610); the name alone where an index had it."""
    noted = json.loads(distribution("peakplan").read_text("direct_url.json") or "{}")
    url = urlsplit(noted.get("url", ""))
    return unquote(url.path) if url.scheme == "file" else noted.get("url") or "peakplan"


def place_of(module: str) -> Path:
    """Return where a program's folder or file is, without its ending: what is in our own package lies beside it."""
    root = Path(__file__).parents[1] if module.startswith("peakplan.") else CHECKOUT
    return root / module.replace(".", "/")


def is_here(module: str) -> bool:
    """Tell whether a program is in this installation: a wheel has only some of them."""
    return module.startswith("peakplan.") or (CHECKOUT / module.partition(".")[0]).is_dir()


def must_be_here(module: str) -> None:
    """Raise ClickException where a wheel does not have a program."""
    if not is_here(module):
        raise click.ClickException(
            f"this command ({module}) is not in the wheel: it runs from a checkout of Peakplan's sources"
        )


def become(module: str, words: Sequence[str] = (), *, variables: Mapping[str, str] | None = None) -> NoReturn:
    """Replace this process by `python -m module`: signals, exit code and terminal are that module's own.

    The checkout comes first on its path, and the user's working directory is not on it.
    """
    must_be_here(module)
    execute([sys.executable, "-P", "-m", module, *words], variables=variables)


def call(command: Sequence[str], *, variables: Mapping[str, str] | None = None) -> int:
    """Run a program that sees the checkout's modules; return its exit code."""
    return subprocess.run(list(command), env=_environment(variables), check=False).returncode


def run_in_turn(*lines: Sequence[str]) -> None:
    """Run modules of the checkout, each with its words, one after the other; exit where one fails."""
    for line in lines:
        if code := call([sys.executable, "-P", "-m", *line]):
            sys.exit(code)


def _environment(variables: Mapping[str, str] | None) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, **(variables or {})}


def execute(command: Sequence[str], *, variables: Mapping[str, str] | None = None) -> NoReturn:
    """Replace this process by a program that sees the checkout's modules. Raises ClickException where it is missing."""
    sys.stdout.flush()
    try:
        os.execvpe(command[0], list(command), _environment(variables))
    except OSError as error:
        raise click.ClickException(f"{command[0]}: {error.strerror}") from error
