"""A shop folder: what `peakplan shop learn` wrote, sealed, so that a damaged one is refused by name."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from service.planner.shop.lexicon import Lexicon

SEAL: Final = "shop.json"
VERSION: Final = 1
_LEARN: Final = "learn it again with `peakplan shop learn`"


class ShopFolderError(ValueError):
    """Raised for a shop folder that cannot be used; the message names the file and what to do."""


@dataclass(frozen=True, slots=True)
class ShopFolder:
    """A shop folder that is whole; `digest` is another for every other content."""

    lexicon: Lexicon
    digest: str
    summary: dict[str, Any]

    @classmethod
    def load(cls, folder: Path) -> "ShopFolder":
        """Check the folder's seal and map its lexicon. Raises ShopFolderError."""
        path = folder / SEAL
        try:
            text = path.read_text(encoding="utf-8")
            seal = json.loads(text)
            version, files, summary = seal["version"], dict(seal["files"]), dict(seal["summary"])
        except OSError as error:
            raise ShopFolderError(f"{path}: {error.strerror}. {folder} is no whole shop folder: {_LEARN}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ShopFolderError(f"{path} is damaged: {_LEARN}") from error
        if version != VERSION:
            raise ShopFolderError(f"{path} is of version {version}, and this service reads {VERSION}: {_LEARN}")
        for name, digest in files.items():
            if _digest(folder / name) != digest:
                raise ShopFolderError(f"{folder / name} is missing or not what was sealed: {_LEARN}")
        try:
            whole = hashlib.sha256(text.encode()).hexdigest()[:16]
            return cls(Lexicon(folder, whole), whole, summary)
        except (OSError, RuntimeError, ValueError) as error:
            raise ShopFolderError(f"{folder} cannot be read ({error}): {_LEARN}") from error


def seal(folder: Path, summary: dict[str, Any]) -> None:
    """Write the seal of a folder's files, and what it is made of."""
    files = {path.name: _digest(path) for path in sorted(folder.iterdir()) if path.is_file() and path.name != SEAL}
    content = {"version": VERSION, "files": files, "summary": summary}
    (folder / SEAL).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
