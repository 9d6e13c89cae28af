"""The plan of a conversation's newest question: of what a model wrote about it, or by rule alone."""

from service.engines.meaning import QuestionMeaning
from service.planner.making.completion import complete_plan
from service.planner.making.in_language import plan_in_language
from service.planner.making.in_shop import in_shop_terms, with_kinds, wrongly_turned_away
from service.planner.making.second_look import second_look
from service.planner.plan import Plan
from service.planner.plan_text import PlanDraft, parse
from service.planner.reading.conversation import Conversation
from service.planner.rules.draft import draft_by_rule
from service.planner.shop import current
from service.planner.vocabulary import Vocabulary


def plan_from_draft(
    draft: PlanDraft, conversation: Conversation, vocabulary: Vocabulary, meaning: QuestionMeaning | None = None
) -> Plan:
    """Return the plan of a model's draft, and of what its kind head made of the question, where it has one.

    Total: every draft becomes a valid plan.
    """
    if conversation.is_no_wish:
        return _no_wish()
    if not conversation.is_english:
        return plan_in_language(conversation.question, conversation.reader, vocabulary)
    if current.SHOPS:
        draft = in_shop_terms(draft, conversation, vocabulary)
    plan = complete_plan(second_look(draft, conversation, vocabulary), conversation, vocabulary)
    if not current.SHOPS:
        return plan
    plan = wrongly_turned_away(plan, conversation, vocabulary, meaning)
    return plan if plan.kinds else with_kinds(plan, conversation.question, vocabulary, meaning)


def plan_from_text(
    text: str, conversation: Conversation, vocabulary: Vocabulary, meaning: QuestionMeaning | None = None
) -> Plan:
    """Return the plan that a model's text means; `meaning` as above. Raises PlanTextError when it is invalid."""
    return plan_from_draft(parse(text, conversation.question, vocabulary), conversation, vocabulary, meaning)


def plan_by_rule(conversation: Conversation, vocabulary: Vocabulary, draft: PlanDraft | None = None) -> Plan:
    """Return the best plan that rules can make, of their `draft` if there is one. Total: every question gets one."""
    if conversation.is_no_wish:
        return _no_wish()
    if not conversation.is_english:
        return plan_in_language(conversation.question, conversation.reader, vocabulary)
    plan = complete_plan(draft or draft_by_rule(conversation, vocabulary), conversation, vocabulary)
    return with_kinds(plan, conversation.question, vocabulary) if current.SHOPS else plan


def _no_wish() -> Plan:
    """Return the plan of a text that gives orders to a machine and says nothing else, in any vocabulary."""
    return Plan(mode="conversational", intent="out_of_scope")
