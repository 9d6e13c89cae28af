"""The compiled forward: built once for this machine's processor, kept in the cache folder, bound with ctypes.

Some six hundred lines compile in seconds, and compiling where it runs is what lets it use what the
processor has. Where no compiler or no AVX-512 VNNI is found, torch's own kernels serve instead.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_SOURCES = Path(__file__).parent
_MAIN = "forward.cpp"
# Instruction sets that the sources use, as /proc/cpuinfo names them.
_INSTRUCTIONS = frozenset({"avx512f", "avx512bw", "avx512vl", "avx512_vnni"})
# No contraction: products and sums that tiles of different heights spell out must round alike. No warnings: GCC 12 has
# hundreds about its own intrinsics.
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-w", "-shared", "-fPIC")
_COMPILE_SECONDS = 120


class NativeUnavailableError(RuntimeError):
    """The native forward cannot be had here; the message says why and what would help."""


class Shape(ctypes.Structure):
    """`Shape` of forward.cpp."""

    _fields_ = (
        ("hidden", ctypes.c_int32),
        ("intermediate", ctypes.c_int32),
        ("layers", ctypes.c_int32),
        ("heads", ctypes.c_int32),
        ("kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("epsilon", ctypes.c_float),
    )


def load_library(cache_dir: Path, cpu_info: Path = Path("/proc/cpuinfo")) -> ctypes.CDLL:
    """The bound library, compiled first if this machine has not yet. Raises NativeUnavailableError."""
    instructions = _instructions(cpu_info)
    missing = sorted(_INSTRUCTIONS - instructions)
    if missing:
        raise NativeUnavailableError(f"this processor has no {', '.join(missing)}")
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        raise NativeUnavailableError("no C++ compiler is installed (Debian and Ubuntu: apt install g++)")
    path = cache_dir / "native" / f"forward-{_key(compiler, instructions)}.so"
    if not path.is_file():
        _compile(compiler, path)
    try:
        return _bind(ctypes.CDLL(str(path)))
    except (OSError, AttributeError) as error:
        raise NativeUnavailableError(f"{path} does not load ({error}); delete it to compile it anew") from error


def _instructions(cpu_info: Path) -> frozenset[str]:
    try:
        lines = cpu_info.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:  # not Linux
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(flags.partition(":")[2].split())


def _key(compiler: str, instructions: frozenset[str]) -> str:
    """Changes with the sources, the flags, the compiler and the processor."""
    digest = hashlib.sha256()
    for source in sorted([*_SOURCES.glob("*.h"), *_SOURCES.glob("*.cpp")]):
        digest.update(source.read_bytes())
    digest.update(repr((_FLAGS, compiler, sorted(instructions))).encode())
    return digest.hexdigest()[:16]


def _compile(compiler: str, path: Path) -> None:
    """Compile beside `path` and move into place, so that replicas that start together never see half a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            built = Path(folder) / path.name
            subprocess.run(
                [*compiler.split(), *_FLAGS, str(_SOURCES / _MAIN), "-o", str(built)],
                check=True,
                capture_output=True,
                timeout=_COMPILE_SECONDS,
            )
            built.replace(path)
    except subprocess.CalledProcessError as error:
        first = error.stderr.decode(errors="replace").strip().splitlines()[:1]
        raise NativeUnavailableError(f"{compiler} cannot compile {_MAIN}: {' '.join(first)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeUnavailableError(f"{_MAIN} could not be compiled into {path.parent}: {error}") from error


def _bind(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number, slot = ctypes.c_void_p, ctypes.c_int, ctypes.c_long
    signatures = {
        "peakplan_create": (pointer, [ctypes.POINTER(Shape)]),
        "peakplan_set_layer": (number, [pointer, number, ctypes.POINTER(pointer)]),
        "peakplan_set_norm": (None, [pointer, pointer]),
        "peakplan_forward": (number, [pointer, pointer, number, pointer, pointer, pointer, slot, slot]),
        "peakplan_run_layers": (
            number,
            [pointer, pointer, number, pointer, pointer, pointer, slot, slot, number, number],
        ),
        "peakplan_normalise": (None, [pointer, pointer, number]),
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
