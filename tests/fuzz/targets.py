"""What is fuzzed: everything outside the model that a stranger's words go through.

A target takes a conversation, the newest utterance last, and fails by any exception that is no answer in words, or
where its work is above the budget.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from peakplan_client import CatalogueMapping, translate
from peakplan_client import Plan as ClientPlan
from peakplan_client.shop import MAPPING
from peakplan_client.translating import _REQUESTS as TRANSLATORS
from pydantic import ValidationError

from benchmarks.question_cost import OPERATIONS, longest_text
from service.api.models import MAX_HISTORY, MAX_TEXT_CHARACTERS, PlanRequest
from service.api.request_head import objection_to_head
from service.planner.making.plans import plan_by_rule, plan_from_text
from service.planner.plan import Plan
from service.planner.plan_text import PlanTextError
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary

Conversation = Sequence[str]
# Operations of the interpreter: of whatever is done for a question, the budget that SECURITY.md tells; of translating,
# for all engines together and three texts in each field: a stranger reaches one of them, in a thread.
BUDGETS = {
    **dict.fromkeys(("reading", "completing", "longest", "grammar", "requests"), OPERATIONS),
    "translating": 16 * OPERATIONS,
}
VOCABULARY = shipped_vocabulary()
SHOP = CatalogueMapping.load(MAPPING)
_BYTES = 16 * 1024  # of a head or a body
_PLAN_WORDS = ("find", "ask", "Color", "Type", "Brand", "Not", "All", "Pets", "Any", "catalog")


def _task(conversation: Conversation) -> PlanTask:
    *history, query = (text[:MAX_TEXT_CHARACTERS] for text in conversation)
    return PlanTask(Question.parse(query, history[-MAX_HISTORY:]), VOCABULARY)


def reading(conversation: Conversation) -> None:
    """Read a conversation and plan it by rule."""
    task = _task(conversation)
    plan = plan_by_rule(task.conversation, VOCABULARY)
    Plan.model_validate_json(plan.model_dump_json())


def completing(conversation: Conversation) -> None:
    """Complete what a model might write: the words of the first utterance as plan text, for the others' question."""
    written, *others = conversation
    task = _task(others or [written])
    try:
        plan = plan_from_text(f" {written}", task.conversation, VOCABULARY)
    except PlanTextError:
        return
    Plan.model_validate_json(plan.model_dump_json())


def longest(conversation: Conversation) -> None:
    """Complete the longest text that a model may write about a conversation."""
    task = _task(conversation)
    plan = plan_from_text(longest_text(task.question), task.conversation, VOCABULARY)
    Plan.model_validate_json(plan.model_dump_json())


def grammar(conversation: Conversation) -> None:
    """Write the grammar of a question."""
    assert _task(conversation).grammar.startswith("start: ")


def requests(conversation: Conversation) -> None:
    """Read the head and the body of a request."""
    texts = [text.encode("utf-8", "replace")[:_BYTES] for text in conversation]
    with contextlib.suppress(ValidationError):
        PlanRequest.model_validate_json(texts[-1])
    headers = [(first.lower(), second) for first, second in pairwise(texts)]
    headers.append((b"host", texts[0]))
    refusal = objection_to_head("1.1", texts[-1], headers, _BYTES, _BYTES)
    assert refusal is None or 400 <= refusal[0] < 500


def translating(conversation: Conversation) -> None:
    """Map a plan of these words to every engine."""
    texts = [text[:MAX_TEXT_CHARACTERS] for text in conversation[:3] if text.strip()] or ["x"]
    plan = ClientPlan.model_validate(
        {"queries": texts[:3], "facets": {"type": texts, "color": texts}, "exclude": {"brand": texts, "type": texts}}
    )
    for engine in TRANSLATORS:
        translation = translate(plan, SHOP, engine, texts[-1])  # type: ignore[arg-type]
        assert not any(text in note for note in translation.notes for text in texts if len(text) > 20)


TARGETS: Mapping[str, Callable[[Conversation], None]] = {
    each.__name__: each for each in (reading, completing, longest, grammar, requests, translating)
}
