"""Describes the machine of a figure, without which it means nothing; counts work; writes figures of several machines.

{"machines": {"AMD EPYC (Zen 5), avx512_vnni": {...}, "AMD EPYC (Zen 5), avx2 (forced)": {...}}}: a run replaces its own
machine's entry and leaves the others. Where a plot goes with it, "plotted" names the machine that the plot is of: the
last that was not forced to a kernel.
"""

import gc
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from service.engines.torch_engine import TorchModel

_CPU_INFO = Path("/proc/cpuinfo")
_STAT = Path("/proc/stat")
_EXTENSIONS = (
    "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm",
)  # fmt: skip
_ZEN_5, _ZEN_3_AND_4, _ZEN_AND_ZEN_2 = 26, 25, 23  # AMD's families


def describe_machine() -> dict[str, Any]:
    """Return processor, cores, memory and the relevant versions."""
    return {
        "processor": f"{processor_name()} ({', '.join(_extensions()) or 'no vector extensions'})",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "llguidance": version("llguidance"),
    }


def processor_time(stat: Path = _STAT) -> tuple[int, int]:
    """Return the ticks since boot that the hypervisor gave to others, and all ticks; zeros if not counted."""
    try:
        ticks = [int(each) for each in stat.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
        return ticks[7], sum(ticks)
    except (OSError, ValueError, IndexError):  # no Linux, or a sandbox's own /proc
        return 0, 0


def kernel_in_use(model: "TorchModel") -> str:
    """Name what computes a model, as figures do: "avx2" (all our kernels compute int8) or "torch bfloat16"."""
    return model.kernel.removesuffix(" int8")


def is_forced() -> bool:
    """Tell whether this run uses a lesser kernel than the best that the processor supports."""
    return bool(os.environ.get("PEAKPLAN_KERNEL"))


def machine_name(kernel: str) -> str:
    """Return the key of a machine's figures: processor, kernel, and whether a better kernel was passed over."""
    return f"{processor_name()}, {kernel}{' (forced)' if is_forced() else ''}"


def processor_name(cpu_info: Path = _CPU_INFO) -> str:
    """Return the processor's name, with its generation where a cloud leaves that out of AMD's names."""
    fields = _fields(cpu_info)
    name = fields.get("model name") or platform.processor() or platform.machine()
    family = int(fields.get("cpu family", "0"))
    if fields.get("vendor_id") != "AuthenticAMD" or any(character.isdigit() for character in name):
        return name
    has_avx512 = "avx512f" in fields.get("flags", "").split()
    is_zen_2 = int(fields.get("model", "0")) >= 0x30
    generations = {
        _ZEN_5: "Zen 5",
        _ZEN_3_AND_4: "Zen 4" if has_avx512 else "Zen 3",
        _ZEN_AND_ZEN_2: "Zen 2" if is_zen_2 else "Zen",
    }
    return f"{name} {generations[family]}" if family in generations else name


def _extensions() -> list[str]:
    """Return the vector extensions that matter for speed."""
    fields = _fields(_CPU_INFO)
    flags = fields.get("flags", fields.get("Features", "")).split()
    return [name for name in _EXTENSIONS if name in flags]


def _fields(cpu_info: Path) -> dict[str, str]:
    """Return the fields of the last processor in /proc/cpuinfo; none where there is no such file."""
    try:
        lines = cpu_info.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def read_machines(path: Path) -> dict[str, dict[str, Any]]:
    """Return every machine's figures by its name; none where the file does not exist yet."""
    machines: dict[str, dict[str, Any]] = _read(path).get("machines", {})
    return machines


def write_machine(path: Path, name: str, figure: dict[str, Any], *, is_plotted: bool = False) -> None:
    """Replace one machine's figures, and the name of the machine that the plot is of where `is_plotted`."""
    written = _read(path) | ({"plotted": name} if is_plotted else {})
    written["machines"] = dict(sorted({**read_machines(path), name: figure}.items()))
    write_figure(path, written)


def write_figure(path: Path, figure: dict[str, Any]) -> None:
    """Write a figure's file, and its folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def operations(work: Callable[[], object]) -> int:
    """Return how many operations the interpreter executes for this work. What it does inside C counts once a call."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        nonlocal count
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # what others left for it to finish would be counted
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count


def quantile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile: the smallest value that `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
