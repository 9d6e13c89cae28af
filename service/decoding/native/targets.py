"""The processors that the kernels are built for, and the capabilities of this one.

One source becomes one library for each target; all give the same bits (lanes.h). A target is named after the
instructions that multiply its bytes.
"""

import ctypes
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

KernelName = Literal["avx512vnni", "avxvnni", "avx2", "neon"]
# auto   the best that this processor runs, and torch's kernels where there is none
# torch  none of our kernels

CPU_INFO = Path("/proc/cpuinfo")

# x86-64-v3 of the psABI's microarchitecture levels, by the names in /proc/cpuinfo, and the additions of v4.
_X86_64_V3 = frozenset(
    "abm avx avx2 bmi1 bmi2 cx16 f16c fma lahf_lm movbe pni popcnt sse4_1 sse4_2 ssse3 xsave".split()
)
_X86_64_V4 = _X86_64_V3 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())


@dataclass(frozen=True, slots=True)
class Target:
    """One library: the system and instructions that it needs, and the flags that build it.

    `zig` are flags of the pinned cross-compiler (build.py), `local` those of a machine's own C++ compiler.
    """

    kernel: KernelName
    system: Literal["linux", "darwin"]
    machine: Literal["x86_64", "arm64"]
    needs: frozenset[str]
    zig: tuple[str, ...]
    local: tuple[str, ...]

    @property
    def file_name(self) -> str:
        suffix = "dylib" if self.system == "darwin" else "so"
        return f"{self.system}-{self.machine}-{self.kernel}.{suffix}"


_LINUX_X86 = ("-target", "x86_64-linux-gnu.2.28")
# Best first.
TARGETS = (
    Target(
        "avx512vnni", "linux", "x86_64", _X86_64_V4 | {"avx512_vnni"},
        (*_LINUX_X86, "-mcpu=x86_64_v4+avx512vnni"), ("-march=x86-64-v4", "-mavx512vnni"),
    ),
    Target(
        "avxvnni", "linux", "x86_64", _X86_64_V3 | {"avx_vnni"},
        (*_LINUX_X86, "-mcpu=x86_64_v3+avxvnni"), ("-march=x86-64-v3", "-mavxvnni"),
    ),
    Target(
        "avx2", "linux", "x86_64", _X86_64_V3,
        (*_LINUX_X86, "-mcpu=x86_64_v3"), ("-march=x86-64-v3",),
    ),
    Target(
        "neon", "linux", "arm64", frozenset({"asimd", "asimddp"}),
        ("-target", "aarch64-linux-gnu.2.28", "-mcpu=generic+dotprod"), ("-march=armv8.2-a+dotprod",),
    ),
    Target(
        "neon", "darwin", "arm64", frozenset({"asimd", "asimddp"}),
        ("-target", "aarch64-macos.13.0", "-mcpu=apple_m1", "-Wl,-install_name,peakplan.dylib"), ("-mcpu=apple-m1",),
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
