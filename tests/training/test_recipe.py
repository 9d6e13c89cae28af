"""A work folder belongs to one run: parts of two runs would make a model that no run trained."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from training.recipe import WorkFolderError, make_parts


def settings(work: Path, description: str) -> Any:
    return SimpleNamespace(work=work, description=description)


def test_a_folder_of_another_run_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "settings.txt").write_text("seed 1", encoding="utf-8")
    unused: Any = None
    with pytest.raises(WorkFolderError, match=f"{tmp_path} holds a run with other settings.*WORK="):
        make_parts(unused, settings(tmp_path, "seed 2"), tmp_path / "model")
    assert (tmp_path / "settings.txt").read_text(encoding="utf-8") == "seed 1"
