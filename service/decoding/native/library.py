"""The kernels as a library that this processor runs: checked, loaded and bound with ctypes.

Built libraries for every target are part of the project (`peakplan tools kernels`): no machine needs a compiler. A
library whose bytes differ from the manifest, or that does not load, is refused by name, and the next best one is used.
A local compiler is used only where the sources have changed since, on a developer's machine.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.decoding.native.targets import CPU_INFO, KernelName, Target, instructions, targets_of_system

if TYPE_CHECKING:  # the compiler's environment (`peakplan tools kernels`) has nothing but the compiler
    from service.settings.choices import KernelChoice

_log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent
MAIN = "forward.cpp"
PREBUILT = SOURCES / "prebuilt"
MANIFEST = "manifest.json"
# Flags of every compiler. No contraction: a product and a sum round twice, unless the sources say otherwise.
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC")
# GCC 12 has hundreds of warnings about its own intrinsics.
_LOCAL_FLAGS = ("-w",)
_COMPILE_SECONDS = 120


class NativeUnavailableError(RuntimeError):
    """Raised when the native forward is not available; the message says why and what would help."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """A bound library and its target."""

    name: KernelName
    path: Path
    functions: ctypes.CDLL


class Shape(ctypes.Structure):
    """The struct `Shape` of forward.cpp."""

    _fields_ = (
        ("hidden", ctypes.c_int32),
        ("intermediate", ctypes.c_int32),
        ("layers", ctypes.c_int32),
        ("heads", ctypes.c_int32),
        ("kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("epsilon", ctypes.c_float),
    )


class AttentionParts(ctypes.Structure):
    """The struct `AttentionParts` of model.h: what a layer's attention has beyond Llama's, None for no part."""

    _fields_ = (
        ("qkv_bias", ctypes.c_void_p),
        ("output_bias", ctypes.c_void_p),
        ("query_norm", ctypes.c_void_p),
        ("key_norm", ctypes.c_void_p),
        ("head_epsilon", ctypes.c_float),
        ("rotates", ctypes.c_int32),
    )


class SequenceStruct(ctypes.Structure):
    """The struct `Sequence` of model.h with its `Cache`: one request's new rows, their mask and its kept positions."""

    _fields_ = (
        ("rows", ctypes.c_int32),
        ("mask", ctypes.c_void_p),
        ("cache", ctypes.c_void_p),
        ("positions", ctypes.c_long),
        ("length", ctypes.c_long),
    )


def load_kernels(
    cache_dir: Path, choice: KernelChoice = "auto", *, cpu_info: Path = CPU_INFO, prebuilt: Path = PREBUILT
) -> Kernels:
    """Load the best kernels that this processor runs, or those of `choice`. Raises NativeUnavailableError.

    `cache_dir` keeps the libraries that a local compiler builds from changed sources.
    """
    candidates = _candidates(choice, instructions(cpu_info))
    manifest = _read_manifest(prebuilt)
    if manifest.get("sources") != sources_hash():
        return _compile_locally(candidates[0], cache_dir)
    for target in candidates:
        path = prebuilt / target.file_name
        try:
            return _load(target, path, manifest["libraries"].get(target.file_name, {}).get("sha256"))
        except NativeUnavailableError as error:
            refused = error
            if choice == "auto":
                _log.warning("kernel library refused: %s", error)
    raise NativeUnavailableError(f"no kernel library can be used: {refused}") from refused


def sources_hash() -> str:
    """Return the hash of the libraries' sources and flags; the compiler is not part of it."""
    digest = hashlib.sha256()
    for source in sorted([*SOURCES.glob("*.h"), SOURCES / MAIN]):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    digest.update(repr(FLAGS).encode())
    return digest.hexdigest()


def _candidates(choice: KernelChoice, available: frozenset[str]) -> list[Target]:
    """Return the targets to try, best first; at least one. Raises NativeUnavailableError."""
    targets = [target for target in targets_of_system() if choice in ("auto", target.kernel)]
    runnable = [target for target in targets if target.needs <= available]
    if runnable:
        return runnable
    if choice != "auto":
        missing = sorted(targets[0].needs - available) if targets else []
        why = f"it lacks {', '.join(missing)}" if missing else "they are made for another kind"
        raise NativeUnavailableError(f"this processor cannot run the {choice} kernels: {why}")
    needed = "AVX2 and FMA" if any(target.machine == "x86_64" for target in targets) else "NEON with dot products"
    raise NativeUnavailableError(
        f"this processor has no {needed}" if targets else "there are kernels for Linux and for macOS on arm64 alone"
    )


