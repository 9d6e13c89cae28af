"""What would be killed for memory is refused before it begins, with how much lacks."""

from pathlib import Path

import pytest

from service.weights.memory import GIB, TooLittleMemoryError, available_bytes, require_memory
from service.weights.model_folder import ModelFolderError, load_model
from tests.tiny_model import write_tiny_model


def meminfo(folder: Path, available: int) -> Path:
    path = folder / "meminfo"
    path.write_text(f"MemTotal: 9 kB\nMemAvailable: {available // 1024} kB\n", encoding="ascii")
    return path


def container(folder: Path, limit: str, used: int = 0, files: int = 0) -> Path:
    cgroup = folder / "cgroup"
    cgroup.mkdir()
    (cgroup / "memory.max").write_text(f"{limit}\n", encoding="ascii")
    (cgroup / "memory.current").write_text(f"{used}\n", encoding="ascii")
    lines = f"anon 1\nactive_file {files}\ninactive_file {files}\nslab 7\n"
    (cgroup / "memory.stat").write_text(lines, encoding="ascii")
    return cgroup


def test_the_system_s_word_counts_where_no_container_limits_it(tmp_path: Path) -> None:
    assert available_bytes(meminfo(tmp_path, 8 * GIB), tmp_path / "none") == 8 * GIB
    assert available_bytes(tmp_path / "meminfo", container(tmp_path, "max")) == 8 * GIB
    assert available_bytes(tmp_path / "no", tmp_path / "no") is None


def test_a_container_s_limit_counts_where_it_is_the_lesser(tmp_path: Path) -> None:
    """What it used for files is given back."""
    system, cgroup = meminfo(tmp_path, 8 * GIB), container(tmp_path, str(4 * GIB), used=3 * GIB, files=GIB)
    assert available_bytes(system, cgroup) == 3 * GIB


def test_the_gib_that_lack_are_named() -> None:
    require_memory(GIB, "a model", free=GIB)
    with pytest.raises(TooLittleMemoryError, match=r"a model takes some 5\.0 GiB .* 2\.0 are free: 3\.0 GiB lack"):
        require_memory(5 * GIB, "a model", free=2 * GIB)


def test_a_model_too_large_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_tiny_model(tmp_path / "tiny")
    monkeypatch.setattr("service.weights.memory.available_bytes", lambda: 1000)
    monkeypatch.setattr("service.weights.model_folder.read_weights", lambda _: pytest.fail("it was read"))
    with pytest.raises(ModelFolderError, match=r"loading the .* million weights of .* GiB lack"):
        load_model(model, tmp_path)
