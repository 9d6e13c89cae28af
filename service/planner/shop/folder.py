"""A shop folder: what `peakplan shop learn` wrote, sealed, so that a damaged one is refused by name."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from service.planner.shop.lexicon import Lexicon

SEAL: Final = "shop.json"
VERSION: Final = 1
_READ: Final = (
    ".marisa",
    ".npy",
    ".json",
)  # what the service reads; a folder's other files are for people and importers
_LEARN: Final = "learn it again with `peakplan shop learn`"


class ShopFolderError(ValueError):
    """Raised for a shop folder that cannot be used; the message names the file and what to do."""


@dataclass(frozen=True, slots=True)
class ShopFolder:
    """A shop folder that is whole; `digest` is another for every other content."""

    lexicon: Lexicon
    digest: str
    summary: dict[str, Any]
    size: int  # bytes that were read

    @classmethod
    def load(cls, folder: Path) -> "ShopFolder":
        """Read the folder's files and check them by its seal. Raises ShopFolderError.

        What was checked is what is used, whatever becomes of the files meanwhile or later.
        """
        path = folder / SEAL
        try:
            text = path.read_text(encoding="utf-8")
            seal = json.loads(text)
            version, files, summary = seal["version"], dict(seal["files"]), dict(seal["summary"])
        except OSError as error:
            raise ShopFolderError(f"{path}: {error.strerror}. {folder} is no whole shop folder: {_LEARN}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ShopFolderError(f"{path} is damaged: {_LEARN}") from error
        if version != VERSION:
            raise ShopFolderError(f"{path} is of version {version}, and this service reads {VERSION}: {_LEARN}")
        content: dict[str, bytes] = {}
        for name, digest in files.items():
            if _sealed(folder / name, content) != digest:
                raise ShopFolderError(f"{folder / name} is missing or not what was sealed: {_LEARN}")
        try:
            whole = hashlib.sha256(text.encode()).hexdigest()[:16]
            return cls(Lexicon(content, whole), whole, summary, sum(map(len, content.values())))
        except KeyError as error:
            raise ShopFolderError(f"{folder / str(error.args[0])} is not sealed, or damaged: {_LEARN}") from error
        except (RuntimeError, TypeError, ValueError) as error:
            raise ShopFolderError(f"{folder} cannot be read ({error}): {_LEARN}") from error


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the content of the files that the service reads, by name; for who has just written them."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in _READ}


def seal(folder: Path, summary: dict[str, Any]) -> None:
    """Write the seal of a folder's files, and what it is made of."""
    files = {path.name: _digest(path) for path in sorted(folder.iterdir()) if path.is_file() and path.name != SEAL}
    content = {"version": VERSION, "files": files, "summary": summary}
    (folder / SEAL).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _sealed(path: Path, content: dict[str, bytes]) -> str:
    """Return a file's digest, "" where there is none; keep what the service reads."""
    if path.suffix not in _READ:
        return _digest(path)
    try:
        content[path.name] = path.read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(content[path.name]).hexdigest()


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
