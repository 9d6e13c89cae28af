"""Builds the service's image without a Docker engine, from a base that debootstrap makes, and runs it.

The base brings compilers, as the Neuron containers of AWS do: the image must not have them.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from service.weights.base_weights import WHEEL

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = ("buildah", "podman", "runc", "debootstrap")
_BASE, _IMAGE = "localhost/peakplan-test-base", "localhost/peakplan-test"
_BASE_PACKAGES = "python3-minimal,python3-venv,g++,make"
_BASE_PYTHON = "3.11"  # Debian bookworm's, which is 3.11.2
# redis requires it before Python 3.11.3; pip resolves for the Python that runs it.
_FOR_OLDER_PYTHON = "async-timeout==5.0.1"
# Wheels from beside the build. Compiling every module would take longer than all else; here they are run twice.
PIP_CONFIGURATION = "[global]\nno-index = true\nfind-links = /wheels\n[install]\nno-compile = true\n"
_START_SECONDS = 300  # every module is compiled at each start of this image
# The defaults of the system are more than a container in a container may have.
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")


def why_not() -> str:
    """Return why no image can be built here, and what to do; "" when one can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"needs {', '.join(missing)} (Debian: apt-get install --no-install-recommends {' '.join(PROGRAMS)})"
    return "" if os.geteuid() == 0 else "debootstrap needs root"


def run(*command: str | Path) -> str:
    """Return the standard output of a command that succeeds. Raises AssertionError with its error output."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout.strip()


@dataclass(frozen=True)
class Store:
    """Images and containers in a folder of their own, so that nothing stays behind on the machine."""

    folder: Path

    def command(self, program: str) -> list[str]:
        return [program, "--root", str(self.folder / "root"), "--runroot", str(self.folder / "run")]

    def buildah(self, *words: str | Path) -> str:
        return run(*self.command("buildah"), *words)

    def podman(self, *words: str | Path) -> str:
        return run(*self.command("podman"), "--cgroup-manager", "cgroupfs", "--runtime", "runc", *words)

    def build(self) -> str:
        """Build the image of this working tree for a CPU and return its name."""
        self._make_base()
        wheels = self._download_wheels()
        configuration = self.folder / "pip.conf"
        configuration.write_text(PIP_CONFIGURATION, encoding="utf-8")
        options = ["--isolation", "chroot", "--network", "host", "--format", "docker", "--layers=false", "--jobs", "2"]
        options += ["--volume", f"{wheels}:/wheels:ro", "--secret", f"id=pip.conf,src={configuration}"]
        for argument in (f"BASE={_BASE}", "REQUIREMENTS=requirements.txt", "TORCH=requirements-torch.txt", "TRITON="):
            options += ["--build-arg", argument]
        self.buildah("bud", *options, "--file", REPOSITORY / "service" / "Dockerfile", "--tag", _IMAGE, REPOSITORY)
        return _IMAGE

    def _make_base(self) -> None:
        system = self.folder / "system"
        run("debootstrap", "--variant=minbase", f"--include={_BASE_PACKAGES}", "bookworm", system)
        container = self.buildah("from", "scratch")
        self.buildah("add", container, system, "/")
        self.buildah("commit", "--rm", container, _BASE)
        shutil.rmtree(system)

    def _download_wheels(self) -> Path:
        wheels = self.folder / "wheels"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(wheels), "--only-binary=:all:"]
        for name in ("requirements.txt", "requirements-torch.txt"):
            run(*pip, "--python-version", _BASE_PYTHON, "--requirement", REPOSITORY / name)
        run(*pip, "pip==26.3")
        run(*pip, "--no-deps", WHEEL, _FOR_OLDER_PYTHON)
        return wheels


class Running:
    """A container of the image, locked down as on a host, and ready."""

    def __init__(self, store: Store, image: str, **environment: object) -> None:
        self._store = store
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        variables = {"HOST": "127.0.0.1", "PORT": self._port, "PEAKPLAN_REPLICAS": 1, **environment}
        options = [f"--env={name}={value}" for name, value in variables.items()]
        options += ["--network", "host", "--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp"]
        options += ["--cap-drop", "all", "--security-opt", "no-new-privileges", "--no-healthcheck", *_LIMITS]
        self.id = store.podman("run", "--detach", *options, image)

    def wait_until_ready(self) -> "Running":
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return self
            assert self._store.podman("inspect", "--format", "{{.State.Running}}", self.id) == "true", self.log()
            time.sleep(0.2)
        raise AssertionError(f"not ready in time:\n{self.log()}")

    def inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Return the output of a command run inside."""
        words = [*self._store.command("podman"), "--cgroup-manager", "cgroupfs", "--runtime", "runc", "exec", self.id]
        return subprocess.run([*words, *command], capture_output=True, text=True, check=False)

    def send(self, name: str) -> None:
        self._store.podman("kill", "--signal", name, self.id)

    def code(self) -> int:
        """Return its exit code, once it has ended."""
        return int(self._store.podman("wait", self.id))

    def log(self) -> str:
        return subprocess.run(
            [*self._store.command("podman"), "logs", self.id], capture_output=True, text=True, check=False
        ).stderr

    def remove(self) -> None:
        self._store.podman("rm", "--force", "--time", "0", self.id)


@contextlib.contextmanager
def running(store: Store, image: str, **environment: object) -> Iterator[Running]:
    """Run a container until it is ready; remove it at the end whatever happens."""
    container = Running(store, image, **environment)
    try:
        yield container.wait_until_ready()
    finally:
        container.remove()


def inspect(store: Store, image: str) -> dict[str, object]:
    """Return the image's configuration."""
    (found,) = json.loads(store.podman("image", "inspect", image))
    configuration: dict[str, object] = found["Config"] | {
        "HealthCheck": found.get("Healthcheck") or found.get("HealthCheck")
    }
    return configuration
