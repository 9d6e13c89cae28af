"""The page that says which test shows what names files that exist."""

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"`([\w/]+\.py)`", (HERE / "README.md").read_text(encoding="utf-8"))
    assert [name for name in named if not (HERE / name).is_file()] == []
    assert len(named) > 15
