"""Our own model, measured like the peers: the same prompts, prefix and rows, in this process on one thread."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from rehearsal.bench.machine import kernel_in_use
from rehearsal.bench.peers.comparison import Answered, Asked
from service.engines.protocol import GenerationRequest
from service.engines.torch.engine import TorchModel
from service.engines.torch.forward import build_forward, kept_dtype
from service.planner.grammar import plan_grammar
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary
from service.settings import Settings
from service.settings.choices import Strategy
from service.weights.model_folder import load_model

PREFIX = 24  # cached positions, as in worker.py
_STRATEGIES: dict[str, Strategy] = {"Medusa": "medusa", "greedy with fast-forward": "autoregressive"}


Reference = tuple[list[int], NDArray[np.float32]]  # tokens, and the logits [V] after them


class Ours:
    """The engine of a replica."""

    def __init__(self, model_dir: Path, settings: Settings) -> None:
        torch.set_num_threads(1)
        loaded = load_model(model_dir, settings.cache_dir, kept_dtype(settings.dtype))
        self._loaded = loaded
        self._vocabulary = Vocabulary.load(model_dir)
        self.forward = build_forward(loaded, settings.dtype, settings.cache_dir, settings.kernel)
        self._model = TorchModel(loaded, self.forward, settings.max_prompt_tokens)
        self._cache = self.forward.new_cache(settings.max_prompt_tokens)
        self._questions: dict[tuple[int, ...], Question] = {}
        self.plans = [name for name, strategy in _STRATEGIES.items() if strategy in self._model.strategies]

    @property
    def kernel(self) -> str:
        """The kernel, as figures name it."""
        return kernel_in_use(self._model)

    def ask(self, question: Question) -> Asked:
        """Return a question in the form that every engine gets."""
        encoded = self._loaded.tokenizer.encode(render_prompt(question), add_special_tokens=False).ids
        prompt = [self._loaded.bos_token_id, *encoded]
        self._questions[tuple(prompt)] = question
        return Asked(prompt, plan_grammar(question, self._vocabulary), self._loaded.max_tokens)

    def forwards(self, rows: int, times: int) -> list[float]:
        """Measure the layers and the final norm, after the prefix."""
        taken = []
        for _ in range(times):
            self._cache.reset()
            self.forward.forward(torch.arange(PREFIX), torch.arange(PREFIX), self._cache)
            self._cache.keep(range(PREFIX))
            started = time.perf_counter()
            self.forward.forward(torch.arange(rows), torch.arange(rows) + PREFIX, self._cache)
            taken.append((time.perf_counter() - started) * 1000)
        return sorted(taken)

    def plan(self, how: str, asked: Asked) -> Answered:
        """Decode as a replica does, tokenising the prompt and compiling the grammar included."""
        prompt = render_prompt(self._questions[tuple(asked.prompt)])
        started = time.perf_counter()
        result = self._model.generate(
            GenerationRequest(prompt=prompt, grammar=asked.grammar, strategy=_STRATEGIES[how])
        )
        return Answered((time.perf_counter() - started) * 1000, tuple(result.tokens), result.forwards)

    def references(self, asked: Sequence[Asked]) -> list[Reference]:
        """Return our logits at every position of these questions' plans, with the tokens before it."""
        found = []
        for one in asked:
            plan = self.plan("greedy with fast-forward", one).tokens
            for length in range(len(plan)):
                before = [*one.prompt, *plan[:length]]
                found.append((before, self.logits(before)))
        return found

    def logits(self, prompt: list[int]) -> NDArray[np.float32]:
        """Return the logits [V] after the prompt."""
        self._cache.reset()
        hidden = self.forward.forward(torch.tensor(prompt), torch.arange(len(prompt)), self._cache)
        return cast(NDArray[np.float32], self.forward.logits(hidden[-1:])[0].float().numpy())
