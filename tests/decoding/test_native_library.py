"""Tests of the kernels' libraries: prebuilt for this processor, and checked."""

import json
import logging
import shutil
import tomllib
from pathlib import Path

import pytest

from service.decoding.native import build, library
from service.decoding.native.library import (
    MANIFEST,
    PREBUILT,
    TARGETS,
    NativeUnavailableError,
    instructions,
    load_kernels,
    sources_hash,
    targets_here,
)

HERE = targets_here()
needs_kernels = pytest.mark.skipif(not HERE, reason="this processor runs none of the prebuilt kernels")
needs_two = pytest.mark.skipif(len(HERE) < 2, reason="this processor runs fewer than two of the prebuilt kernels")
linux_x86 = pytest.mark.skipif(
    not (HERE and HERE[0].machine == "x86_64"), reason="about the processors of Linux on x86-64"
)


@pytest.fixture
def prebuilt(tmp_path: Path) -> Path:
    """Return a copy of the libraries that a test may corrupt."""
    folder = tmp_path / "prebuilt"
    shutil.copytree(PREBUILT, folder)
    return folder


def cpu(folder: Path, flags: frozenset[str]) -> Path:
    file = folder / "cpuinfo"
    file.write_text(f"processor\t: 0\nflags\t\t: {' '.join(sorted(flags))}\n", encoding="ascii")
    return file


def manifest_of(folder: Path) -> dict[str, dict[str, dict[str, str]]]:
    manifest: dict[str, dict[str, dict[str, str]]] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return manifest


def test_what_is_committed_was_built_from_these_sources_with_the_pinned_compiler() -> None:
    """Check the committed libraries; if it fails, run `peakplan tools kernels` and commit the result."""
    manifest = manifest_of(PREBUILT)
    (pinned,) = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]["kernels"]
    assert manifest["sources"] == sources_hash()
    assert str(manifest["compiler"]).replace(" ", "==") == pinned
    assert {target.file_name: " ".join(target.zig) for target in TARGETS} == {
        name: built["flags"] for name, built in manifest["libraries"].items()
    }
    for name, built in {**manifest["libraries"], **manifest["programs"]}.items():
        assert built["sha256"] == build.sha256(PREBUILT / name), name


@needs_kernels
def test_the_best_for_this_processor_is_chosen() -> None:
    kernels = load_kernels()
    assert (kernels.name, kernels.path) == (HERE[0].kernel, PREBUILT / HERE[0].file_name)
    assert kernels.functions.peakplan_target().decode() == kernels.name


@linux_x86
@pytest.mark.parametrize(
    ("without", "best"),
    [("avx512dq", {"avxvnni", "avx2"}), ("avx512_vnni", {"avxvnni", "avx2"}), ("avx_vnni", {"avx512vnni", "avx2"})],
)
def test_a_processor_that_lacks_one_of_its_instructions_never_gets_it(
    tmp_path: Path, without: str, best: set[str]
) -> None:
    kernels = load_kernels(cpu_info=cpu(tmp_path, instructions() - {without}))
    assert kernels.name in best


@linux_x86
def test_one_that_this_processor_cannot_run_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    poor = cpu(tmp_path, instructions() - {"avx512_vnni"})
    with pytest.raises(NativeUnavailableError, match="cannot run the avx512vnni kernels: it lacks avx512_vnni"):
        load_kernels("avx512vnni", cpu_info=poor)
    with pytest.raises(NativeUnavailableError, match="cannot run the neon kernels: they are made for another kind"):
        load_kernels("neon")
    with pytest.raises(NativeUnavailableError, match="no AVX2"):
        load_kernels(cpu_info=cpu(tmp_path, frozenset({"fpu", "sse4_2"})))


@needs_two
@pytest.mark.parametrize("how", ["corrupted", "of another processor", "no library", "missing"])
def test_a_wrong_library_is_refused_by_name_and_the_next_best_serves(
    prebuilt: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    spoilt = prebuilt / HERE[0].file_name
    content = spoilt.read_bytes()
    if how == "corrupted":
        spoilt.write_bytes(content[:5000] + bytes([content[5000] ^ 1]) + content[5001:])
    elif how == "missing":
        spoilt.unlink()
    else:  # the manifest agrees, and it does not load
        other = next(target for target in TARGETS if target.machine != HERE[0].machine)
        spoilt.write_bytes((prebuilt / other.file_name).read_bytes() if how == "of another processor" else b"text")
        manifest = manifest_of(prebuilt)
        manifest["libraries"][spoilt.name]["sha256"] = build.sha256(spoilt)
        (prebuilt / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")

    with caplog.at_level(logging.WARNING):
        kernels = load_kernels(prebuilt=prebuilt)

    assert kernels.name == HERE[1].kernel
    (record,) = caplog.records
    assert spoilt.name in record.getMessage()
    with pytest.raises(NativeUnavailableError, match=spoilt.name):  # asked for by name, no other is loaded
        load_kernels(HERE[0].kernel, prebuilt=prebuilt)


def test_changed_sources_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sources"
    shutil.copytree(library.SOURCES, folder, ignore=shutil.ignore_patterns("prebuilt", "__pycache__"))
    with (folder / "lanes.h").open("a", encoding="utf-8") as file:
        file.write("// changed\n")
    monkeypatch.setattr(library, "SOURCES", folder)
    with pytest.raises(NativeUnavailableError, match="peakplan tools kernels"):
        load_kernels()
