"""The compiled data plane: built for every system with the kernels' compiler, checked, loaded and bound with ctypes.

`python -m rehearsal.twin.native.library` builds, `--check` compares with what is committed (`peakplan tools kernels`).
No machine that rehearses needs a compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib.metadata
import json
import platform
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent
PREBUILT = SOURCES / "prebuilt"
MANIFEST = "manifest.json"
MAIN = "twin.cpp"
FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wall",
)
_ZIG_FLAGS = (*FLAGS, "-Wextra", "-Werror", "-g0", "-s")
TARGETS = {
    "linux-x86_64.so": ("-target", "x86_64-linux-gnu.2.28", "-mcpu=x86_64_v2"),
    "linux-arm64.so": ("-target", "aarch64-linux-gnu.2.28"),
    "darwin-arm64.dylib": ("-target", "aarch64-macos.13.0", "-Wl,-install_name,twin.dylib"),
}


class TwinUnavailableError(RuntimeError):
    """Raised where the data plane cannot run on this machine; the message says what would help."""


class Rules(ctypes.Structure):
    """The struct `Rules` of service_times.h."""

    _fields_ = (
        *((name, ctypes.c_double) for name in (
            "quantile", "first_expectation", "hopeless", "hopeless_under_pressure", "trial_share", "trial_share_beside",
            "fresh", "half_life", "high_share", "fewest", "overload_seconds", "max_age", "outlier", "flat_prior",
            "about",
        )),
        *((name, ctypes.c_int) for name in (
            "window", "kept", "most_late", "by_worth", "waiting_by_worth", "refit_every",
        )),
    )  # fmt: skip


class Settings(ctypes.Structure):
    """The struct `Settings` of cell.h."""

    _fields_ = (
        *((name, ctypes.c_double) for name in (
            "allowed", "overhead", "rule", "cached", "forward", "client_timeout", "backoff", "cache_seconds", "window",
            "choice",
        )),
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in (
            "retries", "shed_inside", "nodes", "hosts", "groups", "bands", "table", "questions", "windows", "seconds",
            "replayed", "shared_cache", "worths",
        )),
        ("rules", Rules),
    )  # fmt: skip


INPUTS = (
    "times", "band_share", "band_length", "question_share", "worths", "rates", "replay", "outcomes", "latencies",
    "model_latencies", "queue_times", "host_counts", "remembered_until",
)  # fmt: skip


class Inputs(ctypes.Structure):
    """The struct `Inputs` of cell.h."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in INPUTS)


@cache
def load() -> ctypes.CDLL:
    """Return the library of this machine, bound. Raises TwinUnavailableError."""
    machine = {"amd64": "x86_64", "aarch64": "arm64"}.get(platform.machine().lower(), platform.machine().lower())
    name = next((each for each in TARGETS if each.startswith(f"{sys.platform}-{machine}.")), None)
    manifest = json.loads((PREBUILT / MANIFEST).read_text(encoding="utf-8"))
    if name is None or manifest["sources"] != sources_hash():
        raise TwinUnavailableError(
            f"there is no data plane built for {sys.platform} on {platform.machine()} from these sources: "
            "run `peakplan tools kernels`"
        )
    path = PREBUILT / name
    if not path.is_file() or sha256(path) != manifest["libraries"].get(name):
        raise TwinUnavailableError(f"{path.name} is not the one that was built: check the checkout out again")
    return _bind(path)


def sources_hash() -> str:
    """Return the hash of the sources and flags."""
    digest = hashlib.sha256(repr((FLAGS, TARGETS)).encode())
    for source in sorted([*SOURCES.glob("*.h"), SOURCES / MAIN]):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _bind(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    pointer, number, real = ctypes.c_void_p, ctypes.c_int, ctypes.c_double
    signatures = {
        "twin_create": (pointer, [ctypes.POINTER(Settings), ctypes.POINTER(Inputs)]),
        "twin_destroy": (None, [pointer]),
        "twin_inside": (number, [pointer, number]),
        "twin_mean_seconds": (real, [pointer, number]),
        "twin_arrived": (ctypes.c_int64, [pointer]),
        "twin_in_flight": (ctypes.c_int64, [pointer]),
        "twin_schedule": (None, [pointer, real, number, number, number]),
        "twin_bring_in": (None, [pointer, number, number, number, pointer, number]),
        "twin_set_behaviour": (None, [pointer, number, real, real]),
        "twin_advance": (number, [pointer, real]),
        "gateway_create": (pointer, [ctypes.POINTER(Rules)]),
        "gateway_destroy": (None, [pointer]),
        "gateway_new": (number, [pointer, real, real, real]),
        "gateway_certainly_refused": (number, [pointer, number, real, number]),
        "gateway_ask": (None, [pointer, number, real, number, number]),
        "gateway_next": (number, [pointer, real]),
        "gateway_drop_late": (None, [pointer, real]),
        "gateway_ended": (None, [pointer, number, real, real, number, number]),
        "gateway_dropped": (number, [pointer, pointer]),
        "gateway_refusal": (number, [pointer, number]),
        "gateway_latest_start": (real, [pointer, number]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def build(folder: Path) -> None:
    """Build every library and the manifest into `folder`, with the pinned compiler."""
    folder.mkdir(exist_ok=True)
    for name, target in TARGETS.items():
        command = [
            sys.executable,
            "-m",
            "ziglang",
            "c++",
            *_ZIG_FLAGS,
            *target,
            MAIN,
            "-o",
            str((folder / name).absolute()),
        ]
        subprocess.run(command, cwd=SOURCES, check=True)  # there, so that no path of this machine is in the output
    manifest = {
        "sources": sources_hash(),
        "compiler": f"ziglang {importlib.metadata.version('ziglang')}",
        "libraries": {name: sha256(folder / name) for name in TARGETS},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Return 0 when built, or when the committed files match; 1 with the names of those that differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="build in a temporary folder and compare")
    if not parser.parse_args().check:
        build(PREBUILT)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        build(Path(scratch))
        names = sorted(path.name for path in Path(scratch).iterdir() if path.suffix in (".so", ".dylib", ".json"))
        stale = [
            name for name in names
            if not (PREBUILT / name).is_file() or (PREBUILT / name).read_bytes() != (Path(scratch) / name).read_bytes()
        ]  # fmt: skip
    if stale:
        print(f"stale, or not what these sources and this compiler make: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
