"""The kernels as a library that this processor runs: checked, loaded and bound with ctypes.

One source becomes one library for each target; all give the same bits (lanes.h). Built libraries for every target are
part of the project (`peakplan tools kernels`): no machine needs a compiler. A library whose bytes differ from the
manifest, or that does not load, is refused by name, and the next best one is used.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

KernelName = Literal["avx512vnni", "avxvnni", "avx2", "neon"]
# auto   the best that this processor runs, and torch's kernels where there is none
# torch  none of our kernels

CPU_INFO = Path("/proc/cpuinfo")

# x86-64-v3 of the psABI's microarchitecture levels, by the names in /proc/cpuinfo, and the additions of v4.
_X86_64_V3 = frozenset(
    "abm avx avx2 bmi1 bmi2 cx16 f16c fma lahf_lm movbe pni popcnt sse4_1 sse4_2 ssse3 xsave".split()
)
_X86_64_V4 = _X86_64_V3 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())

_log = logging.getLogger(__name__)

_LINUX_X86 = ("-target", "x86_64-linux-gnu.2.28")
MAIN = "forward.cpp"
MANIFEST = "manifest.json"
# Flags of every compiler. No contraction: a product and a sum round twice, unless the sources say otherwise.
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC")


@dataclass(frozen=True, slots=True)
class Target:
    """One library: the system and instructions that it needs, and the flags that build it.

    `zig` are flags of the pinned cross-compiler (build.py).
    """

    kernel: KernelName
    system: Literal["linux", "darwin"]
    machine: Literal["x86_64", "arm64"]
    needs: frozenset[str]
    zig: tuple[str, ...]

    @property
    def file_name(self) -> str:
        suffix = "dylib" if self.system == "darwin" else "so"
        return f"{self.system}-{self.machine}-{self.kernel}.{suffix}"


# Best first.
TARGETS = (
    Target(
        "avx512vnni", "linux", "x86_64", _X86_64_V4 | {"avx512_vnni"},
        (*_LINUX_X86, "-mcpu=x86_64_v4+avx512vnni"),
    ),
    Target(
        "avxvnni", "linux", "x86_64", _X86_64_V3 | {"avx_vnni"},
        (*_LINUX_X86, "-mcpu=x86_64_v3+avxvnni"),
    ),
    Target(
        "avx2", "linux", "x86_64", _X86_64_V3,
        (*_LINUX_X86, "-mcpu=x86_64_v3"),
    ),
    Target(
        "neon", "linux", "arm64", frozenset({"asimd", "asimddp"}),
        ("-target", "aarch64-linux-gnu.2.28", "-mcpu=generic+dotprod"),
    ),
    Target(
        "neon", "darwin", "arm64", frozenset({"asimd", "asimddp"}),
        ("-target", "aarch64-macos.13.0", "-mcpu=apple_m1", "-Wl,-install_name,peakplan.dylib"),
    ),
)  # fmt: skip


def targets_here(cpu_info: Path = CPU_INFO) -> list[Target]:
    """Return the targets that this machine can run, best first."""
    available = instructions(cpu_info)
    return [target for target in targets_of_system() if target.needs <= available]


def targets_of_system() -> list[Target]:
    """Return the targets of this operating system and processor architecture, whatever its instruction sets."""
    machine = {"amd64": "x86_64", "aarch64": "arm64"}.get(platform.machine().lower(), platform.machine().lower())
    return [target for target in TARGETS if (target.system, target.machine) == (sys.platform, machine)]


def instructions(cpu_info: Path = CPU_INFO) -> frozenset[str]:
    """Return the instruction sets of the first processor, in Linux's names; none where they are unknown."""
    if sys.platform == "darwin":
        return _instructions_of_macos()
    try:
        lines = cpu_info.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")  # x86, arm64
    return frozenset(flags.partition(":")[2].split())


def _instructions_of_macos() -> frozenset[str]:
    """Return the instruction sets that macOS reports for an Apple processor, in Linux's names."""
    names = {"hw.optional.arm.AdvSIMD": "asimd", "hw.optional.arm.FEAT_DotProd": "asimddp"}
    found = set()
    for name, linux_name in names.items():
        value, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
        failed = ctypes.CDLL(None).sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
        if not failed and value.value:
            found.add(linux_name)
    return frozenset(found)


if TYPE_CHECKING:  # the compiler's environment (`peakplan tools kernels`) has nothing but the compiler
    from service.settings.choices import KernelChoice


SOURCES = Path(__file__).parent
PREBUILT = SOURCES / "prebuilt"


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


def load_kernels(choice: KernelChoice = "auto", *, cpu_info: Path = CPU_INFO, prebuilt: Path = PREBUILT) -> Kernels:
    """Load the best kernels that this processor runs, or those of `choice`. Raises NativeUnavailableError."""
    candidates = _candidates(choice, instructions(cpu_info))
    manifest = _read_manifest(prebuilt)
    if manifest.get("sources") != sources_hash():
        raise NativeUnavailableError("the kernels' sources have changed since `peakplan tools kernels`: run it")
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
