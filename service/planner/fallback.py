"""Plans by rule, in well under a millisecond: the service's answer when no model can answer in time.

Here is what a question asks for; `fallback_spans.py` finds what it names. Like the model the rules only ever name words
of the question, and `completion.complete_plan` completes the plan of both.
"""

from dataclasses import replace

from service.planner import fallback_words as lists
from service.planner.closed import Closed
from service.planner.completion import complete_plan
from service.planner.fallback_spans import SKIPPED, find_spans
from service.planner.plan import Plan
from service.planner.plan_text import PlanDraft
from service.planner.queries import NAMING_FACETS
from service.planner.question import Question
from service.planner.spelling import correct, correct_word, is_known, words
from service.planner.vocabulary import DEFAULT_INTENT, Vocabulary

_UNTELLING = SKIPPED | lists.TALK | lists.QUESTION_VERBS
_BRANDS = frozenset(("brand", "line"))
_NAMES = frozenset((*NAMING_FACETS, "theme", "material"))
_OF_THE_WORLD = ("who ", "when ", "where ", "why ")  # questions that name a brand and are about something else
_LONG = 6  # words that a search query of a few words has not


def fallback_plan(question: Question, vocabulary: Vocabulary) -> Plan:
    """Return the best plan that rules can make. Total: every question gets a valid one."""
    return complete_plan(fallback_draft(question, vocabulary), question, vocabulary)


def fallback_draft(question: Question, vocabulary: Vocabulary) -> PlanDraft:
    """Return the same plan as a draft, before search queries are derived from it."""
    text = question.text.lower().replace("’", "'")
    if _is_foreign(question):
        return PlanDraft("keyword", DEFAULT_INTENT, foreign=True)
    mode = "conversational" if lists.CONVERSATIONAL.search(text) else "keyword"
    closed = Closed(question)
    intent = _intent(question, text, mode, closed)
    draft = PlanDraft(mode, intent if intent in vocabulary.intents else DEFAULT_INTENT)
    if vocabulary.intents[draft.intent].products:
        if draft.intent == "ask_product":
            draft.sources = ["reviews", "qa"] if lists.REVIEW_QUESTION.search(text) else ["qa", "catalog"]
            draft.sources = [source for source in draft.sources if source in vocabulary.sources]
        spans, vertical = find_spans(question, draft.intent, closed)
        draft.spans = [span for span in spans if span.facet in vocabulary.facets]
        draft.vertical = vertical if vertical in vocabulary.verticals else None
    return draft


def second_look(draft: PlanDraft, question: Question, vocabulary: Vocabulary) -> PlanDraft:
    """Return the draft of a model, or another one where rules are certain that it errs about what is asked.

    A shopper is never turned away who speaks of an order, or of a price for a kind of thing; words of another language
    are no facets; a comparison has two things, and two things "side by side" are compared.
    """
    text = question.text.lower()
    if not draft.foreign and _is_foreign(question):
        return PlanDraft(draft.mode, DEFAULT_INTENT, foreign=True)
    if draft.foreign and _is_english(question):
        draft = replace(draft, foreign=False)
    if draft.intent == "out_of_scope" and _is_for_a_shop(question, text):
        rules = fallback_draft(question, vocabulary)
        return draft if rules.intent == "small_talk" else rules
    if draft.intent == "policy_help" and Closed(question).phrases[-1].offers and _names_a_kind(question):
        rules = fallback_draft(question, vocabulary)  # "any deals on prams" looks for prams
        return rules if rules.intent == DEFAULT_INTENT else draft
    parts = _parts(draft)
    if vocabulary.intents[draft.intent].products and lists.COMPARED.search(text) and not lists.TITLES.search(text):
        rules = fallback_draft(question, vocabulary) if parts < 2 else draft
        if parts < 2 and rules.intent == "compare_products" and _parts(rules) > 1:
            return replace(rules, mode=draft.mode, vertical=draft.vertical or rules.vertical)
        if draft.intent == DEFAULT_INTENT and parts > 1 and "compare_products" in vocabulary.intents:
            return replace(draft, intent="compare_products")
    if draft.intent == DEFAULT_INTENT and not draft.foreign and not parts and _may_be_several(draft, question):
        rules = fallback_draft(question, vocabulary)
        return replace(draft, spans=rules.spans) if _parts(rules) > 1 else draft
    if draft.intent == "compare_products" and parts < 2 and draft.mode == "keyword" and len(question.utterances) == 1:
        return replace(draft, intent=DEFAULT_INTENT)
    return draft


