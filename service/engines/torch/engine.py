"""The model on PyTorch, inside a replica's process: text in, text out, one request at a time.

It knows tokenizers, grammars and the decoding loop; the planner interprets the text.
"""

import ctypes
import time
from collections.abc import Callable
from functools import partial

import torch

from service.decoding.constraint import Constraint, GrammarCompiler
from service.decoding.draft_model import DraftModel
from service.decoding.generation import generate
from service.decoding.interruption import NEVER, Interruption
from service.decoding.medusa import MedusaProposer
from service.decoding.prefill_draft import PrefillDraft, PrefillProposer
from service.decoding.proposer import MOST_DRAFTED_NODES, NO_PROPOSER, Proposer
from service.decoding.statistics import Generation
from service.decoding.target import CausalLM, LlamaTarget, Target
from service.decoding.tree import MedusaTree
from service.engines.config import EngineConfig
from service.engines.protocol import (
    GenerationRequest,
    GenerationResult,
    PromptTooLongError,
    RequestRefusedError,
    Strategy,
)
from service.engines.results import generation_result, request_constraint, trace_texts
from service.engines.torch.drafts import early_exit_model, smaller_model
from service.engines.torch.forward import build_forward, kept_dtype
from service.engines.torch.side_thread import SideThread
from service.weights.model_folder import LoadedModel, ModelFolderError, load_model
from service.weights.seal import check_answer, read_seal

_WARM_UP_GRAMMAR = r"start: /( [a-z]{1,6}){1,3}/"
_MISSING: dict[Strategy, str] = {"medusa": "no Medusa heads", "draft": "no early exit (early_exit.json)"}
_WARM_UP_WORDS = (4, 16, 48)  # prompt lengths: the first product of each shape selects its kernel, which takes time


