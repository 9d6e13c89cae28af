"""The model.json of a model folder, and the folder's version, for engines whose model runs elsewhere: without torch."""

import hashlib
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.weights.base_weights import BASE_NAME

MODEL_CARD = "model.json"
BASE_FOLDER = "base"  # of a model folder that holds its base itself

_DIGITS = 12


class ModelFolderError(RuntimeError):
    """Raised for a model folder that cannot be used; the message names the file and what to do."""


class ModelCard(BaseModel):
    """The content of model.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(min_length=1)
    base: str = Field(description=f"{BASE_NAME!r}, or a folder (absolute, or relative to the model folder)")
    bos_token_id: int = Field(ge=0)
    eos_token_id: int = Field(ge=0)
    max_tokens: int = Field(ge=8, le=512, description="the longest plan text")


def read_card(model_dir: Path) -> ModelCard:
    """Read model.json. Raises ModelFolderError naming the field that is wrong."""
    path = existing(model_dir / MODEL_CARD)
    try:
        return ModelCard.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'file'}: {item['msg']}" for item in error.errors())
        raise ModelFolderError(f"{path} is not a model card: {problems}") from error


def existing(path: Path) -> Path:
    """Return the path itself. Raises ModelFolderError where there is no such file."""
    if not path.is_file():
        raise ModelFolderError(
            f"{path} is missing. Point PEAKPLAN_MODEL_DIR at a model folder; `make train` writes one."
        )
    return path


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
