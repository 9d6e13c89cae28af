"""The programs that a stack is made of, where this machine has them, and how to get those that it lacks."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVOY = ROOT / ".venv" / "bin" / "envoy"


class MissingPartError(Exception):
    """Raised where a program is not installed. The message says how to install it."""


@dataclass(frozen=True)
class Program:
    """A program by the names it has, and what installs it."""

    names: tuple[str, ...]
    install: str

    @property
    def path(self) -> str | None:
        """Where it is; None where it is not."""
        return next(filter(None, map(shutil.which, self.names)), None)


PROGRAMS = {
    "envoy": Program((str(ENVOY), "envoy"), "peakplan tools install stack"),
    "cache": Program(("valkey-server", "redis-server"), "apt-get install redis-server"),
    "prometheus": Program(("prometheus",), "apt-get install prometheus"),
    "promtool": Program(("promtool",), "apt-get install prometheus"),
    "alertmanager": Program(("prometheus-alertmanager", "alertmanager"), "apt-get install prometheus-alertmanager"),
    "amtool": Program(("amtool",), "apt-get install prometheus-alertmanager"),
    "cache-exporter": Program(
        ("prometheus-redis-exporter", "redis_exporter"), "apt-get install prometheus-redis-exporter"
    ),
    "openssl": Program(("openssl",), "apt-get install openssl"),
}


def found(name: str) -> str:
    """Return the path of a part. Raises MissingPartError."""
    path = PROGRAMS[name].path
    if path is None:
        raise MissingPartError(f"{name} is not installed: {PROGRAMS[name].install}")
    return path


def postgres_programs() -> Path | None:
    """Return the folder of PostgreSQL's newest server; None where there is none. Debian keeps it off the PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = str(debian[-1]) if debian else shutil.which("initdb")
    return Path(found).parent if found else None


def clock_library() -> str:
    """Return the path of libfaketime, which moves one program's clock. Raises MissingPartError."""
    places = sorted(Path("/usr").glob("lib*/**/faketime/libfaketimeMT.so.1"))
    if not places:
        raise MissingPartError("libfaketime is not installed: apt-get install faketime")
    return str(places[0])


def missing() -> list[str]:
    """Return a line for each part that is not installed, with what installs it."""
    return [f"{name}: {each.install}" for name, each in PROGRAMS.items() if each.path is None]
