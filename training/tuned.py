"""The tuned model as training uses it: greedy plans together with the hidden states that wrote them."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from service.decoding.constraint import GrammarCompiler, GrammarConstraint
from service.decoding.generation import generate_autoregressive
from service.decoding.heads import MedusaHeads
from service.decoding.llama import Llama
from service.engines.model_folder import load_model
from service.planner.grammar import plan_grammar
from service.planner.prompt import render_prompt
from service.planner.question import Question

_MAX_PROMPT_TOKENS = 384


@dataclass(frozen=True, slots=True)
class GreedyPlan:
    """`tokens` [P] of a whole plan, `hidden` [P, H] the post-norm state that predicts each of them."""

    tokens: list[int]
    hidden: Tensor
    forced_tokens: int
    decisions: int


class TunedModel:
    """A model folder on the CPU, in the dtype that it is served in."""

    def __init__(self, model_dir: Path, cache_dir: Path) -> None:
        loaded = load_model(model_dir, cache_dir)
        self.llama = Llama(loaded.config, loaded.weights, torch.bfloat16)
        self.heads: MedusaHeads | None = loaded.heads
        self._tokenizer = loaded.tokenizer
        self._bos = loaded.bos_token_id
        self._max_tokens = loaded.max_tokens
        self._compiler = GrammarCompiler(loaded.tokenizer.to_str(), loaded.eos_token_id)
        self._cache = self.llama.new_cache(_MAX_PROMPT_TOKENS + loaded.max_tokens)

    def constraint(self, question: Question) -> GrammarConstraint:
        """The grammar of a question, at its start."""
        return self._compiler.compile(plan_grammar(question))

    def greedy(self, question: Question) -> GreedyPlan | None:
        """The greedy plan; None where it does not end, or the prompt is too long."""
        prompt = [self._bos, *self._tokenizer.encode(render_prompt(question), add_special_tokens=False).ids]
        if len(prompt) > _MAX_PROMPT_TOKENS:
            return None
        generation = generate_autoregressive(
            self.llama, prompt, self.constraint(question), max_tokens=self._max_tokens, cache=self._cache
        )
        if generation.stop_reason != "finished":
            return None
        tokens = torch.tensor([*prompt, *generation.tokens])
        self._cache.reset()
        hidden = self.llama.forward(tokens, torch.arange(len(tokens)), self._cache)
        statistics = generation.statistics
        kept = hidden[len(prompt) - 1 : -1].clone()
        return GreedyPlan(generation.tokens, kept, statistics.forced_tokens, statistics.decisions)
