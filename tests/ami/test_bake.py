"""What builds the container and compiles the model while an image is baked, with a docker of the test's own."""

import subprocess
from pathlib import Path

import pytest

from tests.ami.programs import AMI, Programs


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for folder in ("model", "release/service", "compiled", "packages"):
        (tmp_path / "home" / folder).mkdir(parents=True)
    (tmp_path / "home/model/model.json").write_text("{}", encoding="utf-8")
    return tmp_path / "home"


def build(programs: Programs, home: Path) -> subprocess.CompletedProcess[str]:
    return programs.run("bash", AMI / "bake" / "build-container.sh", "the-base:sdk2.28.0", PEAKPLAN_HOME=home)


def compile_for(programs: Programs, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return programs.run("bash", AMI / "bake" / "compile-model.sh", *words, PEAKPLAN_HOME=home)


def test_the_container_is_built_from_the_release_on_the_pinned_base(programs: Programs, home: Path) -> None:
    programs.add("docker", f"[[ $1 == build ]] && ls {home}/release/model >> {programs.folder}/context; true")
    done = build(programs, home)
    assert done.returncode == 0, done.stderr
    built, copied = programs.asked()
    assert "--build-arg BASE=the-base:sdk2.28.0 --build-arg MODEL=model" in built
    assert "--tag peakplan:baked" in built
    assert (programs.folder / "context").read_text(encoding="utf-8") == "model.json\n"
    assert "prometheus_client" in copied
    assert not (home / "release").exists()


def test_arm64_has_no_container_of_neurons_and_brings_its_own_torch(programs: Programs, home: Path) -> None:
    programs.add("docker")
    programs.add("uname", "echo aarch64")
    assert build(programs, home).returncode == 0
    built = next(line for line in programs.asked() if line.startswith("docker build"))
    assert "--build-arg REQUIREMENTS=service --build-arg TORCH=torch" in built
    assert "--build-arg REPLICA= --build-arg TRITON=" in built


def test_docker_is_installed_where_the_base_image_has_none(tmp_path: Path, programs: Programs) -> None:
    programs.add("apt-get")
    script = AMI / "bake" / "install-docker.sh"
    without = f"{programs.folder}:{tmp_path}"
    (tmp_path / "bash").symlink_to("/bin/bash")
    for name in ("cat", "printf", "echo", "env"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    assert programs.run("bash", script, PATH=without).returncode == 0
    updated, installed = programs.asked()
    assert (updated, installed.endswith(" docker.io docker-buildx")) == ("apt-get update", True)
    assert "DPkg::Lock::Timeout=" in installed, "unattended upgrades hold the lock of a fresh instance"
    programs.add("docker")
    asked = len(programs.asked())
    assert programs.run("bash", script, PATH=without).returncode == 0
    assert len(programs.asked()) == asked


def test_a_build_that_fails_stops_the_bake(programs: Programs, home: Path) -> None:
    programs.add("docker", "echo 'no space left on device' >&2; exit 1")
    done = build(programs, home)
    assert done.returncode != 0
    assert "no space left" in done.stderr
    assert len(programs.asked()) == 1


def test_the_model_is_compiled_and_checked_for_every_chip_without_a_network(programs: Programs, home: Path) -> None:
    programs.add("docker")
    done = compile_for(programs, home, "inf2 trn1", "--tensor-parallel", "2")
    assert done.returncode == 0, done.stderr
    asked = programs.asked()
    assert all("--network none" in line and "--pull never" in line for line in asked)
    assert all("--entrypoint /opt/peakplan/replica/bin/python" in line for line in asked), "the SDK is there alone"
    for chip, (compiled, checked) in zip(("inf2", "trn1"), (asked[:2], asked[2:]), strict=True):
        assert compiled.endswith(f"compile --output /opt/peakplan/compiled/{chip} --chip {chip} --tensor-parallel 2")
        assert checked.endswith(f"check --compiled /opt/peakplan/compiled/{chip}")


def test_a_model_that_does_not_compile_stops_the_bake(programs: Programs, home: Path) -> None:
    programs.add("docker", "echo 'Not compiled for Neuron: seq_len' >&2; exit 2")
    done = compile_for(programs, home, "inf2")
    assert done.returncode == 2
    assert "Not compiled for Neuron" in done.stderr
    assert len(programs.asked()) == 1


def test_neither_runs_without_being_told_what(programs: Programs, home: Path) -> None:
    assert "usage" in compile_for(programs, home).stderr
    assert "usage" in programs.run("bash", AMI / "bake" / "build-container.sh").stderr
