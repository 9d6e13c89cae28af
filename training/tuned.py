"""The tuned model for training: greedy plans together with the hidden states that produced them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from service.decoding.constraint import Constraint, GrammarCompiler, GrammarConstraint
from service.decoding.generation import generate
from service.decoding.linear import has_packed_kernels
from service.decoding.medusa import MedusaHeads, MedusaProposer
from service.decoding.proposer import NO_PROPOSER, PredictionProposer
from service.decoding.statistics import Generation
from service.decoding.target import LlamaTarget
from service.decoding.tree import MedusaTree
from service.engines.text_model import tokens_of_words
from service.engines.torch_engine import build_forward, kept_dtype
from service.engines.worker.process import die_with_parent
from service.planner.grammar import plan_grammar
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.vocabulary import Vocabulary
from service.settings.choices import MAX_PROMPT_TOKENS, Precision
from service.weights.model_folder import load_model

_spawn: Callable[..., object] = spawn


def precision(device: torch.device) -> torch.dtype:
    """Return what training multiplies in: a processor with AVX2 alone takes 35 times as long for bfloat16."""
    return torch.bfloat16 if device.type != "cpu" or has_packed_kernels(torch.bfloat16) else torch.float32


def run_processes(work: Callable[..., None], count: int, *arguments: Any) -> None:
    """Call `work(rank, count, *arguments)` in `count` processes and wait; the first exception is raised here."""
    _spawn(_run_one, (work, count, arguments), nprocs=count)


def _run_one(rank: int, work: Callable[..., None], count: int, arguments: tuple[Any, ...]) -> None:
    die_with_parent(os.getppid())
    torch.set_num_threads(1)
    work(rank, count, *arguments)


@dataclass(frozen=True, slots=True)
class GreedyPlan:
    """A plan's `prompt` and `tokens` [P], and the post-norm state that predicts each token, `hidden` [P, H].

    `prompt_states` [T, H] are those of the prompt's own positions, the last of which predicts the first token. `legal`
    [P]: the ids among which each token was chosen; None where the grammar forced it.
    """

    prompt: list[int]
    tokens: list[int]
    hidden: Tensor
    legal: list[NDArray[np.int64] | None]
    prompt_states: Tensor


class TunedModel:
    """A model folder on the CPU, in the precision that it is served in."""

    def __init__(self, model_dir: Path, cache_dir: Path, precision: Precision = "auto") -> None:
        loaded = load_model(model_dir, cache_dir, kept_dtype(precision))
        self.llama = build_forward(loaded, precision)
        self.heads: MedusaHeads | None = loaded.heads.with_products(self.llama.linear) if loaded.heads else None
        self.vocabulary = Vocabulary.load(model_dir)
        self.reader = Reader.of_model(model_dir)
        self._tokenizer = loaded.tokenizer
        self._bos = loaded.bos_token_id
        self._max_tokens = loaded.max_tokens
        self._compiler = GrammarCompiler(loaded.tokenizer.to_str(), loaded.eos_token_id)
        self._cache = self.llama.new_cache(MAX_PROMPT_TOKENS + loaded.max_tokens)

    def constraint(self, question: Question) -> GrammarConstraint:
        """Return the grammar of a question, at its start."""
        return self._compiler.compile(plan_grammar(question, self.vocabulary))

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        text: str = self._tokenizer.decode(list(tokens))
        return text

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def prompt(self, question: Question) -> list[int]:
        """Return the prompt's tokens."""
        return self.tokens_of(render_prompt(question))

    def tokens_of(self, prompt: str) -> list[int]:
        """Return the tokens of a prompt's text, with the one that begins a sequence."""
        return [self._bos, *self.tokens(prompt)]

    def medusa(self, question: Question, tree: MedusaTree) -> Generation:
        """Decode the plan as the service does. Raises ValueError where there are no heads."""
        if self.heads is None:
            raise ValueError("the model folder has no Medusa heads")
        target = LlamaTarget(self.llama, self._cache, self.heads)
        words = () if self.reader is None else self.reader.read(question, self.vocabulary).words
        foretold = tokens_of_words(words, self._tokenizer)
        proposer = PredictionProposer(foretold, MedusaProposer(target, tree), self.llama.row_cost)
        return generate(target, proposer, self.prompt(question), self.constraint(question), max_tokens=self._max_tokens)

    def greedy(self, question: Question) -> GreedyPlan | None:
        """Return the greedy plan; None where it does not end, or the prompt is too long."""
        prompt = self.prompt(question)
        if len(prompt) > MAX_PROMPT_TOKENS:
            return None
        target, constraint = LlamaTarget(self.llama, self._cache), self.constraint(question)
        generation = generate(target, NO_PROPOSER, prompt, constraint, max_tokens=self._max_tokens)
        if generation.stop_reason != "finished":
            return None
        tokens = torch.tensor([*prompt, *generation.tokens])
        self._cache.reset()
        states = self.llama.forward(tokens, torch.arange(len(tokens)), self._cache)
        legal = choices_made(self.constraint(question), generation.tokens)
        predicting, of_prompt = states[len(prompt) - 1 : -1].clone(), states[: len(prompt)].clone()
        return GreedyPlan(prompt, generation.tokens, predicting, legal, of_prompt)


def choices_made(constraint: Constraint, tokens: Sequence[int]) -> list[NDArray[np.int64] | None]:
    """Return the legal ids before each token of a plan, from the start of its grammar; None where it was forced."""
    choices: list[NDArray[np.int64] | None] = []
    pending: list[int] = []
    for token in tokens:
        pending = pending or list(constraint.forced())
        choices.append(None if pending else constraint.legal())
        pending = pending[1:]
        constraint.accept([token])
    return choices