class TorchModel:
    """A loaded model with its tokenizer, and one K/V cache that every generation reuses."""

    def __init__(
        self, loaded: LoadedModel, forward: CausalLM, max_prompt_tokens: int, draft: DraftModel | None = None
    ) -> None:
        """Combine the loaded weights with their `forward` and the `draft` model for it.

        Raises ModelFolderError when tree and heads do not fit each other.
        """
        self.id = loaded.id
        self._tokenizer = loaded.tokenizer
        self._bos_token_id = loaded.bos_token_id
        self._max_tokens = loaded.max_tokens
        self._max_prompt_tokens = max_prompt_tokens
        self._compiler = GrammarCompiler(loaded.tokenizer.to_str(), loaded.eos_token_id)
        self._side = SideThread()
        self._socket = NEVER.socket
        self._llama = forward
        self._heads = loaded.heads.with_products(forward.linear) if loaded.heads else None
        self._prefill_draft = loaded.prefill_draft
        head = loaded.prefill_head
        self._prefill_head = head.at_least(max(head.p_min, forward.row_cost)) if head else None
        self._draft = draft
        try:
            num_heads = loaded.heads.num_heads if loaded.heads else 0
            self._tree = MedusaTree.from_choices(loaded.tree, num_heads, max(loaded.p_min, forward.row_cost))
        except ValueError as error:
            raise ModelFolderError(
                f"medusa_tree.json of model {loaded.id!r} does not fit its heads: {error}"
            ) from error
        positions = max_prompt_tokens + loaded.max_tokens + MOST_DRAFTED_NODES
        if positions > loaded.longest_sequence:
            raise ModelFolderError(
                f"model {loaded.id!r} attends to {loaded.longest_sequence} positions, and {positions} may be needed: "
                f"lower PEAKPLAN_MAX_PROMPT_TOKENS ({max_prompt_tokens}) or max_tokens in model.json"
            )
        self._cache = self._llama.new_cache(positions)

    @property
    def precision(self) -> str:
        """The number format of the model's products."""
        return self._llama.precision

    @property
    def kernel(self) -> str:
        """The kernel that computes it, as /readyz reports it."""
        return f"{self._llama.kernel} {self._llama.precision}"

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """The decoding strategies that this model supports."""
        possible: dict[Strategy, bool] = {
            "autoregressive": True,
            "medusa": self._heads is not None,
            "draft": self._draft is not None,
        }
        return tuple(strategy for strategy, has_parts in possible.items() if has_parts)

    def watch(self, socket: int) -> None:
        """See `WorkerModel.watch`."""
        self._socket = socket

    def generate(self, request: GenerationRequest, cancelled: Callable[[], bool] = lambda: False) -> GenerationResult:
        """Continue the prompt under the grammar until it is finished, the deadline passes or `cancelled` returns true.

        The latter two are noticed between the layers of a forward. Raises RequestRefusedError for a prompt that is too
        long, a grammar that does not compile, or heads or a draft that the model does not have.
        """
        started = time.monotonic()
        prompt = [self._bos_token_id, *self._tokenizer.encode(request.prompt, add_special_tokens=False).ids]
        if len(prompt) > self._max_prompt_tokens:
            raise PromptTooLongError.at(len(prompt), self._max_prompt_tokens)
        stop = Interruption(cancelled, request.deadline, self._socket)
        self._llama.stop_when(stop)
        try:
            generation = self._generate(request, prompt, stop)
        finally:
            self._llama.stop_when(NEVER)
        return generation_result(generation, self._tokenizer, time.monotonic() - started)

    def _generate(self, request: GenerationRequest, prompt: list[int], stop: Callable[[], bool]) -> Generation:
        constraint = self._side.submit(partial(self._begin_grammar, request.grammar))
        target, proposer = self._begin(request.strategy, prompt)
        return generate(
            target,
            proposer,
            prompt,
            constraint,
            max_tokens=min(request.max_tokens or self._max_tokens, self._max_tokens),
            fast_forward=request.fast_forward or request.strategy != "autoregressive",
            trace=trace_texts(request, self._tokenizer),
            cancelled=stop,
        )

    def _begin(self, strategy: Strategy, prompt: list[int]) -> tuple[Target, Proposer]:
        """Return target and proposer. Raises RequestRefusedError for a strategy that this model lacks the parts for."""
        if strategy == "medusa":
            if self._heads is None:
                raise RequestRefusedError(f"the model {self.id} has no Medusa heads")
            target = LlamaTarget(self._llama, self._cache, self._heads)
            return target, PrefillProposer(self._draft_prefill(prompt), MedusaProposer(target, self._tree))
        if strategy == "draft":
            if self._draft is None:
                raise RequestRefusedError(f"the model {self.id} has no draft")
            return self._draft.begin(self._cache)
        return LlamaTarget(self._llama, self._cache), NO_PROPOSER

    def _draft_prefill(self, prompt: list[int]) -> PrefillDraft:
        if self._prefill_head is None:
            return self._prefill_draft
        return self._prefill_head.guess(prompt, self._llama.embed, self._compiler.continues_word)

    def _begin_grammar(self, grammar: str) -> Constraint:
        constraint = request_constraint(self._compiler, grammar)
        constraint.legal()  # the first mask, the largest of all, is cached
        return constraint

    def rest(self) -> None:
        """Leave no other thread in the process until the next generation, so that it may be forked."""
        self._side.rest()


def load(config: EngineConfig) -> TorchModel:
    """Load a model folder and let it generate once, so that a replica that reports ready has been tested.

    Raises ModelFolderError or BaseWeightsError with what to do.
    """
    torch.set_num_threads(config.threads)
    seal = read_seal(config.model_dir)
    loaded = load_model(config.model_dir, config.cache_dir, kept_dtype(config.dtype))
    forward = build_forward(loaded, config.dtype, config.cache_dir, config.kernel)
    check_answer(forward, seal)
    draft = None
    if config.strategy == "draft" and config.draft_model_dir is not None:
        draft = smaller_model(loaded, forward, config)
    elif config.strategy == "draft":
        draft = early_exit_model(config.model_dir, forward)
    model = TorchModel(loaded, forward, config.max_prompt_tokens, draft)
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
