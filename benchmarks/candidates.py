"""`python -m benchmarks.candidates`: write how often a device's best tokens include a legal one.

The figures go to docs/figures/candidates.json. A compiled Medusa model returns ten tokens for each row, and a request
is refused where none of them is legal (docs/decisions/0012). Measured with the torch engine's forward on this machine:
ranks, not milliseconds.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.questions import dev_questions, has_dev_data, own_questions
from service.decoding.constraint import Constraint, GrammarCompiler, accept_forced
from service.decoding.target import CausalLM
from service.engines.torch.forward import build_forward, kept_dtype
from service.planner.grammar import plan_grammar
from service.planner.prompt import render_prompt
from service.planner.vocabulary import Vocabulary
from service.settings import Settings
from service.weights.model_folder import load_model

OUTPUT = Path(__file__).parents[1] / "docs" / "figures" / "candidates.json"
QUESTIONS = 100
COUNTS = (1, 10, 64, 256)


def ranks(model: CausalLM, prompt: list[int], constraint: Constraint, max_tokens: int) -> list[int]:
    """Return, for each decision of a greedy plan, how many tokens score above the best legal one."""
    cache, unread, written, found = model.new_cache(len(prompt) + max_tokens), list(prompt), 0, list[int]()
    while written < max_tokens:
        forced = accept_forced(constraint, max_tokens - written)
        written += len(forced)
        unread += forced
        if constraint.finished() or written >= max_tokens:
            break
        hidden = model.forward(torch.tensor(unread), torch.arange(len(unread)) + cache.length, cache)
        cache.keep(range(len(unread)))
        logits = model.logits(hidden[-1:])[0].numpy()
        legal = constraint.legal()
        best = int(legal[logits[legal].argmax()])
        found.append(int((logits > logits[best]).sum()))
        constraint.accept([best])
        unread, written = [best], written + 1
    return found


def figures(model_dir: Path, cache_dir: Path, count: int) -> dict[str, Any]:
    """Return the content of docs/figures/candidates.json."""
    torch.set_num_threads(1)
    vocabulary = Vocabulary.load(model_dir)
    loaded = load_model(model_dir, cache_dir, kept_dtype("auto"))
    model = build_forward(loaded, "auto", cache_dir)
    compiler = GrammarCompiler(loaded.tokenizer.to_str(), loaded.eos_token_id)
    plans = []
    for question in dev_questions(count) if has_dev_data() else own_questions(count):
        prompt = loaded.tokenizer.encode(render_prompt(question), add_special_tokens=False).ids
        constraint = compiler.compile(plan_grammar(question, vocabulary))
        plans.append(ranks(model, [loaded.bos_token_id, *prompt], constraint, loaded.max_tokens))
    decisions = [rank for plan in plans for rank in plan]
    return {
        "what": "share whose best legal token is among the so many best tokens of the vocabulary, without a grammar",
        "model": loaded.id,
        "precision": model.precision,
        "questions": len(plans),
        "decisions": len(decisions),
        "of_decisions": {str(most): _share(rank < most for rank in decisions) for most in COUNTS},
        "of_whole_plans": {str(most): _share(all(rank < most for rank in plan) for plan in plans) for most in COUNTS},
    }


def _share(held: Iterable[bool]) -> float:
    each = list(held)
    return round(sum(each) / len(each), 4)


def main(words: Sequence[str] | None = None) -> int:
    """Write the figures and return the exit code."""
    settings = Settings()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.candidates", description=__doc__)
    parser.add_argument("--model", type=Path, default=settings.model_dir)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    arguments = parser.parse_args(words)
    found = figures(arguments.model, settings.cache_dir, arguments.questions)
    OUTPUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
