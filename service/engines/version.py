"""The version of a model folder as a short name: a different name means that answers may differ."""

import hashlib
from functools import lru_cache
from pathlib import Path

_DIGITS = 12


@lru_cache(maxsize=256)
def _digest(path: Path, _size: int, _changed: int) -> bytes:
    """Return a file's digest, computed once until the file changes: a base in a folder may have gigabytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def folder_version(folder: Path, *choices: str) -> str:
    """Return a digest of every file in the folder and of the run options; "" when it cannot be read."""
    digest = hashlib.sha256("\0".join(choices).encode())
    try:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(f"\0{path.relative_to(folder)}\0".encode())
            status = path.stat()
            digest.update(_digest(path, status.st_size, status.st_mtime_ns))
    except OSError:
        return ""
    return digest.hexdigest()[:_DIGITS]
