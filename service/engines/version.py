"""The version of a model folder as a short name: a different name means that answers may differ."""

import hashlib
from pathlib import Path

_DIGITS = 12


def folder_version(folder: Path, *choices: str) -> str:
    """Return a digest of every file in the folder and of the run options; "" when it cannot be read."""
    digest = hashlib.sha256("\0".join(choices).encode())
    try:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(f"\0{path.relative_to(folder)}\0".encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    except OSError:
        return ""
    return digest.hexdigest()[:_DIGITS]
