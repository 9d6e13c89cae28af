"""The model on PyTorch or our own kernels, inside a replica's process."""

import ctypes
import logging
from dataclasses import replace
from pathlib import Path

import torch

from service.decoding.kv_cache import PrefixCache
from service.decoding.linear import has_packed_kernels
from service.decoding.llama import Interruption, Llama
from service.decoding.native.library import NativeUnavailableError, load_kernels
from service.decoding.native_llama import NativeLlama
from service.decoding.proposer import MOST_DRAFTED_NODES, NO_PROPOSER, Proposer
from service.decoding.target import CausalLM, LlamaTarget, Target
from service.decoding.tree import MedusaTree
from service.engines.protocol import GenerationRequest, RequestRefusedError
from service.engines.text_model import Drafting, TextModel
from service.settings.choices import KernelChoice, Precision, Strategy
from service.settings.engines import EngineConfig
from service.weights.model_folder import LoadedModel, ModelFolderError, load_model
from service.weights.seal import SEAL, Seal, answer_of, check_answer, digests, read_seal

_SEALED_PROMPT = " waterproof nike running shoes for women, size 10, under $100\n"

_log = logging.getLogger(__name__)

_WARM_UP_GRAMMAR = r"start: /( [a-z]{1,6}){1,3}/"
_WARM_UP_WORDS = (4, 16, 48)  # prompt lengths: the first product of each shape selects its kernel, which takes time


def kept_dtype(precision: Precision) -> torch.dtype:
    """Return the dtype in which to load weights for a precision: int8 is made from float16."""
    if precision in ("auto", "int8"):
        return torch.float16
    kept: torch.dtype = getattr(torch, precision)
    return kept


def build_forward(loaded: LoadedModel, precision: Precision, kernel: KernelChoice = "auto") -> CausalLM:
    """Build the model's forward in a precision, with our kernels where available and torch's are not requested.

    Raises ModelFolderError where an int8 precision or a kernel requested by name is not available.
    """
    if precision in ("auto", "int8") and kernel != "torch":
        try:
            native = NativeLlama(loaded.config, loaded.weights, load_kernels(kernel).functions)
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
    answer = answer_of(build_forward(loaded, "auto"), prompt)
    seal = Seal(files=digests(model_dir), prompt=prompt, answer=answer)
    (model_dir / SEAL).write_text(seal.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return seal


class TorchModel(TextModel):
    """A loaded model, a K/V cache for each of its slots, which every generation there reuses, and a prefix cache."""

    def __init__(
        self,
        loaded: LoadedModel,
        forward: CausalLM,
        max_prompt_tokens: int,
        slots: int = 1,
        prefix_cache_bytes: int = 0,
    ) -> None:
        """Combine the loaded weights with their `forward`. Raises ModelFolderError where tree and heads do not fit.

        The slots share one prefix cache; without bytes there is none, nor where it would change a plan's bits.
        """
        self._llama = forward
        self._heads = loaded.heads.with_products(forward.linear) if loaded.heads else None
        positions = max_prompt_tokens + loaded.max_tokens + MOST_DRAFTED_NODES
        longest = loaded.config.longest_sequence
        if positions > longest:
            raise ModelFolderError(
                f"model {loaded.id!r} attends to {longest} positions, and {positions} may be needed: "
                f"lower PEAKPLAN_MAX_PROMPT_TOKENS ({max_prompt_tokens}) or max_tokens in model.json"
            )
        self._caches = [forward.new_cache(positions) for _ in range(slots)]
        if prefix_cache_bytes and not forward.is_row_independent:
            _log.warning("no prefix cache: torch's kernels round a token's keys by what else is read with it")
            prefix_cache_bytes = 0
        self.prefixes = PrefixCache(prefix_cache_bytes) if prefix_cache_bytes else None
        super().__init__(
            loaded.id,
            loaded.tokenizer,
            (loaded.bos_token_id, loaded.eos_token_id),
            (max_prompt_tokens, loaded.max_tokens),
            _drafting(loaded, forward),
            loaded.kind_head,
        )

    @property
    def precision(self) -> str:
        return self._llama.precision

    @property
    def kernel(self) -> str:
        """The kernel that computes it, as /readyz reports it."""
        return f"{self._llama.kernel} {self._llama.precision}"

    @property
    def slots(self) -> int:
        return len(self._caches)

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        return ("autoregressive",) if self._heads is None else ("autoregressive", "medusa")

    def _stop_when(self, interruption: Interruption) -> None:
        self._llama.stop_when(interruption)

    def _parts(self, request: GenerationRequest, prompt: list[int], slot: int) -> tuple[Target, Proposer]:
        if request.strategy == "draft":
            raise RequestRefusedError("this engine has no draft model")
        heads = self._heads if request.strategy == "medusa" else None
        # A trace tells what the whole prompt costs, by strategies side by side.
        prefixes = None if request.trace else self.prefixes
        target = LlamaTarget(self._llama, self._caches[slot], heads, prefixes, request.cache_salt)
        if request.strategy == "autoregressive":
            return target, NO_PROPOSER
        if heads is None:
            raise RequestRefusedError(f"the model {self.id} has no Medusa heads")
        return target, self._medusa(target, request, prompt)


def _drafting(loaded: LoadedModel, forward: CausalLM) -> Drafting:
    """Return what is worth drafting where a row costs what it costs `forward`."""
    num_heads = loaded.heads.num_heads if loaded.heads else 0
    try:
        tree = MedusaTree.from_choices(loaded.tree, num_heads, max(loaded.p_min, forward.row_cost))
    except ValueError as error:
        raise ModelFolderError(f"medusa_tree.json of model {loaded.id!r} does not fit its heads: {error}") from error
    return Drafting(tree, forward.row_cost)


def load(config: EngineConfig) -> TorchModel:
    """Load a model folder and let it generate once, so that a replica that reports ready has been tested.

    Raises ModelFolderError or BaseWeightsError with what to do.
    """
    torch.set_num_threads(1)
    seal = read_seal(config.model_dir)
    loaded = load_model(config.model_dir, config.cache_dir, kept_dtype(config.dtype))
    loaded = loaded if config.kinds else replace(loaded, kind_head=None)
    forward = build_forward(loaded, config.dtype, config.kernel)
    check_answer(forward, seal)
    model = TorchModel(loaded, forward, config.max_prompt_tokens, config.batch_size, config.prefix_cache_bytes)
    del loaded
    _return_free_memory()
    if config.strategy not in model.strategies:
        raise ModelFolderError(
            f"{config.model_dir} has no Medusa heads: set PEAKPLAN_STRATEGY=autoregressive, or train some"
        )
    for words in _WARM_UP_WORDS:
        prompt = " red shoes" * (words // 2)
        model.generate(GenerationRequest(prompt=prompt, grammar=_WARM_UP_GRAMMAR, strategy=config.strategy))
    model.rest()
    if model.prefixes is not None:
        model.prefixes.clear()
    return model


def _return_free_memory() -> None:
    """Return the memory that loading needed, more than the model itself, to the system where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
