"""Plans in the terms of the shop: what its lexicon knows for sure is that and nothing else, and its categories."""

from dataclasses import replace
from typing import Final

from service.engines.meaning import QuestionMeaning
from service.planner.making.completion import complete_plan
from service.planner.making.needs import need_of
from service.planner.plan import MAX_KINDS, Kind, Plan
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.reading.conversation import Conversation
from service.planner.reading.tokens import BREAKS
from service.planner.rules.draft import draft_by_rule
from service.planner.shop import current
from service.planner.shop.kinds import Kinds, Thing
from service.planner.vocabulary import DEFAULT_INTENT, Vocabulary

_TURNED_AWAY: Final = "out_of_scope"
_OR: Final = "or"
# Odds by words and by the model's states, added up, from which on a need is sure: fitted to the questions of
# benchmarks/cases/scope.tsv that no shop can answer, of which one in fifty is searched (docs/decisions/0032-kinds.md).
_SURE_OF_NEED: Final = 7.0


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


def with_kinds(plan: Plan, question: Question, vocabulary: Vocabulary, meaning: QuestionMeaning | None = None) -> Plan:
    """Return the plan with the categories of the shop that it is about, where it is about products and any is sure.

    `meaning` is what the model made of the question, where it has read it: it counts where it was trained with the
    shop's vectors, on one utterance as all that it was trained on.
    """
    shop = current.lexicon()
    if shop is None or shop.kinds is None or not plan.queries or not vocabulary.intents[plan.intent].products:
        return plan
    need = need_of(plan, question, shop.kinds.tells_need)
    is_read = need.is_told and meaning is not None and _is_usable(meaning, question, shop.kinds)
    pointed = meaning.direction if meaning is not None and is_read else ()
    of = (plan,) if need.is_told else plan.parts or (plan,)
    things = [Thing(" ".join(each.queries[:1]), each.facets.get("type", ()), *need, pointed) for each in of]
    kinds = [Kind(id=each.id, name=each.name) for each in shop.kinds.of(things, MAX_KINDS)]
    return plan.model_copy(update={"kinds": kinds}) if kinds else plan


def wrongly_turned_away(
    plan: Plan, conversation: Conversation, vocabulary: Vocabulary, meaning: QuestionMeaning | None
) -> Plan:
    """Return a search instead of the model's plan that turns a shopper away, where all else says that it errs.

    Who begins with a thing of the shop asks for it: "bread or bagels, none of that sourdough". "Place to sit on the
    patio" names nothing to buy: its words, the states that the model itself has of them, and the shop's categories must
    agree on the need.
    """
    if plan.intent != _TURNED_AWAY or current.lexicon() is None:
        return plan
    draft = draft_by_rule(conversation, vocabulary)
    if not (_begins_with_thing(draft, conversation.question) or _tells_need(conversation.question, meaning)):
        return plan
    searched = complete_plan(draft, conversation, vocabulary)
    if searched.intent != DEFAULT_INTENT:
        return plan
    searched = with_kinds(searched, conversation.question, vocabulary, meaning)
    return searched if searched.kinds else plan


def _begins_with_thing(draft: PlanDraft, question: Question) -> bool:
    """Tell whether the first clause is a thing, with what is said of it, or one of two, and nothing else."""
    own = [index for index, word in enumerate(question.words) if word.utterance == len(question.utterances) - 1]
    thing = next((span for span in draft.spans if span.facet == "type" and span.first in own), None)
    if thing is None or thing.refused:
        return False
    said = {index for span in draft.spans for index in span.indices}
    texts = [word.text for word in question.words]
    if any(index not in said and _OR not in texts[index : index + 2] for index in range(own[0], thing.first)):
        return False
    if thing.last == own[-1]:
        return True
    between = question.utterances[-1][question.words[thing.last].end : question.words[thing.last + 1].start]
    return texts[thing.last + 1] == _OR or not BREAKS.isdisjoint(between)


def _tells_need(question: Question, meaning: QuestionMeaning | None) -> bool:
    shop = current.lexicon()
    if meaning is None or shop is None or shop.kinds is None:
        return False
    odds = shop.kinds.tells_need(" ".join(word.text for word in question.own_words))
    return odds is not None and odds + meaning.odds >= _SURE_OF_NEED and _is_usable(meaning, question, shop.kinds)


def _is_usable(meaning: QuestionMeaning, question: Question, kinds: Kinds) -> bool:
    return meaning.space == kinds.space and len(question.utterances) == 1
