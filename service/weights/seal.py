"""The seal of a model folder: the digests of its files, and the bits that it computes for a known prompt.

A flipped bit in weights, or in the kernels that multiply them, gives plans that are valid and wrong. So a sealed folder
is checked at every load, and our kernels, whose results are the same to the last bit on every processor, must give the
known answer. `python -m service.weights seal FOLDER` writes the seal; a folder without one is served unchecked.
"""

import hashlib
import logging
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from service.decoding.target import CausalLM
from service.weights.model_card import BASE_FOLDER, ModelFolderError

logger = logging.getLogger(__name__)

SEAL = "seal.json"
_SEALED = (".json", ".safetensors", ".txt")


class Seal(BaseModel):
    """The content of seal.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    files: dict[str, str]  # SHA-256 by name
    prompt: list[int]  # token ids
    answer: str  # SHA-256 of what our int8 kernels compute of the prompt


def read_seal(folder: Path) -> Seal | None:
    """Return the seal of a folder after a check of its files; None where it has none. Raises ModelFolderError."""
    path = folder / SEAL
    if not path.is_file():
        logger.info("the model's files are not sealed, and not checked", extra={"seal": str(path)})
        return None
    try:
        seal = Seal.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise ModelFolderError(f"{path} is no seal: write it anew with `python -m service.weights seal`") from error
    found = digests(folder)
    wrong = sorted(name for name in seal.files | found if seal.files.get(name) != found.get(name))
    if wrong:
        raise ModelFolderError(
            f"{folder} is not what was sealed: {', '.join(wrong)} differs. Fetch the model again, or, if you changed "
            f"it, seal it: python -m service.weights seal {folder}"
        )
    return seal


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file that a seal is for, those of a base in the folder too."""
    found = {}
    for path in sorted([*folder.iterdir(), *(folder / BASE_FOLDER).glob("*")]):
        if path.suffix in _SEALED and path.name != SEAL:
            with path.open("rb") as file:
                found[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def seal_again(folder: Path) -> None:
    """Note the folder's digests in its seal, if it has one, where no file has changed that the model computes with."""
    path = folder / SEAL
    if path.is_file():
        seal = Seal.model_validate_json(path.read_text(encoding="utf-8"))
        text = seal.model_copy(update={"files": digests(folder)}).model_dump_json(indent=1)
        path.write_text(text + "\n", encoding="utf-8")


def check_answer(forward: CausalLM, seal: Seal | None) -> None:
    """Let the model compute the known prompt. Raises ModelFolderError where it comes out wrong, or as no number."""
    values = _computed(forward, seal.prompt if seal else [1])
    if not all(np.isfinite(part).all() for part in values):
        raise ModelFolderError("the model computes values that are no numbers: its weights are damaged")
    if seal is not None and forward.precision == "int8" and _digest(values) != seal.answer:
        raise ModelFolderError(
            f"the model does not compute the known answer of {SEAL}, with the {forward.kernel} kernels: its weights, "
            "the kernels or this machine are damaged"
        )


def answer_of(forward: CausalLM, prompt: list[int]) -> str:
    """Return the digest of what our kernels compute of a prompt; "" for other kernels, whose bits vary."""
    return _digest(_computed(forward, prompt)) if forward.precision == "int8" else ""


def _digest(values: list[NDArray[np.float32]]) -> str:
    digest = hashlib.sha256()
    for part in values:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


@torch.inference_mode()
def _computed(forward: CausalLM, prompt: list[int]) -> list[NDArray[np.float32]]:
    """Return the hidden states of a prompt [N, H], and the last one's logits of the whole vocabulary, in both ways."""
    cache = forward.new_cache(len(prompt))
    hidden = forward.forward(torch.tensor(prompt), torch.arange(len(prompt)), cache).float()
    values = [hidden.numpy(), forward.lm_head.of_tokens(hidden[-1], np.arange(forward.config.vocab_size))]
    if forward.precision == "int8":  # elsewhere this would make a second copy of the weights
        values.append(forward.lm_head.logits(hidden[-1:]).numpy())
    return values
