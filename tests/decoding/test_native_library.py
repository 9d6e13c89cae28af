"""Where the compiled kernels come from: shipped beside their sources, or compiled for this processor."""

import shutil
from pathlib import Path

import pytest

from service.decoding.native import library
from service.decoding.native.library import (
    SHIPPED_INSTRUCTIONS,
    NativeUnavailableError,
    instructions,
    load_library,
    ship_library,
)

HERE = instructions(Path("/proc/cpuinfo"))


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library made as the container's build makes it; no compiler from then on."""
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler is installed (Debian and Ubuntu: apt install g++)")
    if not HERE >= SHIPPED_INSTRUCTIONS:
        pytest.skip("this processor has no AVX-512 VNNI")
    monkeypatch.setattr(library, "_SHIPPED", tmp_path / "shipped")
    path = ship_library()
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    return path


def cpu(folder: Path, flags: frozenset[str]) -> Path:
    file = folder / "cpuinfo"
    file.write_text(f"processor\t: 0\nflags\t\t: {' '.join(sorted(flags))}\n", encoding="ascii")
    return file


def test_a_shipped_library_needs_no_compiler_and_writes_nothing(shipped: Path, tmp_path: Path) -> None:
    assert load_library(tmp_path / "cache")._name == str(shipped)
    assert not (tmp_path / "cache").exists()


def test_a_processor_that_lacks_one_of_its_instructions_never_gets_it(shipped: Path, tmp_path: Path) -> None:
    assert shipped.is_file()
    without = cpu(tmp_path, HERE - {"avx512dq"})
    with pytest.raises(NativeUnavailableError, match="compiler"):
        load_library(tmp_path / "cache", without)


def test_one_of_other_sources_is_not_used(shipped: Path, tmp_path: Path) -> None:
    shipped.rename(shipped.with_name("forward-0123456789abcdef.so"))
    with pytest.raises(NativeUnavailableError, match="compiler"):
        load_library(tmp_path / "cache")


def test_a_broken_one_is_an_error_in_words(shipped: Path, tmp_path: Path) -> None:
    shipped.write_bytes(b"no library")
    with pytest.raises(NativeUnavailableError, match="does not load"):
        load_library(tmp_path / "cache")
