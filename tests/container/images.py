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
from typing import Any

import httpx

from service.weights.base_weights import WHEEL
from tests.processes import PATIENCE

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = ("buildah", "podman", "runc", "debootstrap")
_BASE, _NEURON_BASE = "localhost/peakplan-test-base", "localhost/peakplan-test-neuron-base"
# What AWS's Neuron container has that matters here (aws-neuron/deep-learning-containers, pytorch/inference/2.9.0): a
# torch and numpy 2 of its own, and a protobuf below 4, which torch-neuronx was generated with.
NEURON_BASE_PACKAGES = ("numpy==2.4.6", "protobuf==3.20.3", "safetensors==0.8.0", "tokenizers==0.22.2")
_NEURON_BASE_FILE = f"""\
FROM {_BASE}
COPY requirements/torch.txt /requirements-torch.txt
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf python3 -m venv /pip \
 && /pip/bin/python -m pip --python /usr/bin/python3 install --break-system-packages -r /requirements-torch.txt \
 && /pip/bin/python -m pip --python /usr/bin/python3 install --break-system-packages --no-deps \
      {" ".join(NEURON_BASE_PACKAGES)} \
 && rm -r /pip
"""
_BASE_PACKAGES = "python3-minimal,python3-venv,libpython3.11,g++,make"
_BASE_PYTHON = "3.11"  # Debian bookworm's, which is 3.11.2
# redis requires it before Python 3.11.3; pip resolves for the Python that runs it.
_FOR_OLDER_PYTHON = "async-timeout==5.0.1"
# Wheels from beside the build. Compiling every module would take longer than all else; here they are run twice.
PIP_CONFIGURATION = "[global]\nno-index = true\nfind-links = /wheels\n[install]\nno-compile = true\n"
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
        self._download("pip==26.3", files=("requirements/service.txt", "requirements/torch.txt"))
        self._download("--no-deps", WHEEL, _FOR_OLDER_PYTHON)
        arguments: dict[str, Any] = {
            "REQUIREMENTS": "requirements/service.txt",
            "TORCH": "requirements/torch.txt",
            "REPLICA": "",
            "TRITON": "",
        }
        return self._bud("localhost/peakplan-test", BASE=_BASE, **arguments)

    def build_for_neuron(self, model: Path) -> str:
        """Build the image as fleets do, with an imported `model` folder.

        Its base has the packages of AWS's Neuron container that could conflict.
        """
        self._make_base()
        self._download("pip==26.3", files=("requirements/torch.txt",))
        self._download("--no-deps", WHEEL, _FOR_OLDER_PYTHON, *NEURON_BASE_PACKAGES)
        for name in ("triton", "replica", "tritonserver"):
            self._download("--no-deps", files=(f"requirements/{name}.txt",))
        file = self.folder / "Dockerfile"
        file.write_text(_NEURON_BASE_FILE, encoding="utf-8")
        self._bud(_NEURON_BASE, file)
        context = self._context(model)
        return self._bud(
            "localhost/peakplan-test-neuron", context=context, BASE=_NEURON_BASE, MODEL=f"models/{model.name}"
        )

    def _context(self, model: Path) -> Path:
        """Return a copy of what a build takes of this checkout, with a model of one's own in its models/."""
        context = self.folder / "context"
        ignored = shutil.ignore_patterns("__pycache__")
        for name in ("service", "clients/peakplan_client", "requirements"):
            shutil.copytree(REPOSITORY / name, context / name, ignore=ignored)
        shutil.copy(REPOSITORY / ".dockerignore", context)
        shutil.copytree(model, context / "models" / model.name)
        return context

    def _bud(
        self,
        tag: str,
        file: Path = REPOSITORY / "service" / "Dockerfile",
        context: Path = REPOSITORY,
        **arguments: str,
    ) -> str:
        configuration = self.folder / "pip.conf"
        configuration.write_text(PIP_CONFIGURATION, encoding="utf-8")
        options = ["--isolation", "chroot", "--network", "host", "--format", "docker", "--layers=false", "--jobs", "2"]
        options += ["--volume", f"{self.folder}/wheels:/wheels:ro", "--secret", f"id=pip.conf,src={configuration}"]
        for name, value in arguments.items():
            options += ["--build-arg", f"{name}={value}"]
        self.buildah("bud", *options, "--file", file, "--tag", tag, context)
        return tag

    def _make_base(self) -> None:
        if _BASE in self.buildah("images", "--format", "{{.Name}}").split():
            return
        system = self.folder / "system"
        run("debootstrap", "--variant=minbase", f"--include={_BASE_PACKAGES}", "bookworm", system)
        container = self.buildah("from", "scratch")
        self.buildah("add", container, system, "/")
        self.buildah("commit", "--rm", container, _BASE)
        shutil.rmtree(system)

    def _download(self, *packages: str, files: tuple[str, ...] = ()) -> None:
        """Download wheels to beside the build; files one after another, as some of them have hashes."""
        pip: list[str | Path] = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", self.folder / "wheels"]
        pip += ["--only-binary=:all:", "--python-version", _BASE_PYTHON]
        for name in files:
            flags = [package for package in packages if package.startswith("--")]
            run(*pip, *flags, "--requirement", REPOSITORY / name)
        if any(not package.startswith("--") for package in packages):
            run(*pip, *packages)


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
        until = time.monotonic() + PATIENCE
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
