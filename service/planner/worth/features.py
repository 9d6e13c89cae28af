"""The numbers by which a question is judged: what the rules read in it anyway.

This is the only module here that knows how rules read; training and serving compute the numbers with it alike.
"""

from collections.abc import Collection
from functools import cached_property

from service.planner.plan_text import PlanDraft
from service.planner.reading.conversation import Conversation
from service.planner.reading.en import lists
from service.planner.reading.en.spelling import is_known, words
from service.planner.rules.draft import draft_by_rule
from service.planner.rules.spans import SKIPPED
from service.planner.vocabulary import DEFAULT_INTENT, NAMING_FACETS, Vocabulary

_ASKING_WORDS = frozenset(
    "how what which who where when why whats what's is are do does can could would should".split()
)
_SHOPPER = frozenset("i i'm im i've i'd me my mine we our us".split())
_SERVICE = frozenset("you your u order delivery refund return account card pay payment parcel package sent".split())
_TURNS = frozenset("instead actually but only just also same those that it them one ones other another".split())

NAMES = (
    "words", "characters", "history", "history_words", "is_said", "is_foreign", "asks", "commas", "digits", "spans",
    "names", "types", "features", "longest_span", "of_before", "parts", "refused", "refusals", "has_vertical",
    "prices", "has_sort", "offers", "lifted", "unclaimed", "unclaimed_percent", "unknown", "known_facets",
    "known_types", "known_brands", "ends_in_type", "skipped", "joins", "compares", "governors", "negations", "talk",
    "asking_words", "starts_asking", "shopper", "service", "turns", "wish", "asking", "advice", "comparison",
    "out_of_scope", "support", "follow_up", "finds", "is_compare_products", "is_advise", "is_ask_product",
    "is_small_talk", "is_out_of_scope",
)  # fmt: skip


class Reading:
    """A question as the rules read it."""

    def __init__(self, conversation: Conversation, vocabulary: Vocabulary) -> None:
        self.conversation = conversation
        self.question = conversation.question
        self.draft: PlanDraft = draft_by_rule(conversation, vocabulary)

    @cached_property
    def own(self) -> list[str]:
        """The words of the newest utterance."""
        return [word.text for word in self.question.own_words]

    @cached_property
    def unclaimed(self) -> list[str]:
        """Words of the newest utterance that mean something, and that no span and no closed phrase has."""
        newest = len(self.question.utterances) - 1
        claimed = self.conversation.taken.union(i for span in self.draft.spans for i in span.indices)
        claimed = claimed.union(i for refusal in self.conversation.refusals for i in refusal.words)
        return [
            word.text
            for index, word in enumerate(self.question.words)
            if word.utterance == newest and index not in claimed and word.text not in SKIPPED
        ]


def numbers(reading: Reading) -> tuple[int, ...]:
    """Return the numbers, in the order of `NAMES`."""
    draft, said, own = reading.draft, reading.conversation.phrases[-1], reading.own
    text = reading.question.text.lower()
    facets = [words().facets.get(word) for word in own]
    spans = draft.spans
    return (
        len(own),
        len(text),
        len(reading.question.utterances) - 1,
        len(reading.question.words) - len(own),
        int(draft.mode == "conversational"),
        int(draft.foreign),
        int(text.endswith("?")),
        text.count(","),
        sum(any(c.isdigit() for c in word) for word in own),
        len(spans),
        sum(span.facet in NAMING_FACETS for span in spans),
        sum(span.facet == "type" for span in spans),
        sum(span.facet == "feature" for span in spans),
        max((len(span.indices) for span in spans), default=0),
        sum(reading.question.words[span.first].utterance < len(reading.question.utterances) - 1 for span in spans),
        len({span.part for span in spans if span.part}),
        sum(span.refused for span in spans),
        len(reading.conversation.refusals),
        int(draft.vertical is not None),
        len(said.prices),
        int(said.sort != "relevance"),
        len(said.offers),
        len(said.lifted),
        len(reading.unclaimed),
        round(100 * len(reading.unclaimed) / max(len(own), 1)),
        sum(not is_known(word) for word in own),
        sum(facet is not None for facet in facets),
        facets.count("type"),
        facets.count("brand"),
        int(facets[-1:] == ["type"]),
        sum(word in SKIPPED for word in own),
        _count(own, lists.JOINS),
        _count(own, lists.COMPARING),
        _count(own, lists.GOVERNORS),
        _count(own, lists.NEGATIONS),
        _count(own, lists.TALK),
        _count(own, _ASKING_WORDS),
        int(own[:1] != [] and own[0] in _ASKING_WORDS),
        _count(own, _SHOPPER),
        _count(own, _SERVICE),
        _count(own, _TURNS),
        int(bool(lists.WISH.search(text))),
        int(bool(lists.ASKING.search(text))),
        int(bool(lists.ADVICE.search(text))),
        int(bool(lists.COMPARISON.search(text))),
        int(bool(lists.OUT_OF_SCOPE.search(text))),
        int(bool(lists.SUPPORT_WORDS.search(text))),
        int(bool(lists.FOLLOW_UP.search(text))),
        int(draft.intent == DEFAULT_INTENT),
        int(draft.intent == "compare_products"),
        int(draft.intent == "advise"),
        int(draft.intent == "ask_product"),
        int(draft.intent == "small_talk"),
        int(draft.intent == "out_of_scope"),
    )


def _count(own: Collection[str], listed: Collection[str]) -> int:
    return sum(word in listed for word in own)