def _is_for_a_shop(question: Question, text: str) -> bool:
    """Tell whether only a shop can answer: about an order, or a kind of thing with a price, sort, offer or brand.

    A brand's name alone does not tell ("where was john denver born", "what does adidas stand for"), but a product's at
    the end: "how do i wash a canada goose parka".
    """
    if lists.STRONG_SUPPORT.search(text):
        return True
    said = Closed(question).phrases[-1]
    if (said.prices or said.offers or said.sort != "relevance") and _names_a_kind(question):
        return True
    facets = [words().facets.get(word.text) for word in question.own_words]
    return facets[-1:] == ["type"] and "brand" in facets[-3:-1] and not text.startswith(_OF_THE_WORLD)


def _names_a_kind(question: Question) -> bool:
    return any(words().facets.get(word.text) == "type" for word in question.own_words if word.text not in _UNTELLING)


def _may_be_several(draft: PlanDraft, question: Question) -> bool:
    """Tell whether a model may have overlooked several things: it named none, or one kind with an "and"."""
    kinds = [span for span in draft.spans if span.facet == "type"]
    inside = (question.words[index].text for span in kinds for index in span.indices)
    return not draft.spans or not lists.JOINS.isdisjoint(inside)


def _parts(draft: PlanDraft) -> int:
    return len({span.part for span in draft.spans if span.part})


def _is_foreign(question: Question) -> bool:
    """Tell whether the newest utterance is in another language: by its script, or by words that English lacks."""
    own = [word.text for word in question.own_words if any(character.isalpha() for character in word.text)]
    if not own:
        return False
    letters = "".join(own)
    if sum(character > "ʯ" and character.isalpha() for character in letters) * 2 > len(letters):
        return True
    foreign = sum(text in lists.FOREIGN for text in own)
    strange = sum(not text.isascii() or not is_known(text) for text in own if text not in lists.FOREIGN)
    accents = any(not text.isascii() and text not in words().counts for text in own)
    return foreign >= 1 and (foreign + strange) * 2 > len(own) and (foreign > 1 or strange > 0 or accents)


def _is_english(question: Question) -> bool:
    """Tell whether every word of the newest utterance is one that products or English texts have."""
    own = [word.text.strip("'") for word in question.own_words if word.text.isalpha()]
    return len(own) > _LONG and all(is_known(text) and text not in lists.FOREIGN for text in own)


def _intent(question: Question, text: str, mode: str, closed: Closed) -> str:
    own = [word.text for word in question.own_words]
    is_follow_up = len(question.utterances) > 1
    if all(_is_talk(word.strip("!?.,")) for word in own) and not lists.SUPPORT_WORDS.search(text):
        return "small_talk"
    names_title = bool(lists.TITLES.search(text))
    text = lists.SLOGAN.split(correct(lists.GREETING.sub("", text)))[0]
    facets = {word: words().facets.get(word) for word in own if word not in _UNTELLING}
    names_thing = mode == "keyword" and 1 < len(own) < _LONG and any(facets.get(word) == "type" for word in own[-2:])
    for intent, pattern in lists.SUPPORT_INTENTS:
        if pattern.search(text) and not (names_thing and not lists.STRONG_SUPPORT.search(text)):
            return intent
    if lists.OUT_OF_SCOPE.search(text) and not names_thing:
        return "out_of_scope"
    if lists.COMPARISON.search(text) and not names_title:
        return "compare_products"
    brands = not _BRANDS.isdisjoint(facets.values())
    said = closed.phrases[-1]
    if said.prices or said.offers or said.sort != "relevance":
        return DEFAULT_INTENT  # "which lamp is the cheapest" looks for it
    asks = bool(lists.ASKING.search(text))
    if not asks and not (lists.WISH.search(text) or (is_follow_up and lists.FOLLOW_UP.search(text))):
        asks = bool(lists.QUESTION_START.search(text)) or (text.endswith("?") and brands and len(own) > 1)
    advises = lists.ADVICE.search(text) and not is_follow_up and not (brands and asks)
    is_about_product = is_follow_up or not _NAMES.isdisjoint(facets.values()) or not all(map(_is_word, facets))
    if (asks or advises) and not is_about_product:
        return "out_of_scope"
    return "advise" if advises else "ask_product" if asks else DEFAULT_INTENT


def _is_talk(word: str) -> bool:
    return word in lists.TALK or correct_word(word) in lists.TALK


def _is_word(text: str) -> bool:
    return text.replace("'", "").isalpha() and is_known(text)
