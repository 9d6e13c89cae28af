"""The plan of a conversation's newest question by rule: what a shopper gets while no model is free."""

from peakplan_client.operators import without_operators

from service.planner.fallback.making.completion import complete_plan
from service.planner.fallback.making.in_language import plan_in_language
from service.planner.fallback.making.needs import need_of
from service.planner.fallback.reading.conversation import Conversation
from service.planner.fallback.rules.draft import draft_by_rule
from service.planner.plan import Plan
from service.planner.plan_text import PlanDraft
from service.planner.shop import current
from service.planner.shop.kinds_of_plan import with_kinds
from service.planner.vocabulary import Vocabulary


def plan_by_rule(conversation: Conversation, vocabulary: Vocabulary, draft: PlanDraft | None = None) -> Plan:
    """Return the best plan that rules can make, of their `draft` if there is one. Total: every question gets one."""
    if conversation.is_no_wish:
        return Plan(mode="conversational", intent="out_of_scope")
    if not conversation.is_english:
        return plan_in_language(conversation.question, conversation.reader, vocabulary)
    plan = complete_plan(draft or draft_by_rule(conversation, vocabulary), conversation, vocabulary)
    plan = without_operators(plan, conversation.question.text)
    shop = current.lexicon() if current.SHOPS else None
    if shop is None or shop.kinds is None:
        return plan
    need = need_of(plan, conversation.question, shop.kinds.tells_need)
    return with_kinds(plan, conversation.question, vocabulary, need)
