"""What engines that decode themselves share: a request's grammar made ready, a finished generation made its answer."""

from tokenizers import Tokenizer

from service.decoding.constraint import GrammarCompiler, GrammarConstraint, GrammarError
from service.decoding.statistics import Generation
from service.decoding.trace import NodeTrace, StepTrace
from service.engines.protocol import GenerationResult, RequestRefusedError, TraceNode, TraceStep


def request_constraint(compiler: GrammarCompiler, grammar: str) -> GrammarConstraint:
    """A request's grammar. Raises RequestRefusedError without its words: they are the shopper's."""
    try:
        return compiler.compile(grammar)
    except GrammarError:
        raise RequestRefusedError("its grammar does not compile") from None


def generation_result(generation: Generation, tokenizer: Tokenizer, seconds: float, *, trace: bool) -> GenerationResult:
    """The answer of an engine that took `seconds`, with its steps where a `trace` was asked for."""
    statistics = generation.statistics
    return GenerationResult(
        text=tokenizer.decode(generation.tokens),
        tokens=generation.tokens,
        stop_reason=generation.stop_reason,
        prompt_tokens=statistics.prompt_tokens,
        plan_tokens=statistics.plan_tokens,
        forwards=statistics.forwards,
        decisions=statistics.decisions,
        forced_tokens=statistics.forced_tokens,
        draft_forwards=statistics.draft_forwards,
        seconds=seconds,
        accepted_per_step=statistics.accepted_per_step,
        steps=[_trace_step(step, tokenizer) for step in generation.steps] if trace else [],
    )


def _trace_step(step: StepTrace, tokenizer: Tokenizer) -> TraceStep:
    return TraceStep(
        nodes=[_trace_node(node, tokenizer) for node in step.nodes],
        emitted=[tokenizer.decode([token]) for token in step.emitted],
        milliseconds=round(step.milliseconds, 3),
        draft_milliseconds=round(step.draft_milliseconds, 3),
        forward_milliseconds=round(step.forward_milliseconds, 3),
    )


def _trace_node(node: NodeTrace, tokenizer: Tokenizer) -> TraceNode:
    text = tokenizer.decode([node.token])
    return TraceNode(token_text=text, parent=node.parent, depth=node.depth, status=node.status)
