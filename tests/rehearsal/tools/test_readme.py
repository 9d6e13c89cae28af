"""The README shows the figures that the commands wrote."""

import json
from pathlib import Path

import pytest

from rehearsal.tools.readme import FIGURES, README, rewrite


def test_the_readme_is_not_stale() -> None:
    text = README.read_text(encoding="utf-8")

    assert rewrite(text) == text


def test_a_changed_figure_makes_the_readme_stale(tmp_path: Path) -> None:
    for path in FIGURES.glob("*.json"):
        name, figure = path.stem, json.loads(path.read_text(encoding="utf-8"))
        if name == "quality":
            figure["model"]["span_f1"]["queryner"] = 0.123
        (tmp_path / f"{name}.json").write_text(json.dumps(figure))
    text = README.read_text(encoding="utf-8")

    assert "0.123" in rewrite(text, tmp_path)
    assert rewrite(text, tmp_path) != text


def test_a_block_without_its_figure_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rewrite("<!-- figure: decoding -->\n<!-- end of figure -->", tmp_path)
