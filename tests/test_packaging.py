"""pyproject.toml names each dependency once; the lock and the requirements files are generated from it, with hashes."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from rehearsal.tools import licences, lock
from service.requirement_parts import FILE, lines_of

RELEASE = Path(__file__).parents[1] / ".ci" / "release"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RELEASE, *map(str, arguments)], capture_output=True, text=True, check=False)


def key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder that is signed, `signers` beside it."""
    folder = tmp_path / "dist"
    folder.mkdir()
    for name in ("peakplan.whl", "linux-x86_64-avx2.so"):
        (folder / name).write_text(name, encoding="utf-8")
    signing = key(tmp_path / "key")
    public = signing.with_suffix(".pub").read_text(encoding="utf-8")
    (tmp_path / "signers").write_text(f'release@peakplan namespaces="peakplan-release" {public}', encoding="utf-8")
    assert run("sign", signing, folder).returncode == 0
    return folder


def test_what_was_signed_is_whole(release: Path) -> None:
    done = run("check", release.parent / "signers", release)
    assert (done.returncode, done.stdout) == (0, "2 files, as they were signed.\n")


@pytest.mark.parametrize("harm", ["changed", "missing", "added", "another key", "no signature"])
def test_what_was_not_is_refused(release: Path, harm: str) -> None:
    library = release / "linux-x86_64-avx2.so"
    if harm == "changed":
        library.write_text("another", encoding="utf-8")
    elif harm == "missing":
        library.unlink()
    elif harm == "added":
        (release / "setup.py").write_text("", encoding="utf-8")
    elif harm == "another key":
        assert run("sign", key(release.parent / "other"), release).returncode == 0
    else:
        (release / "SHA256SUMS.sig").unlink()
    done = run("check", release.parent / "signers", release)
    assert done.returncode == 1
    assert "do not install" in done.stderr or "not part of what was signed: setup.py" in done.stderr


def test_every_package_that_serving_installs_has_a_licence_that_may_be_shipped() -> None:
    """`peakplan tools sbom`, and with it `make dist`, ends where one has not."""
    refused = {name: licence for name, (_, licence) in licences.licences().items() if not licences.is_allowed(licence)}
    assert refused == {}
    assert not licences.is_allowed("LGPL-3.0-only")
    assert not licences.is_allowed("")


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


def test_the_parts_are_as_the_lock_writes_them() -> None:
    text = (REPOSITORY / FILE).read_text(encoding="utf-8")
    files = {part: "\n".join(lines_of(part, REPOSITORY / FILE)) + "\n" for part in lock.EXTRAS}
    assert lock.in_parts(files) in text
    with pytest.raises(ValueError, match="has no part replicas"):
        lines_of("replicas", REPOSITORY / FILE)


def test_there_are_four_requirement_files_at_most() -> None:
    listed = subprocess.run(["git", "ls-files", "*requirements*.txt"], cwd=REPOSITORY, capture_output=True, text=True)
    assert set(listed.stdout.split()) <= {"requirements.txt", "requirements-dev.txt", "requirements-image.txt"}


def test_the_makefile_is_short() -> None:
    """It has what people do weekly; everything else is a command of `peakplan`."""
    text = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    rules = re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)*)", text, re.MULTILINE)
    assert 20 < len(rules) <= 25
    assert [name for name, recipe in rules if recipe.count("\n") > 5] == []
    assert sorted(re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)[0].split()) == sorted(name for name, _ in rules)
