"""The model on PyTorch, inside a replica's process."""

import ctypes
from dataclasses import replace

import torch

from service.decoding.draft_model import DraftModel
from service.decoding.interruption import Interruption
from service.decoding.proposer import MOST_DRAFTED_NODES, NO_PROPOSER, Proposer
from service.decoding.target import CausalLM, LlamaTarget, Target
from service.decoding.tree import MedusaTree
from service.engines.protocol import GenerationRequest, RequestRefusedError
from service.engines.text_model import Drafting, TextModel
from service.engines.torch.drafts import own_draft, smaller_model
from service.engines.torch.forward import build_forward, kept_dtype
from service.settings.choices import Strategy
from service.settings.engines import EngineConfig
from service.weights.model_folder import LoadedModel, ModelFolderError, load_model
from service.weights.seal import check_answer, read_seal

_WARM_UP_GRAMMAR = r"start: /( [a-z]{1,6}){1,3}/"
_MISSING: dict[Strategy, str] = {
    "medusa": "no Medusa heads",
    "draft": "no early exit (early_exit.json) and no EAGLE-3 head",
}
_WARM_UP_WORDS = (4, 16, 48)  # prompt lengths: the first product of each shape selects its kernel, which takes time


class TorchModel(TextModel):
    """A loaded model, and a K/V cache for each of its slots, which every generation there reuses."""

    def __init__(
        self,
        loaded: LoadedModel,
        forward: CausalLM,
        max_prompt_tokens: int,
        draft: DraftModel | None = None,
        slots: int = 1,
    ) -> None:
        """Combine the loaded weights with their `forward` and the `draft` model for it.

        Raises ModelFolderError when tree and heads do not fit each other, and for a draft model with several slots.
        """
        if draft is not None and slots > 1:
            raise ModelFolderError(f"a draft model reads one request at a time, and {slots} slots are wanted")
        self._llama = forward
        self._heads = loaded.heads.with_products(forward.linear) if loaded.heads else None
        self._draft = draft
        positions = max_prompt_tokens + loaded.max_tokens + MOST_DRAFTED_NODES
        longest = loaded.config.longest_sequence
        if positions > longest:
            raise ModelFolderError(
                f"model {loaded.id!r} attends to {longest} positions, and {positions} may be needed: "
                f"lower PEAKPLAN_MAX_PROMPT_TOKENS ({max_prompt_tokens}) or max_tokens in model.json"
            )
        self._caches = [forward.new_cache(positions) for _ in range(slots)]
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
        """The number format of the model's products."""
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
        """The decoding strategies that this model supports."""
        possible: dict[Strategy, bool] = {
            "autoregressive": True,
            "medusa": self._heads is not None,
            "draft": self._draft is not None,
        }
        return tuple(strategy for strategy, has_parts in possible.items() if has_parts)

    def _stop_when(self, interruption: Interruption) -> None:
        self._llama.stop_when(interruption)

    def _parts(self, strategy: Strategy, prompt: list[int], slot: int) -> tuple[Target, Proposer]:
        if strategy == "medusa":
            if self._heads is None:
                raise RequestRefusedError(f"the model {self.id} has no Medusa heads")
            target = LlamaTarget(self._llama, self._caches[slot], self._heads)
            return target, self._medusa(target, prompt)
        if strategy == "draft":
            if self._draft is None:
                raise RequestRefusedError(f"the model {self.id} has no draft")
            return self._draft.begin(self._caches[slot])
        return LlamaTarget(self._llama, self._caches[slot]), NO_PROPOSER


def _drafting(loaded: LoadedModel, forward: CausalLM) -> Drafting:
    """Return what is worth drafting where a row costs what it costs `forward`."""
    head, num_heads = loaded.prefill_head, loaded.heads.num_heads if loaded.heads else 0
    try:
        tree = MedusaTree.from_choices(loaded.tree, num_heads, max(loaded.p_min, forward.row_cost))
    except ValueError as error:
        raise ModelFolderError(f"medusa_tree.json of model {loaded.id!r} does not fit its heads: {error}") from error
    likely = head.at_least(max(head.p_min, forward.row_cost)) if head else None
    return Drafting(
        tree,
        lambda tokens: forward.embed(tokens.to(forward.device)).cpu(),
        likely,
        loaded.prefill_draft,
        loaded.prompt_tagger,
    )


def load(config: EngineConfig) -> TorchModel:
    """Load a model folder and let it generate once, so that a replica that reports ready has been tested.

    Raises ModelFolderError or BaseWeightsError with what to do.
    """
    torch.set_num_threads(config.threads)
    seal = read_seal(config.model_dir)
    loaded = load_model(config.model_dir, config.cache_dir, kept_dtype(config.dtype))
    loaded = loaded if config.kinds else replace(loaded, kind_head=None)
    forward = build_forward(loaded, config.dtype, config.cache_dir, config.kernel)
    check_answer(forward, seal)
    draft = None
    if config.strategy == "draft" and config.draft_model_dir is not None:
        draft = smaller_model(loaded, forward, config)
    elif config.strategy == "draft":
        draft = own_draft(loaded, forward, config)
    model = TorchModel(loaded, forward, config.max_prompt_tokens, draft, config.batch_size)
    del loaded
    _return_free_memory()
    if config.strategy not in model.strategies:
        raise ModelFolderError(
            f"{config.model_dir} has {_MISSING[config.strategy]}: set PEAKPLAN_STRATEGY=autoregressive, or train one"
        )
    for words in _WARM_UP_WORDS:
        prompt = " red shoes" * (words // 2)
        model.generate(GenerationRequest(prompt=prompt, grammar=_WARM_UP_GRAMMAR, strategy=config.strategy))
    model.rest()
    return model


def _return_free_memory() -> None:
    """Return the memory that loading needed, more than the model itself, to the system where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
