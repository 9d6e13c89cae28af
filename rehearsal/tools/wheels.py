"""Which of the service's packages have no wheel for a platform, asked of the package index: nothing is downloaded.

    python -m rehearsal.tools.wheels        # docs/figures/wheels.json; a quarter of an hour

`pip install --dry-run` chooses among the wheels of each release that the requirements pin, for platforms that this
machine is not. A wheel that exists is no proof that the service runs there.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from service.requirement_parts import FILE, lines_of

FIGURE = Path("docs/figures/wheels.json")
PYTHON = "3.11"
NEWER = ("3.12", "3.13", "3.14")  # which newer systems bring, asked for the most usual platform
USUAL = "Linux, glibc 2.36, x86-64"
_GLIBC = tuple(f"manylinux_2_{minor}" for minor in range(36, 16, -1))  # up to Debian 12's
_MUSL = ("musllinux_1_2", "musllinux_1_1")
# Tags that each platform takes, and what the marker of a requirement asks of it.
PLATFORMS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    USUAL: (_GLIBC, {"sys_platform": "linux", "platform_machine": "x86_64"}),
    "Linux, glibc 2.36, arm64": (_GLIBC, {"sys_platform": "linux", "platform_machine": "aarch64"}),
    "Linux, musl, x86-64": (_MUSL, {"sys_platform": "linux", "platform_machine": "x86_64"}),
    "Linux, musl, arm64": (_MUSL, {"sys_platform": "linux", "platform_machine": "aarch64"}),
    "macOS 11, arm64": (("macosx_11_0",), {"sys_platform": "darwin", "platform_machine": "arm64"}),
    "macOS 14, arm64": (("macosx_14_0",), {"sys_platform": "darwin", "platform_machine": "arm64"}),
}
_PIN = re.compile(r"^([A-Za-z0-9_.\[\]-]+==[^\s;]+)\s*(;[^\\]*)?")
_HAS_NONE = ("No matching distribution", "ResolutionImpossible")


def pinned(lines: Iterable[str], marks: dict[str, str], python: str = PYTHON) -> list[str]:
    """Return the releases that requirement lines name for a platform."""
    found = []
    for line in lines:
        match = _PIN.match(line)
        if match is None:
            continue
        requirement = Requirement(f"{match[1]} {match[2] or ''}")
        environment = {"python_version": python, "python_full_version": f"{python}.7"} | marks
        if requirement.marker is None or requirement.marker.evaluate(environment):
            found.append(f"{requirement.name}{requirement.specifier}")
    return found


def has_wheel(release: str, tags: Sequence[str], python: str = PYTHON) -> bool:
    """Ask the index for a wheel of a release. Raises RuntimeError where it does not answer."""
    platforms = [argument for tag in tags for argument in ("--platform", tag)]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
    command += ["--only-binary", ":all:", "--python-version", python, "--target", "build/none", *platforms, release]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return True
    if any(words in done.stderr for words in _HAS_NONE):
        return False
    raise RuntimeError(f"pip could not ask for {release}: {done.stderr.strip()[-500:]}")


def without_wheels(platform: str, lines: Sequence[str], python: str = PYTHON) -> dict[str, Any]:
    """Return how many releases a platform needs, and those that have no wheel for it."""
    names, marks = PLATFORMS[platform]
    tags = [f"{name}_{marks['platform_machine']}" for name in names]
    releases = pinned(lines, marks, python)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda release: has_wheel(release, tags, python), releases))
    return {"asked": len(releases), "without": [r for r, wheel in zip(releases, found, strict=True) if not wheel]}


def render_wheels(figure: dict[str, Any]) -> str:
    """Return the table of a figure."""
    rows = [f"| platform (Python {figure['python']} unless named) | packages | without a wheel |", "|---|---:|---|"]
    for platform, found in figure["platforms"].items():
        rows.append(f"| {platform} | {found['asked']} | {', '.join(found['without']) or 'none'} |")
    return "\n".join(rows)


def main() -> None:
    """Ask for every platform, and write what was found."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    lines = [line for part in ("service", "torch") for line in lines_of(part, Path(FILE))]
    platforms = {}
    asked = [(platform, PYTHON) for platform in PLATFORMS] + [(USUAL, python) for python in NEWER]
    for platform, python in asked:
        name = platform if python == PYTHON else f"{platform}, Python {python}"
        platforms[name] = without_wheels(platform, lines, python)
        print(name, platforms[name], flush=True)
    figure = {"command": "python -m rehearsal.tools.wheels", "python": PYTHON, "platforms": platforms}
    FIGURE.write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
