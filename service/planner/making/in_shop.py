"""Plans in the terms of the shop: what its lexicon knows for sure is that and nothing else, and its categories."""

from dataclasses import replace

from service.planner.making.needs import need_of
from service.planner.plan import MAX_KINDS, Kind, Plan
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.reading.conversation import Conversation
from service.planner.rules.draft import draft_by_rule
from service.planner.shop import current
from service.planner.shop.kinds import Thing
from service.planner.vocabulary import Vocabulary


def in_shop_terms(draft: PlanDraft, conversation: Conversation, vocabulary: Vocabulary) -> PlanDraft:
    """Return the draft with the brands, lines and values of the shop, which there is, as such.

    Whoever says a name of the shop and nothing else looks for it: "google" is no small talk where that is a brand.
    """
    texts = [word.text for word in conversation.question.own_words]
    if current.name_of(texts) and (draft.foreign or not vocabulary.intents[draft.intent].products):
        return draft_by_rule(conversation, vocabulary)
    spans = [_known(span, conversation, vocabulary) for span in draft.spans]
    return draft if spans == draft.spans else replace(draft, spans=spans)


def _known(span: FacetSpan, conversation: Conversation, vocabulary: Vocabulary) -> FacetSpan:
    name = current.name_of([conversation.question.words[index].text for index in span.indices])
    if name is None or name.facet == span.facet or name.facet not in vocabulary.facets:
        return span
    return replace(span, facet=name.facet)


def with_kinds(plan: Plan, question: Question, vocabulary: Vocabulary) -> Plan:
    """Return the plan with the categories of the shop that it is about, where it is about products and any is sure."""
    shop = current.lexicon()
    if shop is None or shop.kinds is None or not plan.queries or not vocabulary.intents[plan.intent].products:
        return plan
    need = need_of(plan, question, shop.kinds.tells_need)
    things = [Thing(" ".join(each.queries[:1]), each.facets.get("type", ()), *need) for each in plan.parts or (plan,)]
    kinds = [Kind(id=each.id, name=each.name) for each in shop.kinds.of(things, MAX_KINDS)]
    return plan.model_copy(update={"kinds": kinds}) if kinds else plan
