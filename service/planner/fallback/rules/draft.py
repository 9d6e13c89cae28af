"""Drafts by rule, in well under a millisecond: the service's answer when no model can answer in time.

Here is what a question asks for; `spans.py` finds what it names. Like the model the rules only ever name words of the
question, and `making` completes the plan of both.
"""

from service.planner.fallback.reading.conversation import Conversation
from service.planner.fallback.reading.en import lists
from service.planner.fallback.reading.en.language import is_foreign
from service.planner.fallback.reading.en.trimming import unsaid
from service.planner.fallback.rules.spans import SKIPPED, find_spans
from service.planner.plan_text import PlanDraft
from service.planner.shop import current
from service.planner.spelling import correct, correct_word, is_known, words
from service.planner.vocabulary import DEFAULT_INTENT, NAMING_FACETS, Vocabulary

UNTELLING = SKIPPED | lists.TALK | lists.QUESTION_VERBS
_BRANDS = frozenset(("brand", "line"))
_NAMES = frozenset((*NAMING_FACETS, "theme", "material"))
_LONG = 6  # words that a search query of a few words has not


def draft_by_rule(conversation: Conversation, vocabulary: Vocabulary) -> PlanDraft:
    """Return the best draft that rules can make. Total: every question gets one."""
    question = conversation.question
    text = question.text.lower().replace("’", "'")
    if is_foreign(question) and not current.name_of([word.text for word in question.own_words]):
        return PlanDraft("keyword", DEFAULT_INTENT, foreign=True)
    mode = "conversational" if lists.CONVERSATIONAL.search(text) else "keyword"
    intent = _intent(text, mode, conversation)
    draft = PlanDraft(mode, intent if intent in vocabulary.intents else DEFAULT_INTENT)
    if vocabulary.intents[draft.intent].products:
        if draft.intent == "ask_product":
            draft.sources = ["reviews", "qa"] if lists.REVIEW_QUESTION.search(text) else ["qa", "catalog"]
            draft.sources = [source for source in draft.sources if source in vocabulary.sources]
        spans, vertical = find_spans(conversation, draft.intent)
        draft.spans = [span for span in spans if span.facet in vocabulary.facets]
        draft.vertical = vertical if vertical in vocabulary.verticals else None
    return draft


def _intent(text: str, mode: str, conversation: Conversation) -> str:
    question = conversation.question
    own = [word.text for word in question.own_words]
    is_follow_up = len(question.utterances) > 1
    if current.SHOPS and current.name_of(own):
        return DEFAULT_INTENT  # whoever says a name of the shop and nothing else looks for it
    if all(_is_talk(word.strip("!?.,")) for word in own) and not lists.SUPPORT_WORDS.search(text):
        return "small_talk"
    text = correct(lists.GREETING.sub("", text))
    facets = {word: words().facets.get(word) for word in own if word not in UNTELLING}
    names_kind = "type" in facets.values()
    names_thing = mode == "keyword" and 1 < len(own) < _LONG and any(facets.get(word) == "type" for word in own[-2:])
    if not names_thing or lists.STRONG_SUPPORT.search(text):
        intent = conversation.reader.intent(text)
        if intent is not None and not (names_kind and _is_offer(intent, conversation)):
            return intent
    if lists.OUT_OF_SCOPE.search(text) and not names_thing:
        return "out_of_scope"
    if lists.COMPARISON.search(text):
        return "compare_products"
    brands = not _BRANDS.isdisjoint(facets.values())
    said = conversation.phrases[-1]
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


def _is_offer(intent: str, conversation: Conversation) -> bool:
    """Tell whether only an offer's words sound like an intent: "a blazer, no shipping fees" asks no policy."""
    said, text = conversation.phrases[-1], conversation.question.text
    return bool(said.offers) and conversation.reader.intent(correct(unsaid(text, said.spans).lower())) != intent


def _is_talk(word: str) -> bool:
    return word in lists.TALK or correct_word(word) in lists.TALK


def _is_word(text: str) -> bool:
    return text.replace("'", "").isalpha() and is_known(text)
