"""What a model folder holds, as a short name: another name means that other answers are possible."""

import hashlib
from pathlib import Path

_DIGITS = 12


def folder_version(folder: Path, *choices: str) -> str:
    """A digest of every file in the folder and of the choices it is run with; "" when it cannot be read."""
    digest = hashlib.sha256("\0".join(choices).encode())
    try:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(f"\0{path.relative_to(folder)}\0".encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    except OSError:
        return ""
    return digest.hexdigest()[:_DIGITS]
