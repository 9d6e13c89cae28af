"""A second look at the model's draft, where rules are certain that it errs about what is asked."""

from dataclasses import replace
from functools import cache

from service.planner.making.reconciling import QUALITIES, beside_refusals, without_qualities
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.reading.conversation import Conversation
from service.planner.reading.en import lists
from service.planner.reading.en.facets import facet_of
from service.planner.reading.en.language import is_english, is_foreign
from service.planner.reading.en.spelling import words
from service.planner.rules.draft import draft_by_rule
from service.planner.vocabulary import DEFAULT_INTENT, Vocabulary

_OF_THE_WORLD = ("who ", "when ", "where ", "why ")  # questions that name a brand and are about something else


def second_look(draft: PlanDraft, conversation: Conversation, vocabulary: Vocabulary) -> PlanDraft:
    """Return the draft of a model, or another one where rules are certain that it errs about what is asked.

    A shopper is never turned away who speaks of an order, of a brand's thing, or of what it may cost; words of another
    language are no facets; a comparison has two things, and two things "side by side" are compared.
    """
    question = conversation.question
    text, refusals = question.text.lower(), conversation.refusals

    @cache  # two of the looks below may need it, and it costs as much as all the rest
    def by_rule() -> PlanDraft:
        return draft_by_rule(conversation, vocabulary)

    if not draft.foreign and is_foreign(question):
        return PlanDraft(draft.mode, DEFAULT_INTENT, foreign=True)
    if draft.foreign and is_english(question):
        draft = replace(draft, foreign=False)
    if draft.intent == "out_of_scope" and _is_for_a_shop(question, text):
        rules = by_rule()
        return draft if rules.intent == "small_talk" else rules
    prices = conversation.phrases[-1].prices
    if not vocabulary.intents[draft.intent].products and any(price.is_told for price in prices):
        rules = by_rule()  # whoever says a bound of prices wants a thing: "a telly for under a grand"
        return rules if vocabulary.intents[rules.intent].products else draft
    if draft.intent == "ask_product" and _asks_for_goods(conversation, text) and by_rule().intent == DEFAULT_INTENT:
        rules = by_rule()
        return replace(draft, intent=DEFAULT_INTENT, sources=rules.sources) if draft.spans else rules
    parts = _parts(draft)
    if vocabulary.intents[draft.intent].products and lists.COMPARED.search(text):
        rules = by_rule() if parts < 2 else draft
        if parts < 2 and rules.intent == "compare_products" and _parts(rules) > 1:
            return replace(rules, mode=draft.mode, vertical=draft.vertical or rules.vertical)
        if draft.intent == DEFAULT_INTENT and parts > 1 and "compare_products" in vocabulary.intents:
            return replace(draft, intent="compare_products")
    if draft.intent == DEFAULT_INTENT and not draft.foreign and not parts and _may_be_several(draft, question):
        rules = by_rule()
        return replace(draft, spans=rules.spans) if _parts(rules) > 1 else draft
    if draft.intent == "compare_products" and parts < 2 and draft.mode == "keyword" and len(question.utterances) == 1:
        return replace(draft, intent=DEFAULT_INTENT)
    if draft.intent == DEFAULT_INTENT and not parts and not draft.foreign:
        if any(_may_begin_with_quality(span, question) for span in draft.spans):
            draft = replace(draft, spans=without_qualities(draft.spans, by_rule().spans))
        if refusals:
            draft = replace(draft, spans=beside_refusals(draft.spans, by_rule().spans, question))
    return draft


def _asks_for_goods(conversation: Conversation, text: str) -> bool:
    """Tell whether a question asks to be shown things: "do you have it in hardback", "any deals on tvs?"."""
    said = conversation.phrases[-1]
    return bool(lists.WISH.search(text)) or bool(said.offers) or said.sort != "relevance"


def _is_for_a_shop(question: Question, text: str) -> bool:
    """Tell whether only a shop can answer: about an order, or a kind of thing with a brand.

    A brand's name alone does not tell ("where was john denver born", "what does adidas stand for"), but a product's at
    the end: "how do i wash a canada goose parka".
    """
    if lists.STRONG_SUPPORT.search(text):
        return True
    facets = [words().facets.get(word.text) for word in question.own_words]
    return facets[-1:] == ["type"] and "brand" in facets[-3:-1] and not text.startswith(_OF_THE_WORLD)


def _may_begin_with_quality(span: FacetSpan, question: Question) -> bool:
    """Tell whether rules are worth asking: of a span of several words the first may be a color or a material."""
    return span.first < span.last and facet_of(question.words[span.first].text) in QUALITIES


def _may_be_several(draft: PlanDraft, question: Question) -> bool:
    """Tell whether a model may have overlooked several things: it named none, or one kind with an "and"."""
    kinds = [span for span in draft.spans if span.facet == "type"]
    inside = (question.words[index].text for span in kinds for index in span.indices)
    return not draft.spans or not lists.JOINS.isdisjoint(inside)


def _parts(draft: PlanDraft) -> int:
    return len({span.part for span in draft.spans if span.part})
