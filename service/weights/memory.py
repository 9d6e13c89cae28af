"""How much memory this process may still take, so that what would be killed half-way is refused before it begins."""

from pathlib import Path

GIB = 1 << 30
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


class TooLittleMemoryError(ValueError):
    """Raised where something needs more memory than there is; the message says how many GiB lack."""


def available_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """Return what the system and this container leave free, the lesser; None where neither says so (macOS)."""
    found = [value for value in (_of_system(meminfo), _of_container(cgroup)) if value is not None]
    return min(found, default=None)


def require_memory(needed: int, what: str, *, free: int | None = None) -> None:
    """Raise TooLittleMemoryError where `needed` bytes are more than are free; `what` says for which work."""
    free = available_bytes() if free is None else free
    if free is not None and needed > free:
        raise TooLittleMemoryError(
            f"{what} takes some {needed / GIB:.1f} GiB of memory and {free / GIB:.1f} are free: "
            f"{(needed - free) / GIB:.1f} GiB lack. End other programs, use a machine with more memory, or take a "
            "smaller model"
        )


def _of_system(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kibibytes = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(kibibytes) * 1024 if kibibytes else None


def _of_container(cgroup: Path) -> int | None:
    """Return what cgroup 2 leaves; what the kernel would give back of its file cache counts as free."""
    try:
        limit, used = ((cgroup / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
        reclaimable = [line.split()[1] for line in (cgroup / "memory.stat").read_text(encoding="ascii").splitlines()
                       if line.startswith(("inactive_file ", "active_file "))]  # fmt: skip
    except OSError:
        return None
    return None if limit == "max" else int(limit) - int(used) + sum(map(int, reclaimable))
