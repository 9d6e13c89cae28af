"""Resolve pyproject.toml into the requirement files: `peakplan tools lock`; `--upgrade` takes the newest releases.

- `requirements-dev.txt`: every extra, with hashes.
- `requirements.txt`: what the service and `cdk synth` need, in the same versions, without hashes because of PyTorch.
- `requirements-image.txt`: what images are made of, in parts (service/requirement_parts.py), with the same hashes. The
  parts `torch` and `tritonserver` at its end are written by hand and stay as they are.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK, PARTS, ROOT_FILE = (
    ROOT / name for name in ("requirements-dev.txt", "requirements-image.txt", "requirements.txt")
)
COMMAND = "peakplan tools lock"
# PyTorch's builds differ by machine and index, and their hashes with them: files with hashes leave it out.
_HASHES = ("--generate-hashes", "--no-emit-package", "torch")
# Neuron's container has a NumPy of its own for replicas.
EXTRAS = {
    "service": ("--extra", "service", "--extra", "torch"),
    "triton": ("--extra", "service", "--extra", "triton"),
    "replica": ("--extra", "replica", "--no-emit-package", "numpy"),
    "postgres": ("--extra", "postgres"),
}
_BY_HAND = "# By hand, without hashes.\n"
_HEAD = f"""\
# What images are made of, by hash: {COMMAND} writes it. `service/requirement_parts.py PART` prints a part for pip.
"""


def compile_(output: Path, *words: str, upgrade: bool = False) -> None:
    """Let uv resolve pyproject.toml for every system into `output`. Raises CalledProcessError."""
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", "compile", "pyproject.toml", "--universal", "--python-version", "3.11", "--no-annotate"]
    command += ["--no-emit-index-url", "--no-emit-package", "peakplan", "--custom-compile-command", COMMAND, "--quiet"]
    more = ["--upgrade"] if upgrade else []
    subprocess.run([*command, *more, *words, "--output-file", str(output)], cwd=ROOT, check=True)


def packages_in(text: str) -> list[str]:
    """Return the packages of a requirements file, each with its lines of hashes."""
    lines = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    return re.findall(r"^\S.*\n(?: .*\n)*", lines, re.MULTILINE)


def in_parts(files: dict[str, str]) -> str:
    """Return these requirements files as the text of parts: each package once, under the parts that have it."""
    parts_of: dict[str, list[str]] = defaultdict(list)
    for part, text in files.items():
        for package in packages_in(text):
            parts_of[package].append(part)
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for package, parts in parts_of.items():
        groups[tuple(parts)].append(package)
    return "".join(
        f"\n# for: {' '.join(parts)}\n{''.join(sorted(packages))}" for parts, packages in sorted(groups.items())
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest releases that pyproject.toml allows")
    upgrade = parser.parse_args().upgrade
    compile_(LOCK, *_HASHES, "--all-extras", upgrade=upgrade)
    constraint = ("--constraint", str(LOCK))
    compile_(ROOT_FILE, *constraint, "--extra", "service", "--extra", "torch", "--extra", "fleet", upgrade=upgrade)
    by_hand = PARTS.read_text(encoding="utf-8").partition(_BY_HAND)[2]
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for part, words in EXTRAS.items():
            compile_(Path(folder, part), *_HASHES, *constraint, *words)
            files[part] = Path(folder, part).read_text(encoding="utf-8")
    PARTS.write_text(f"{_HEAD}{in_parts(files)}\n{_BY_HAND}{by_hand}", encoding="utf-8")


if __name__ == "__main__":
    main()
