"""The compiled forward: built once for this machine's processor, kept in the cache folder, bound with ctypes.

Some six hundred lines compile in seconds, and compiling where it runs is what lets it use what the
processor has. A container has no compiler: there the library was compiled with the image, for any processor with
AVX-512 VNNI. Where neither is to be had, torch's own kernels serve instead.
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
_FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-w", "-shared", "-fPIC")
_FOR_THIS_PROCESSOR = ("-march=native",)
_COMPILE_SECONDS = 120

# A shipped library lies beside its sources, and needs nothing but a C library.
_SHIPPED = _SOURCES / "shipped"
_FOR_ANY_PROCESSOR = ("-march=x86-64-v4", "-mavx512vnni", "-static-libstdc++", "-static-libgcc")
# What those flags let a compiler use (x86-64 psABI, microarchitecture levels).
SHIPPED_INSTRUCTIONS = _INSTRUCTIONS | {
    "abm", "avx", "avx2", "avx512cd", "avx512dq", "bmi1", "bmi2", "cx16", "f16c", "fma", "lahf_lm", "movbe", "pni",
    "popcnt", "sse4_1", "sse4_2", "ssse3", "xsave",
}  # fmt: skip


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
    """The bound library: the shipped one, or one compiled for this machine. Raises NativeUnavailableError."""
    available = instructions(cpu_info)
    missing = sorted(_INSTRUCTIONS - available)
    if missing:
        raise NativeUnavailableError(f"this processor has no {', '.join(missing)}")
    path = _shipped_path()
    if not (available >= SHIPPED_INSTRUCTIONS and path.is_file()):
        compiler = _compiler()
        path = cache_dir / "native" / f"forward-{_key(*_FOR_THIS_PROCESSOR, compiler, *sorted(available))}.so"
        if not path.is_file():
            _compile(compiler, _FOR_THIS_PROCESSOR, path)
    try:
        return _bind(ctypes.CDLL(str(path)))
    except (OSError, AttributeError) as error:
        raise NativeUnavailableError(f"{path} does not load ({error}); delete it to compile it anew") from error


def ship_library() -> Path:
    """Compile the library that a container ships; answers where it lies. Raises NativeUnavailableError."""
    path = _shipped_path()
    _compile(_compiler(), _FOR_ANY_PROCESSOR, path)
    return path


def instructions(cpu_info: Path) -> frozenset[str]:
    """The instruction sets of the first processor, as /proc/cpuinfo names them; none where it is not x86 or Linux."""
    try:
        lines = cpu_info.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:  # not Linux
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(flags.partition(":")[2].split())


def _shipped_path() -> Path:
    return _SHIPPED / f"forward-{_key(*_FOR_ANY_PROCESSOR)}.so"


def _compiler() -> str:
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        raise NativeUnavailableError("no C++ compiler is installed (Debian and Ubuntu: apt install g++)")
    return compiler


def _key(*target: str) -> str:
    """Changes with the sources, the flags and `target`, what else the library depends on."""
    digest = hashlib.sha256()
    for source in sorted([*_SOURCES.glob("*.h"), *_SOURCES.glob("*.cpp")]):
        digest.update(source.read_bytes())
    digest.update(repr((_FLAGS, target)).encode())
    return digest.hexdigest()[:16]


def _compile(compiler: str, target: tuple[str, ...], path: Path) -> None:
    """Compile beside `path` and move into place, so that replicas that start together never see half a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            built = Path(folder) / path.name
            subprocess.run(
                [*compiler.split(), *_FLAGS, *target, str(_SOURCES / _MAIN), "-o", str(built)],
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
