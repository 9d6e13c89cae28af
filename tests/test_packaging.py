"""pyproject.toml names each dependency once; the lock and the requirements files are generated from it, with hashes."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from service.requirement_parts import FILE, lines_of

REPOSITORY = Path(__file__).parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
GENERATED = {
    "requirements-dev.txt": tuple(EXTRAS),
    "service": ("service", "torch"),
    "triton": ("service", "triton"),
    "replica": ("replica",),
    "postgres": ("postgres",),
}
_NAME = re.compile(r"[-_.]+")


def plain(name: str) -> str:
    return _NAME.sub("-", name).lower()


def direct(*extras: str) -> dict[str, str]:
    """Return names and versions that these extras pin, and the project itself."""
    named: dict[str, str] = {}
    for requirement in [*PROJECT["project"]["dependencies"], *(each for extra in extras for each in EXTRAS[extra])]:
        if inner := re.fullmatch(r"peakplan\[(.+)\]", requirement):
            named |= direct(*inner[1].split(","))
        else:
            match = re.fullmatch(r"([\w.-]+)(?:\[\w+\])?==([\w.]+)", requirement)
            assert match, f"{requirement} is not pinned"
            named[plain(match[1])] = match[2]
    return named


def locked(file: str) -> dict[tuple[str, str], tuple[str, frozenset[str]]]:
    """Return the markers and hashes of each package of a requirements file, or of a part of requirements-image.txt."""
    path = REPOSITORY / file
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else lines_of(file, REPOSITORY / FILE)
    text = "\n".join(lines).replace("\\\n", "")
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            pin, *hashes = re.split(r"\s+--hash=", line)
            requirement, _, marker = (part.strip() for part in pin.partition(";"))
            name, _, version = requirement.partition("==")
            found[plain(name.partition("[")[0]), version] = marker, frozenset(hashes)
    return found


@pytest.mark.parametrize("file", GENERATED)
def test_a_file_is_made_of_its_extras(file: str) -> None:
    """Check that the file is what `peakplan tools lock` would write."""
    own = {"torch": "a part of its own", "numpy": "the Neuron container"}
    wanted = direct(*GENERATED[file])
    have = dict(locked(file))
    for name, version in wanted.items():
        assert (name, version) in have or name in own, f"{name}=={version} is not in {file}: run `peakplan tools lock`"
    unknown = {name for name, _ in have} & set(direct(*EXTRAS)) - set(wanted)
    indirect = {
        "pyyaml",
        "tqdm",
        "protobuf",
        "jsonschema",
        "boto3",
        "charset-normalizer",
        "botocore",
        "grpcio",
        "httpx",
        "pydantic",
        "uvicorn",
        "numpy",
        "hypothesis",
    }
    assert unknown <= indirect, (
        f"{file} has {unknown - indirect}, which none of its extras names: run `peakplan tools lock`"
    )


@pytest.mark.parametrize("file", GENERATED)
def test_a_file_is_a_part_of_the_lock(file: str) -> None:
    lock = locked("requirements-dev.txt")
    for pin, (_, hashes) in locked(file).items():
        assert hashes, f"{pin} has no hash"
        assert lock[pin][1] == hashes


def test_the_root_requirements_bring_the_service_and_the_cdk() -> None:
    """It names PyTorch, whose builds differ, and pip takes hashes only for all packages or for none."""
    have, lock = locked("requirements.txt"), locked("requirements-dev.txt")
    assert set(direct("service", "torch", "fleet").items()) <= set(have)
    assert not any(hashes for _, hashes in have.values())
    assert set(have) - set(lock) == {("torch", direct("torch")["torch"])}


def test_torch_is_named_alone_and_once() -> None:
    assert [line for line in lines_of("torch", REPOSITORY / FILE) if line and not line.startswith("#")] == [
        f"torch=={direct('torch')['torch']}"
    ]
    assert PROJECT["tool"]["uv"]["dependency-metadata"][0]["version"] == direct("torch")["torch"]


def test_no_file_names_an_index() -> None:
    for file in (*REPOSITORY.glob("requirements*.txt"), REPOSITORY / "pyproject.toml", REPOSITORY / "Makefile"):
        assert not re.search(r"https?://", file.read_text(encoding="utf-8")), file.name


@pytest.mark.parametrize(("abi", "code"), [("cpython-312-x86_64-linux-musl", 1), ("cpython-312-darwin", 0)])
def test_make_serve_says_before_it_installs_that_musl_has_no_wheels(tmp_path: Path, abi: str, code: int) -> None:
    """On Alpine pip would build llguidance for minutes, then find no PyTorch, and end in a page of its own words."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import sysconfig\nsysconfig.get_config_var = lambda _: {abi!r}\n", encoding="utf-8"
    )
    planned = ["make", "--dry-run", "--what-if", "requirements/service.txt", ".venv/service.stamp"]
    lines = subprocess.run(planned, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    first = next(line for line in lines.splitlines() if "musl" in line)
    assert lines.index(first) < lines.index("requirements/torch.txt"), "before anything is downloaded"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        ["sh", "-c", first], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "use the container image" in done.stderr) == (code, bool(code))
