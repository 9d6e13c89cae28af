"""Build the kernel libraries of every target: `peakplan tools kernels`; `--check` builds them elsewhere and compares.

The compiler is Zig's Clang, pinned in pyproject.toml's group `kernels`: one Python package that links for every target
from any machine, so that a build gives the same bytes wherever it is made.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from service.decoding.native.library import FLAGS, MAIN, MANIFEST, PREBUILT, SOURCES, TARGETS, sources_hash

# No debugging information and no symbols but ours: nothing that differs between builds or that nobody needs.
_FLAGS = ("-g0", "-s", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
REPLAY = "replay.cpp"
REPLAY_PROGRAM = "linux-arm64-replay"
_REPLAY_FLAGS = (
    "-target", "aarch64-linux-gnu.2.28", "-std=c++17", "-O2", "-g0", "-s", "-nostdlib++", "-fno-exceptions", "-Wall",
    "-Wextra", "-Werror",
)  # fmt: skip


def main() -> int:
    """Return 0 when built, or when the committed files match; 1 with the names of those that differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="build in a temporary folder and compare")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if arguments.check else PREBUILT
        folder.mkdir(exist_ok=True)
        build(folder, Path(scratch) / "cache" if arguments.check else None)
        if not arguments.check:
            return 0
        differing = [
            path.name for path in sorted(folder.iterdir())
            if path.is_file() and not _same(path, PREBUILT / path.name)
        ]  # fmt: skip
    if differing:
        print(f"stale, or not what these sources and this compiler make: {', '.join(differing)}", file=sys.stderr)
        return 1
    return 0


def build(folder: Path, cache: Path | None) -> None:
    """Build every library, the program that replays calls on arm64, and the manifest, into `folder`.

    `cache` keeps the compiler's intermediate files (default: the user's cache folder); an empty one rebuilds
    everything.
    """
    commands = {target.file_name: (*FLAGS, *_FLAGS, *target.zig, MAIN) for target in TARGETS}
    commands[REPLAY_PROGRAM] = (*_REPLAY_FLAGS, REPLAY)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each library takes a processor minutes
        for done in [pool.submit(_compile, flags, folder / name, cache) for name, flags in commands.items()]:
            done.result()
    libraries = {}
    for target in TARGETS:
        path = folder / target.file_name
        libraries[path.name] = {"sha256": sha256(path), "flags": " ".join(target.zig)}
        print(f"{path.name}: {path.stat().st_size} bytes", file=sys.stderr)
    manifest = {
        "sources": sources_hash(),
        "compiler": f"ziglang {importlib.metadata.version('ziglang')}",
        "flags": " ".join([*FLAGS, *_FLAGS]),
        "libraries": libraries,
        "programs": {REPLAY_PROGRAM: {"sha256": sha256(folder / REPLAY_PROGRAM)}},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def _compile(flags: tuple[str, ...], path: Path, cache: Path | None) -> None:
    """Compile in the sources' folder, so that the output contains no path of this machine."""
    caches = {"ZIG_LOCAL_CACHE_DIR": str(cache), "ZIG_GLOBAL_CACHE_DIR": str(cache)} if cache else {}
    command = [sys.executable, "-m", "ziglang", "c++", *flags, "-o", str(path.absolute())]
    subprocess.run(command, cwd=SOURCES, check=True, env={**os.environ, **caches})


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and one.read_bytes() == other.read_bytes()


if __name__ == "__main__":
    sys.exit(main())
