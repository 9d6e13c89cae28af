"""Static checks of the Dockerfile and of what it installs."""

import ast
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from infra.fleet.settings import FleetSettings
from service.requirement_parts import FILE, lines_of

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = REPOSITORY / "service" / "Dockerfile"
NEURON_CONTAINERS_OWN = {"torch", "numpy", "safetensors", "tokenizers", "protobuf"}  # builds that fit the Neuron SDK
REPLICA = "service.engines.neuron.__main__, service.engines.torch_engine, service.engines.worker.process"
TRITONS_OWN = {"grpcio"}  # the gateway's side of it; a laptop does without
ON_REQUEST = {"psycopg"}  # its licence is not among those that an image may bring (rehearsal/tools/licences.py)


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [hadolint, "--failure-threshold", "style", DOCKERFILE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("fleet", sorted((REPOSITORY / "infra" / "fleets").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_base_is_the_container_that_fleets_name(fleet: Path) -> None:
    (base,) = re.findall(r"^ARG BASE=(.+)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert FleetSettings.from_yaml(fleet).model.image == base


def test_the_context_holds_what_is_copied_and_no_more() -> None:
    """Check that no unnamed file leaves the machine for a builder: .dockerignore lists what may."""
    lines = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    words = re.findall(
        r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", ""), re.MULTILINE
    )
    copied = {word.replace("${MODEL}", "models") for line in words for word in line.split()}
    copied -= {word for word in copied if any(word.startswith(f"{folder}/") for folder in let_in)}
    assert lines[1] == "*"
    assert let_in == copied


def test_what_the_service_imports_of_this_repository_is_copied() -> None:
    """Check that a module of ours, which no requirement names, reaches the hosts too."""
    ours = {"service", *(name for name in imported() if (folder_of(name) / "__init__.py").exists())}
    lines = DOCKERFILE.read_text(encoding="utf-8")
    assert {"service", "peakplan_client"} <= ours
    for name in ours:
        assert f"\nCOPY {folder_of(name).relative_to(REPOSITORY)} {name}\n" in lines


def folder_of(name: str) -> Path:
    """Return where a top-level module of this repository would be."""
    client = REPOSITORY / "clients" / name
    return client if client.is_dir() else REPOSITORY / name


def pinned(*names: str) -> set[str]:
    """Return the packages of a requirements file, or of parts of the images', each with an exact version."""
    packages: set[str] = set()
    for name in names:
        path = REPOSITORY / name
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else lines_of(name, REPOSITORY / FILE)
        for line in lines:
            requirement = line.partition("#")[0].partition(";")[0].strip(" \\")
            if requirement and not requirement.startswith("--hash="):
                assert re.fullmatch(r"[\w.-]+(\[[\w,-]+\])?==[\w.]+", requirement), f"{name}: {line}"
                packages.add(re.split(r"[\[=]", requirement)[0].lower())
    return packages


def imported() -> set[str]:
    """Return the top-level names that the service's modules import, without Python's own."""
    names = set()
    for path in (REPOSITORY / "service").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - {"service"}


def test_what_the_service_imports_is_in_the_image() -> None:
    """Check that a requirement added for a laptop reaches the hosts too."""
    ours, distributions = pinned("requirements-dev.txt", "torch"), packages_distributions()
    needed = {name for module in imported() for name in map(str.lower, distributions.get(module, [])) if name in ours}
    assert {"fastapi", "torch", "grpcio"} <= needed
    assert needed - pinned("triton") <= NEURON_CONTAINERS_OWN | ON_REQUEST
    assert needed - TRITONS_OWN - ON_REQUEST <= pinned("service", "torch")


def test_a_replica_finds_all_it_imports_in_its_own_environment() -> None:
    """Check that nothing of it replaces what AWS's Neuron container has: that was built, and generated, to fit."""
    own = pinned("replica")
    program = f"import sys, {REPLICA}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    distributions = packages_distributions()
    needed = {name.lower().replace("_", "-") for module in modules for name in distributions.get(module, [])}
    assert {"pydantic", "llguidance", "torch"} <= needed
    assert not own & NEURON_CONTAINERS_OWN
    assert needed - own - NEURON_CONTAINERS_OWN <= {"setuptools"}, "torch's"


@pytest.mark.slow  # asks the package index: `make test` needs no network
@pytest.mark.parametrize("part", ["triton", "replica", "tritonserver"])
def test_what_a_neuron_image_installs_is_there_for_its_python(part: str, tmp_path: Path) -> None:
    """AWS's Neuron container has conda's Python 3.12, and the image no compiler; dependencies are in the files."""
    uv = Path(sys.executable).with_name("uv")
    options = "--dry-run --no-deps --only-binary :all: --python-version 3.12".split()
    command: list[str | Path] = [uv, "pip", "install", *options]
    file = tmp_path / "requirements.txt"
    file.write_text("\n".join(lines_of(part, REPOSITORY / FILE)), encoding="utf-8")
    command += ["--target", tmp_path / "packages", "--requirement", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
