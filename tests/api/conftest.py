"""Fixtures: an app over engines inside the test, called without a network."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.server_process import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.api.page_visit import Visit

_REFUSED_LOAD = "Failed to load resource"  # Chromium's message for every answer of 400 or more


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Run headless Chromium. It is imported here, because most tests of this folder do not need it."""
    from tests.api.page_visit import running_chromium

    with running_chromium() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def page_url(tiny_model_dir: Path) -> Iterator[str]:
    """Run the real service with long timeouts: on a busy machine, browser and model wait for each other."""
    with serving(
        PEAKPLAN_MODEL_DIR=tiny_model_dir,
        PEAKPLAN_REPLICAS=1,
        PEAKPLAN_DEADLINE_MS=2000,  # else it would say on a busy machine that plans take too long
        PEAKPLAN_TRACE_DEADLINE_MS=30_000,
        PEAKPLAN_SAMPLE_SHOP=0,
    ) as server:
        yield server.url


@pytest.fixture
def visit(browser: "Browser", page_url: str, request: pytest.FixtureRequest) -> Iterator["Visit"]:
    """Open the page; at the end, check that it logged no error and contacted no other host."""
    from tests.api.page_visit import Visit

    visit = Visit.open(browser, page_url, **getattr(request, "param", {}))
    yield visit
    strangers = [sent.url for sent in visit.requests if not sent.url.startswith(page_url)]
    visit.page.close()
    assert strangers == []
    assert [text for text in visit.complaints if not text.startswith(_REFUSED_LOAD)] == []
