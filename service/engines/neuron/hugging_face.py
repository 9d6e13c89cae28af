"""Hugging Face's `generate` for scripts written against NxDI's Medusa, over our own loop.

    model = NXDI.load(compiled)
    weights = load_file(compiled / HOST_WEIGHTS)
    generator = MedusaGenerator(model, LmHead(weights.get(LM_HEAD, weights[EMBEDDING])), load_heads(model_dir))
    ids = generator.generate(input_ids, assistant_model=model, max_new_tokens=128)

It replaces `HuggingFaceGenerationAdapter(model)`, over what `peakplan compile` made: NxDI's own give no hidden states.
Greedy, one sequence, as Medusa is in NxDI; whatever would have to be ignored is refused instead.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.generation import generate
from service.decoding.linear import LmHead
from service.decoding.medusa import MedusaHeads, MedusaProposer
from service.decoding.tree import MedusaTree
from service.engines.neuron.configuration import arguments_of, forward_shape
from service.engines.neuron.forward import CompiledTarget

_WITHOUT_EFFECT = {
    "pad_token_id",
    "use_cache",
    "tokenizer",
    "assistant_tokenizer",
    "num_beams",
    "return_dict_in_generate",
}


class Unconstrained:
    """A `Constraint` that allows every token until an end-of-sequence token."""

    def __init__(self, vocab_size: int, end_tokens: Sequence[int]) -> None:
        self._all = np.arange(vocab_size, dtype=np.int64)
        self._none = self._all[:0]
        self._ends = frozenset(end_tokens)
        self._tokens: list[int] = []

    def legal(self) -> NDArray[np.int64]:
        return self._none if self.finished() else self._all

    def forced(self, *, look: bool = True) -> list[int]:
        del look
        return []

    def accept(self, tokens: Sequence[int]) -> None:
        self._tokens += tokens

    def rollback(self, count: int) -> None:
        del self._tokens[len(self._tokens) - count :]

    def finished(self) -> bool:
        return bool(self._tokens) and self._tokens[-1] in self._ends

    def allows(self, token: int) -> bool:
        return not self.finished() and token < len(self._all)


class MedusaGenerator:
    """Hugging Face's `generate` over a loaded NxDI Medusa model."""

    def __init__(self, model: Any, lm_head: LmHead, heads: MedusaHeads) -> None:
        """Take a loaded model and the host's part of it.

        Raises ConfigurationError for a NeuronConfig that Medusa would silently get wrong.
        """
        arguments = arguments_of(model.neuron_config)
        self._model = model
        self._target = CompiledTarget(model, forward_shape(arguments), lm_head, heads)
        tree = MedusaTree.from_choices(arguments["medusa_tree"], heads.num_heads)
        self._proposer = MedusaProposer(self._target, tree)

    def generate(
        self,
        input_ids: Tensor,
        *,
        assistant_model: object = None,
        attention_mask: Tensor | None = None,
        generation_config: object = None,
        max_new_tokens: int | None = None,
        max_length: int | None = None,
        eos_token_id: int | Sequence[int] | None = None,
        do_sample: bool | None = None,
        top_k: int | None = None,
        **others: Any,
    ) -> Tensor:
        """Return `input_ids` [1, n] with their continuation, [1, n + new], an end-of-sequence token included.

        `assistant_model` is the model itself, as in NxDI. Lengths beyond what was compiled are cut to it. Raises
        ValueError for other batch sizes, sampling, other assistants and options that greedy decoding does not know.
        """
        self._refuse(input_ids, assistant_model, _sampled(generation_config, do_sample, top_k), others)
        prompt = _unpadded(input_ids, attention_mask)
        if eos_token_id is None:
            eos_token_id = getattr(generation_config, "eos_token_id", None)
        if eos_token_id is None:
            eos_token_id = getattr(self._model.config, "eos_token_id", None)
        ends = [eos_token_id] if isinstance(eos_token_id, int) else list(eos_token_id or ())
        wanted = max_new_tokens or (max_length - len(prompt) if max_length else None)
        wanted = (
            wanted or getattr(generation_config, "max_new_tokens", None) or self._model.neuron_config.max_new_tokens
        )
        shape = self._target.shape
        room = shape.seq_len - shape.needed(len(prompt), 0)
        constraint = Unconstrained(self._model.config.vocab_size, ends)
        most = max(1, min(wanted or room, room))
        generation = generate(self._target, self._proposer, prompt, constraint, max_tokens=most)
        return torch.cat([input_ids, torch.tensor([generation.tokens], dtype=input_ids.dtype)], dim=1)

    def _refuse(self, input_ids: Tensor, assistant_model: object, sampled: bool, others: dict[str, Any]) -> None:
        if input_ids.ndim != 2 or input_ids.shape[0] != 1:
            raise ValueError(f"input_ids is {list(input_ids.shape)}, and Medusa decodes one sequence: give it [1, n]")
        if assistant_model is not None and assistant_model not in (self._model, self):
            raise ValueError("assistant_model must be the Medusa model itself: its heads draft")
        if sampled:
            raise ValueError("Medusa in NxDI is greedy: leave do_sample out, or set top_k=1")
        unknown = sorted(set(others) - _WITHOUT_EFFECT)
        if unknown or others.get("num_beams", 1) != 1 or others.get("return_dict_in_generate"):
            refused = unknown or [name for name in others if others[name] not in (None, False, 1)]
            raise ValueError(f"greedy Medusa decoding has no {', '.join(refused)}")


def _sampled(generation_config: object, do_sample: bool | None, top_k: int | None) -> bool:
    if do_sample is None:
        do_sample = bool(getattr(generation_config, "do_sample", False))
    return do_sample and (getattr(generation_config, "top_k", None) if top_k is None else top_k) != 1


def _unpadded(input_ids: Tensor, attention_mask: Tensor | None) -> list[int]:
    """Return the prompt's tokens without those that the attention mask marks as padding."""
    tokens: list[int] = (input_ids[0] if attention_mask is None else input_ids[0][attention_mask[0].bool()]).tolist()
    return tokens
