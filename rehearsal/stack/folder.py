"""The programs of a stack, and the folder it runs from: `parts` with this machine's addresses in place of compose's.

Every part has an address of its own in a network of 16 bits: compose's is 172.20., and a stack on one machine takes a
part of loopback, 127.N., so that ports are the same everywhere and several stacks run beside each other.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PARTS = ROOT / "rehearsal" / "stack" / "parts"
RULES = ROOT / "docs" / "monitoring" / "prometheus-rules.yaml"
COMPOSE_NETWORK, COMPOSE_FOLDER = "172.20.", "/etc/peakplan"
CELLS = ("cell-1", "cell-2")
MOST_HOSTS = 4  # of a cell, as hosts/cell-*.yaml list them
FIRST_NETWORK, LAST_NETWORK = 20, 250
PLAN_PORT, ADMIN_PORT, HOST_PORT, CACHE_PORT = 8443, 9901, 8080, 6379
BURST = 2  # seconds of its rate that a caller may send at once
# Which part has which last two numbers; compose.yaml has the same.
BALANCER, PROMETHEUS, ALERTMANAGER, FLOODER = "0.10", "0.30", "0.40", "0.99"
CLAIM = "0.2"  # nothing listens there: who has bound it has the network
_CLAIMS: list[socket.socket] = []
_LIMIT = re.compile(r"max_tokens: 1000, tokens_per_fill: 500,")
_DURATION = re.compile(r"\[(\d+)s(?::(\d+)s)?\]")
_INTERVAL = re.compile(r"(\b(?:scrape_interval|evaluation_interval|interval): )(\d+)s")


class StackError(Exception):
    """Raised where a stack cannot be made or does not start. The message says why."""


@dataclass(frozen=True)
class Shape:
    """How many hosts each cell has, and how much faster than written the rules' clock goes (`hurry`)."""

    hosts: int = 4
    hurry: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.hosts <= MOST_HOSTS:
            raise StackError(f"{self.hosts} hosts in each of {len(CELLS)} cells: 1 to {MOST_HOSTS} are possible")
        if self.hurry not in (1, 2, 3, 5, 6, 10, 12, 15):
            raise StackError(f"a clock {self.hurry} times as fast: 30 s must stay whole seconds or halves of one")


@dataclass(frozen=True)
class Folder:
    """A written folder: where it is and which network it uses."""

    path: Path
    network: str  # "127.20."
    shape: Shape

    def address(self, of: str) -> str:
        """Return a part's address by its last two numbers."""
        return self.network + of

    def hosts(self, cell: str) -> list[str]:
        """Return the addresses of a cell's hosts."""
        return [self.address(f"{CELLS.index(cell) + 1}.{11 + number}") for number in range(self.shape.hosts)]

    def cache(self, cell: str) -> str:
        """Return the address of a cell's shared cache; its exporter listens there, too."""
        return self.address(f"{CELLS.index(cell) + 1}.101")

    @property
    def url(self) -> str:
        """Where callers ask."""
        return f"https://{self.address(BALANCER)}:{PLAN_PORT}"


def free_network() -> str:
    """Return a part of loopback that no other stack has, and keep it for as long as this process lives.

    Raises StackError.
    """
    for number in range(FIRST_NETWORK, LAST_NETWORK):
        claim = socket.socket()
        try:
            claim.bind((f"127.{number}.{CLAIM}", PLAN_PORT))
        except OSError:
            claim.close()
            continue
        _CLAIMS.append(claim)
        return f"127.{number}."
    raise StackError("every part of loopback from 127.20 on is taken (macOS has 127.0.0.1 alone: use compose there)")


def write(path: Path, shape: Shape, network: str, *, rules: str = "") -> Folder:
    """Write a stack's folder. `rules` replaces the alarms' own, for a rehearsal of one that is missing."""
    folder = Folder(path.absolute(), network, shape)
    for name in ("hosts", "rules", "logs", "data", "slow", "clocks"):
        (path / name).mkdir(parents=True, exist_ok=True)
    for name in ("envoy.yaml", "alertmanager.yml"):
        _put(path / name, _moved((PARTS / name).read_text(encoding="utf-8"), folder))
    text = _moved((PARTS / "prometheus.yml").read_text(encoding="utf-8"), folder)
    prometheus = yaml.safe_load(hurried(text, shape.hurry))
    for cell in prometheus["scrape_configs"][0]["static_configs"]:
        cell["targets"] = cell["targets"][: shape.hosts]
    _put(path / "prometheus.yml", yaml.safe_dump(prometheus, sort_keys=False))
    balancer = (PARTS / "balancer-rules.yaml").read_text(encoding="utf-8")
    _put(path / "rules" / "balancer-rules.yaml", hurried(balancer, shape.hurry))
    _put(path / "rules" / "prometheus-rules.yaml", hurried(rules or RULES.read_text(encoding="utf-8"), shape.hurry))
    for cell in CELLS:
        write_hosts(folder, cell)
    if not (path / "certificates" / "planner.pem").is_file():
        certify(path / "certificates", folder.address(BALANCER))
    return folder


