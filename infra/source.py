"""The source commit of a release, for the tags of everything that is made of it."""

from __future__ import annotations

import os
import subprocess

from infra.fleet.parts import REPOSITORY_ROOT


def commit() -> str:
    """Return the checkout's commit, with -dirty where files differ from it.

    Where there is no git, PEAKPLAN_COMMIT gives the commit.
    """
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
