"""Chooses the forward that runs a loaded model on this machine."""

import logging
from pathlib import Path

import torch

from service.decoding.linear import has_packed_kernels
from service.decoding.llama import Llama
from service.decoding.native.library import NativeUnavailableError, load_kernels
from service.decoding.native_llama import NativeLlama
from service.decoding.target import CausalLM
from service.settings.choices import KernelChoice, Precision
from service.weights.model_folder import LoadedModel, ModelFolderError, load_model
from service.weights.seal import SEAL, Seal, answer_of, digests

_SEALED_PROMPT = " waterproof nike running shoes for women, size 10, under $100\n"

_log = logging.getLogger(__name__)


def kept_dtype(precision: Precision) -> torch.dtype:
    """Return the dtype in which to load weights for a precision: int8 is made from float16."""
    if precision in ("auto", "int8"):
        return torch.float16
    kept: torch.dtype = getattr(torch, precision)
    return kept


def build_forward(
    loaded: LoadedModel, precision: Precision, cache_dir: Path, kernel: KernelChoice = "auto"
) -> CausalLM:
    """Build the model's forward in a precision, with our kernels where available and torch's are not requested.

    Raises ModelFolderError where an int8 precision or a kernel requested by name is not available.
    """
    if precision in ("auto", "int8") and kernel != "torch":
        try:
            native = NativeLlama(loaded.config, loaded.weights, load_kernels(cache_dir, kernel).functions)
        except NativeUnavailableError as error:
            if precision == "int8" or kernel != "auto":
                asked = "PEAKPLAN_DTYPE=int8" if kernel == "auto" else f"PEAKPLAN_KERNEL={kernel}"
                raise ModelFolderError(f"{asked} cannot be had here: {error}") from error
            _log.warning("decoding by torch, far slower than by our kernels: %s", error)
        else:
            _log.info("decoding by our kernels", extra={"kernel": native.kernel, "precision": native.precision})
            return native
    elif kernel not in ("auto", "torch") or precision == "int8":
        raise ModelFolderError(
            f"PEAKPLAN_KERNEL={kernel} and PEAKPLAN_DTYPE={precision} contradict each other: our kernels compute int8, "
            "torch's the other formats"
        )
    if precision == "auto":
        precision = "bfloat16" if has_packed_kernels(torch.bfloat16) else "float32"
    _log.info("decoding by torch", extra={"kernel": "torch", "precision": precision})
    return Llama(loaded.config, loaded.weights, getattr(torch, precision))


def seal_folder(model_dir: Path, cache_dir: Path) -> Seal:
    """Write the seal of a model folder as it is now, and return it. Raises ModelFolderError, BaseWeightsError."""
    loaded = load_model(model_dir, cache_dir, kept_dtype("auto"))
    prompt = loaded.tokenizer.encode(_SEALED_PROMPT, add_special_tokens=False).ids
    answer = answer_of(build_forward(loaded, "auto", cache_dir), prompt)
    seal = Seal(files=digests(model_dir), prompt=prompt, answer=answer)
    (model_dir / SEAL).write_text(seal.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return seal