def limit_callers(folder: Folder, rate: int) -> None:
    """Let each caller send `rate` requests a second, and BURST times as many at once. Envoy must not run yet."""
    path = folder.path / "envoy.yaml"
    text, count = _LIMIT.subn(f"max_tokens: {BURST * rate}, tokens_per_fill: {rate},", path.read_text(encoding="utf-8"))
    assert count == 1, "the callers' bucket is in envoy.yaml"
    _put(path, text)


def set_clock(folder: Folder, address: str, offset: str) -> None:
    """Move a host's clock by so many seconds, "+3600". Its file must have been there when the host started."""
    _put(folder.path / "clocks" / address, offset)


def write_hosts(folder: Folder, cell: str, draining: frozenset[str] = frozenset()) -> None:
    """Write a cell's hosts for Envoy, which reads the file anew when it is moved into its place."""
    text = _moved((PARTS / "hosts" / f"{cell}.yaml").read_text(encoding="utf-8"), folder)
    hosts: dict[str, Any] = yaml.safe_load(text)
    listed = hosts["resources"][0]["endpoints"][0]
    listed["lb_endpoints"] = listed["lb_endpoints"][: folder.shape.hosts]
    for each in listed["lb_endpoints"]:
        if each["endpoint"]["address"]["socket_address"]["address"] in draining:
            each["health_status"] = "DRAINING"
    _put(folder.path / "hosts" / f"{cell}.yaml", yaml.safe_dump(hosts))


def hurried(text: str, hurry: int) -> str:
    """Return rules or a Prometheus configuration whose windows and intervals are so many times shorter.

    Names and lines stay: what a rule calls a minute is 60/hurry seconds, and counts are those of that time. A scrape
    may take as long as the interval: on a busy machine Envoy's page takes half of it, and a panel without two scrapes
    in its window is empty.
    """
    if hurry == 1:
        return text

    def window(match: re.Match[str]) -> str:
        parts = [f"{1000 * int(part) // hurry}ms" for part in match.groups() if part]
        return f"[{':'.join(parts)}]"

    def interval(match: re.Match[str]) -> str:
        return f"{match.group(1)}{max(1000 * int(match.group(2)) // hurry, 500)}ms"

    shorter = _INTERVAL.sub(interval, _DURATION.sub(window, text))
    scraped = re.search(r"scrape_interval: (\d+ms)", shorter)
    return re.sub(r"scrape_timeout: \d+s", f"scrape_timeout: {scraped.group(1)}", shorter) if scraped else shorter


def certify(place: Path, address: str) -> None:
    """Make a certificate authority of this stack's own, and the certificate of Envoy. Raises StackError."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = f"DNS:planner.internal,DNS:localhost,IP:{address}"
    (place / "planner.ext").write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth\n", encoding="utf-8")
    for words in _openssl():
        done = subprocess.run([found("openssl"), *words], cwd=place, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StackError(f"openssl {words[0]} failed in {place}: {done.stderr.strip()}")


def _openssl() -> Iterator[list[str]]:
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout"]
    authority = ["-addext", "keyUsage=critical,keyCertSign,cRLSign", "-subj", "/CN=Peakplan stack CA", "-days", "365"]
    yield ["req", "-x509", *key, "authority.key", "-out", "authority.pem", *authority]
    yield ["req", *key, "planner.key", "-out", "planner.csr", "-subj", "/CN=planner.internal"]
    signed = ["-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial", "-extfile", "planner.ext"]
    yield ["x509", "-req", "-days", "365", "-in", "planner.csr", *signed, "-out", "planner.pem"]


def _moved(text: str, folder: Folder) -> str:
    return text.replace(COMPOSE_NETWORK, folder.network).replace(COMPOSE_FOLDER, str(folder.path))


def _put(path: Path, text: str) -> None:
    """Replace a file in one step, which is what makes Envoy and Prometheus read it."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


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
    "envoy": Program((str(ROOT / ".venv" / "bin" / "envoy"), "envoy"), "peakplan tools install stack"),
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
    """Return the path of a part. Raises StackError."""
    path = PROGRAMS[name].path
    if path is None:
        raise StackError(f"{name} is not installed: {PROGRAMS[name].install}")
    return path


def postgres_programs() -> Path | None:
    """Return the folder of PostgreSQL's newest server; None where there is none. Debian keeps it off the PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = str(debian[-1]) if debian else shutil.which("initdb")
    return Path(found).parent if found else None


def clock_library() -> str:
    """Return the path of libfaketime, which moves one program's clock. Raises StackError."""
    places = sorted(Path("/usr").glob("lib*/**/faketime/libfaketimeMT.so.1"))
    if not places:
        raise StackError("libfaketime is not installed: apt-get install faketime")
    return str(places[0])


def missing() -> list[str]:
    """Return a line for each part that is not installed, with what installs it."""
    return [f"{name}: {each.install}" for name, each in PROGRAMS.items() if each.path is None]
