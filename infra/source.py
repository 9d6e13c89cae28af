"""Which sources a release was made of: the commit, for the tags of what is made of them."""

from __future__ import annotations

import os
import subprocess

from infra.fleet.parts import REPOSITORY_ROOT


def commit() -> str:
    """The checkout's commit, with -dirty where files differ from it; PEAKPLAN_COMMIT says it where there is no git."""
    if told := os.environ.get("PEAKPLAN_COMMIT"):
        return told
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=REPOSITORY_ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()