@cache
def _read_manifest(prebuilt: Path) -> Mapping[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((prebuilt / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # missing or invalid: no library here can be trusted
        return {}
    return manifest


def _load(target: Target, path: Path, sha256: str | None) -> Kernels:
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != sha256:
            raise NativeUnavailableError(f"{path.name} is not the one that was built (its SHA-256 is {found[:12]}…)")
        return Kernels(target.kernel, path, bind(ctypes.CDLL(str(path))))
    except FileNotFoundError as error:
        raise NativeUnavailableError(f"{path.name} is missing") from error
    except (OSError, AttributeError) as error:
        raise NativeUnavailableError(f"{path.name} does not load: {error}") from error


def _compile_locally(target: Target, cache_dir: Path) -> Kernels:
    """Compile the current sources, on a machine where they are being changed."""
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        raise NativeUnavailableError(
            "the kernels' sources have changed since `peakplan tools kernels`: run it, or install a C++ compiler "
            "(Debian and Ubuntu: apt install g++)"
        )
    key = hashlib.sha256(repr((sources_hash(), compiler)).encode()).hexdigest()[:16]
    path = cache_dir / "native" / f"{key}-{target.file_name}"
    if not path.is_file():
        _compile(compiler, target.local, path)
    for trusted in (path, path.parent, cache_dir):
        _refuse_foreign(trusted)
    try:
        return Kernels(target.kernel, path, bind(ctypes.CDLL(str(path))))
    except (OSError, AttributeError) as error:
        raise NativeUnavailableError(f"{path} does not load ({error}); delete it to compile it anew") from error


def _refuse_foreign(path: Path) -> None:
    """Raise NativeUnavailableError for what another user owns or anybody may change: it would run as this one."""
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o002:
        raise NativeUnavailableError(
            f"{path} is not yours alone (owner {status.st_uid}, mode {status.st_mode & 0o777:o}), and nothing is run "
            "from there: delete it, or name another folder with PEAKPLAN_CACHE_DIR"
        )


def _compile(compiler: str, target: tuple[str, ...], path: Path) -> None:
    """Compile beside `path` and move into place, so that replicas that start together never see a partial file."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            built = Path(folder) / path.name
            subprocess.run(
                [*compiler.split(), *FLAGS, *_LOCAL_FLAGS, *target, str(SOURCES / MAIN), "-o", str(built)],
                check=True,
                capture_output=True,
                timeout=_COMPILE_SECONDS,
            )
            built.replace(path)
    except subprocess.CalledProcessError as error:
        first = error.stderr.decode(errors="replace").strip().splitlines()[:1]
        raise NativeUnavailableError(f"{compiler} cannot compile {MAIN}: {' '.join(first)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeUnavailableError(f"{MAIN} could not be compiled into {path.parent}: {error}") from error


def bind(library: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the types of the library's functions and return it. Raises AttributeError for a missing one."""
    pointer, number, slot = ctypes.c_void_p, ctypes.c_int, ctypes.c_long
    signatures = {
        "peakplan_target": (ctypes.c_char_p, []),
        "peakplan_create": (pointer, [ctypes.POINTER(Shape)]),
        "peakplan_set_layer": (number, [pointer, number, ctypes.POINTER(pointer)]),
        "peakplan_set_attention": (number, [pointer, number, ctypes.POINTER(AttentionParts)]),
        "peakplan_set_norm": (None, [pointer, pointer]),
        "peakplan_stop_when": (None, [pointer, number, ctypes.c_double]),
        "peakplan_forward": (number, [pointer, pointer, number, pointer, pointer, pointer, slot, slot]),
        "peakplan_forward_batch": (number, [pointer, pointer, pointer, ctypes.POINTER(SequenceStruct), number]),
        "peakplan_destroy": (None, [pointer]),
        "peakplan_matrix_create": (pointer, [number, number, pointer]),
        "peakplan_matrix_multiply": (number, [pointer, pointer, number, pointer]),
        "peakplan_matrix_destroy": (None, [pointer]),
        "peakplan_scores": (None, [pointer, number, pointer, pointer, slot, pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
