"""The page that says which test shows what names tests that exist."""

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_every_test_that_the_page_names_is_there() -> None:
    file, found = "", 0
    for named, test in re.findall(r"`([\w/]+\.py)?::(test_\w+)`", (HERE / "README.md").read_text(encoding="utf-8")):
        file, found = named or file, found + 1  # what has no file of its own is in the one before
        assert f"def {test}(" in (HERE / file).read_text(encoding="utf-8"), f"{file} has no {test}"
    assert found > 15
