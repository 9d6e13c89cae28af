"""The tuned model for training: greedy plans together with the hidden states that produced them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.constraint import Constraint, GrammarCompiler, GrammarConstraint
from service.decoding.generation import generate
from service.decoding.heads import MedusaHeads
from service.decoding.medusa import MedusaProposer
from service.decoding.prefill_draft import NO_PREFILL_DRAFT, PrefillDraft, PrefillProposer
from service.decoding.prompt_tags import PromptTagger, PromptTagsProposer
from service.decoding.proposer import NO_PROPOSER, Proposer
from service.decoding.statistics import Generation
from service.decoding.target import LlamaTarget
from service.decoding.tree import MedusaTree
from service.engines.torch.forward import build_forward, kept_dtype
from service.planner.grammar import plan_grammar
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary
from service.settings.choices import MAX_PROMPT_TOKENS, Precision
from service.weights.model_folder import load_model


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
        self.llama = build_forward(loaded, precision, cache_dir)
        self.prefill_head = loaded.prefill_head
        self.prompt_tagger = loaded.prompt_tagger
        self.heads: MedusaHeads | None = loaded.heads.with_products(self.llama.linear) if loaded.heads else None
        self.vocabulary = Vocabulary.load(model_dir)
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

    def probability(self, plan: GreedyPlan, position: int, token: int | None = None) -> float:
        """Return the probability of a token, or of the plan's own, among the legal ones at a position of the plan."""
        wanted, legal = plan.tokens[position] if token is None else token, plan.legal[position]
        if legal is None:
            return float(wanted == plan.tokens[position])
        logits = self.llama.logits(plan.hidden[position, None], torch.from_numpy(legal))[0]
        return float(logits.softmax(-1)[torch.from_numpy(legal == wanted)].sum())

    def prefill_draft(self, question: Question, p_min: float) -> PrefillDraft:
        """Return the prefill head's draft for the prompt. Raises ValueError where there is no such head."""
        if self.prefill_head is None:
            raise ValueError("the model folder has no prefill head")
        head = self.prefill_head.at_least(p_min)
        return head.guess(self.prompt(question), self.llama.embed, self._compiler.continues_word)

    def medusa(
        self,
        question: Question,
        tree: MedusaTree,
        prefill_draft: PrefillDraft = NO_PREFILL_DRAFT,
        tagger: PromptTagger | None = None,
    ) -> Generation:
        """Decode the plan as the service does. Raises ValueError where there are no heads."""
        if self.heads is None:
            raise ValueError("the model folder has no Medusa heads")
        target = LlamaTarget(self.llama, self._cache, self.heads)
        prompt, constraint = self.prompt(question), self.constraint(question)
        later: Proposer = MedusaProposer(target, tree)
        if tagger is not None:
            later = PromptTagsProposer(prompt, tagger, target.prompt_states, later)
        return generate(target, PrefillProposer(prefill_draft, later), prompt, constraint, max_tokens=self._max_tokens)

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
