"""Builds the service's image without a Docker engine, from a base that debootstrap makes, and runs it.

The base brings compilers, as the Neuron containers of AWS do: the image must not have them.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from rehearsal.tools import image
from service.requirement_parts import FILE, lines_of
from service.weights.base_weights import WHEEL
from tests.processes import PATIENCE

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = ("buildah", "podman", "runc", "debootstrap")
_BASE, _NEURON_BASE = "localhost/peakplan-test-base", "localhost/peakplan-test-neuron-base"
# What AWS's Neuron container has that matters here (aws-neuron/deep-learning-containers, pytorch/inference/2.9.0): a
# torch and numpy 2 of its own, and a protobuf below 4, which torch-neuronx was generated with.
NEURON_BASE_PACKAGES = ("numpy==2.4.6", "protobuf==3.20.3", "safetensors==0.8.0", "tokenizers==0.22.2")
(_TORCH,) = (line for line in lines_of("torch", REPOSITORY / FILE) if line.startswith("torch=="))
_NEURON_BASE_FILE = f"""\
FROM {_BASE}
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf python3 -m venv /pip \
 && /pip/bin/python -m pip --python /usr/bin/python3 install --break-system-packages {_TORCH} \
 && /pip/bin/python -m pip --python /usr/bin/python3 install --break-system-packages --no-deps \
      {" ".join(NEURON_BASE_PACKAGES)} \
 && rm -r /pip
"""
_BASE_PACKAGES = (*image.BASE_PACKAGES, "g++", "make")
# Compiling every module would take longer than all else; here they are run twice.
_PIP_TWICE = "[install]\nno-compile = true\n"
EPOCH = 1_700_000_000  # seconds, of every file: nobody compares these images with others
# The defaults of the system are more than a container in a container may have.
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")


def why_not() -> str:
    """Return why no image can be built here, and what to do; "" when one can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"needs {', '.join(missing)} (Debian: apt-get install --no-install-recommends {' '.join(PROGRAMS)})"
    return "" if os.geteuid() == 0 else "debootstrap needs root"


@dataclass(frozen=True)
class Store(image.Store):
    """The images that tests build, and what they run of them."""

    def podman(self, *words: str | Path) -> str:
        return image.run(*self.command("podman"), "--cgroup-manager", "cgroupfs", "--runtime", "runc", *words)

    def build_for_a_cpu(self) -> str:
        """Build the image of this working tree for a CPU and return its name."""
        return self.build("localhost/peakplan-test", self._for_a_cpu(), epoch=EPOCH, pip=_PIP_TWICE)

    def bake(self, model: Path) -> str:
        """Build the same image with a `model` folder of one's own; what is before the model is built for the first."""
        arguments = self._for_a_cpu() | {"MODEL": f"models/{model.name}"}
        context, tag = self._context(model), f"localhost/peakplan-test-{model.name}"
        return self.build(tag, arguments, epoch=EPOCH, context=context, pip=_PIP_TWICE, layers=True)

    def _for_a_cpu(self) -> dict[str, str]:
        self.make_base(_BASE, _BASE_PACKAGES, epoch=EPOCH)
        self.download(self.python_of(_BASE), image.PARTS, ("pip==26.3", WHEEL))
        return image.FOR_A_CPU | {"BASE": _BASE}

    def build_for_neuron(self, model: Path) -> str:
        """Build the image as fleets do, with an imported `model` folder.

        Its base has the packages of AWS's Neuron container that could conflict.
        """
        self.make_base(_BASE, _BASE_PACKAGES, epoch=EPOCH)
        python = self.python_of(_BASE)
        self.download(python, image.PARTS, ("pip==26.3", WHEEL))
        self.download(python, (), NEURON_BASE_PACKAGES)
        for name in ("triton", "replica", "tritonserver"):  # each process has versions of its own
            self.download(python, (name,))
        file = self.folder / "Dockerfile"
        file.write_text(_NEURON_BASE_FILE, encoding="utf-8")
        self.build(_NEURON_BASE, {}, epoch=EPOCH, file=file, pip=_PIP_TWICE)
        arguments = {"BASE": _NEURON_BASE, "MODEL": f"models/{model.name}"}
        context = self._context(model)
        return self.build("localhost/peakplan-test-neuron", arguments, epoch=EPOCH, context=context, pip=_PIP_TWICE)

    def _context(self, model: Path) -> Path:
        """Return a copy of what a build takes of this checkout, with a model of one's own in its models/."""
        context = self.folder / f"context-{model.name}"
        shutil.rmtree(context, ignore_errors=True)  # a build that failed may have left one, and is tried once more
        ignored = shutil.ignore_patterns("__pycache__")
        for name in ("service", "clients/peakplan_client"):
            shutil.copytree(REPOSITORY / name, context / name, ignore=ignored)
        for name in (".dockerignore", FILE):
            shutil.copy(REPOSITORY / name, context)
        shutil.copytree(model, context / "models" / model.name)
        return context


class RunningContainer:
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

    def wait_until_ready(self) -> "RunningContainer":
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
def running(store: Store, image: str, **environment: object) -> Iterator[RunningContainer]:
    """Run a container until it is ready; remove it at the end whatever happens."""
    container = RunningContainer(store, image, **environment)
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
