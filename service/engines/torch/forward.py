"""Which forward runs a loaded model on this machine."""

import logging
from pathlib import Path

import torch

from service.decoding.linear import has_packed_kernels
from service.decoding.llama import Llama
from service.decoding.native.library import NativeUnavailableError, load_library
from service.decoding.native_llama import NativeLlama
from service.decoding.target import CausalLM
from service.engines.config import Precision
from service.weights.model_folder import LoadedModel, ModelFolderError

_log = logging.getLogger(__name__)


def kept_dtype(precision: Precision) -> torch.dtype:
    """The dtype in which to load weights for a precision: float16 holds what int8 is made of."""
    if precision in ("auto", "int8"):
        return torch.float16
    kept: torch.dtype = getattr(torch, precision)
    return kept


def build_forward(loaded: LoadedModel, precision: Precision, cache_dir: Path) -> CausalLM:
    """The model's forward in a precision. Raises ModelFolderError where int8 is asked for and cannot be had."""
    if precision in ("auto", "int8"):
        try:
            return NativeLlama(loaded.config, loaded.weights, load_library(cache_dir))
        except NativeUnavailableError as error:
            if precision == "int8":
                raise ModelFolderError(f"PEAKPLAN_DTYPE=int8 cannot be had here: {error}") from error
            precision = "bfloat16" if has_packed_kernels(torch.bfloat16) else "float32"
            _log.warning("decoding in %s, far slower than in int8: %s", precision, error)
    return Llama(loaded.config, loaded.weights, getattr(torch, precision))
