"""Helpers of engines that decode themselves: prepare a request's grammar, and build an answer from a generation."""

from collections.abc import Callable, Sequence

from tokenizers import Tokenizer

from service.decoding.constraint import GrammarCompiler, GrammarConstraint, GrammarError
from service.decoding.statistics import Generation
from service.engines.protocol import SURE, GenerationRequest, GenerationResult, RequestRefusedError


def request_constraint(compiler: GrammarCompiler, grammar: str) -> GrammarConstraint:
    """Compile a request's grammar. Raises RequestRefusedError without quoting it, as it holds the shopper's words."""
    try:
        return compiler.compile(grammar)
    except GrammarError:
        raise RequestRefusedError("its grammar does not compile") from None


def trace_texts(request: GenerationRequest, tokenizer: Tokenizer) -> Callable[[Sequence[int]], str] | None:
    """Return the function that writes a trace's tokens, where the request asks for a trace."""
    return tokenizer.decode if request.trace else None


def generation_result(generation: Generation, tokenizer: Tokenizer, seconds: float) -> GenerationResult:
    """Build the answer of an engine that took `seconds`."""
    statistics = generation.statistics
    return GenerationResult(
        text=tokenizer.decode(generation.tokens),
        tokens=generation.tokens,
        stop_reason=generation.stop_reason,
        prompt_tokens=statistics.prompt_tokens,
        cached_tokens=statistics.cached_tokens,
        plan_tokens=statistics.plan_tokens,
        forwards=statistics.forwards,
        decisions=statistics.decisions,
        forced_tokens=statistics.forced_tokens,
        drafts=statistics.drafts,
        draft_tokens=statistics.draft_tokens,
        accepted_by_position=statistics.accepted_by_position,
        seconds=seconds,
        accepted_per_step=statistics.accepted_per_step,
        steps=generation.steps,
        unsure_words=unsure_words(generation, tokenizer),
    )


def unsure_words(generation: Generation, tokenizer: Tokenizer) -> list[tuple[int, float]]:
    """Return (index among the text's words, probability) of each token that the model was unsure of, by its word."""
    return [
        (len(tokenizer.decode(generation.tokens[: at + 1]).split()) - 1, round(probability, 3))
        for at, probability in enumerate(generation.probabilities)
        if probability < SURE
    ]
