"""The table of what was skipped, and `--whole`, which lets nothing be skipped that a command would bring."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import bringing, table

REPOSITORY = Path(__file__).parents[1]
SKIPPING = "import pytest\n\n\ndef test_it() -> None:\n    pytest.skip({!r})\n"


@pytest.mark.parametrize(
    ("reason", "command"),
    [
        ("Chromium is not installed: apt-get install -y --no-install-recommends chromium", "apt-get install chromium"),
        ("a stack needs envoy: peakplan tools install stack; openssl: apt-get install openssl",
         "apt-get install openssl && peakplan tools install stack"),
        ("the MCP SDK is not installed: pip install -e .[mcp]", "pip install -e .[mcp]"),
        ("only Linux tells", ""),
    ],
)  # fmt: skip
def test_a_reason_names_the_command(reason: str, command: str) -> None:
    assert bringing(reason) == command


def test_one_row_a_command_and_one_command_for_all_of_debians_packages() -> None:
    redis, chromium = "needs it: apt-get install redis-server", "none: apt-get install -y chromium"
    lines = table([redis, chromium, redis, "only Linux tells"])
    assert lines[1].split(maxsplit=1) == ["2", "apt-get install redis-server"]
    assert "       - only Linux tells" in lines
    assert lines[-1] == "all of Debian's: apt-get install chromium redis-server"


@pytest.mark.parametrize(
    ("reason", "options", "code"),
    [
        ("no redis: apt-get install redis-server", ["--whole"], 1),
        ("no redis: apt-get install redis-server", [], 0),
        ("only Linux tells", ["--whole"], 0),
    ],
)
def test_whole_fails_for_what_a_command_would_bring(tmp_path: Path, reason: str, options: list[str], code: int) -> None:
    (tmp_path / "test_it.py").write_text(SKIPPING.format(reason), encoding="utf-8")
    words = ["-m", "pytest", "-c", "/dev/null", "-p", "tests.conftest", "-p", "no:cacheprovider", tmp_path, *options]
    done = subprocess.run([sys.executable, *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout
    assert f"1  {bringing(reason) or 'another machine'}" in done.stdout
