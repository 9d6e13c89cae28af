"""Tests of HEALTHCHECK's command against the real service."""

import subprocess
import sys
from urllib.parse import urlsplit

from infra.fleet.parts import REPOSITORY_ROOT


def asks(port: int | str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "service.container.health"],
        env={"PORT": str(port), "HOST": "0.0.0.0"},
        cwd=REPOSITORY_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_service_that_answers_is_healthy(service_url: str) -> None:
    assert asks(urlsplit(service_url).port or 0).returncode == 0


def test_nobody_there_is_unhealthy_in_words() -> None:
    done = asks(1)
    assert done.returncode == 1
    assert "refused" in done.stderr
