"""Fixtures: an app over engines inside the test, called without a network."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Run headless Chromium. It is imported here, because most tests of this folder do not need it."""
    from tests.api.page_visit import running_chromium

    with running_chromium() as chromium:
        yield chromium
