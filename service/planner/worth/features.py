"""The numbers by which a question is judged: what the rules read in it anyway.

This is the only module here that knows how rules read; training and serving compute the numbers with it alike.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

from service.planner.plan_text import PlanDraft
from service.planner.reading.conversation import Conversation
from service.planner.reading.en import lists
from service.planner.reading.en.spelling import is_known, words
from service.planner.reading.en.turns import LIFTED_FACETS
from service.planner.rules.draft import draft_by_rule
from service.planner.rules.spans import SKIPPED
from service.planner.vocabulary import DEFAULT_INTENT, NAMING_FACETS, Vocabulary

_ASKING_WORDS = frozenset(
    "how what which who where when why whats what's is are do does can could would should".split()
)
_SHOPPER = frozenset("i i'm im i've i'd me my mine we our us".split())
_SERVICE = frozenset("you your u order delivery refund return account card pay payment parcel package sent".split())
_TURNS = frozenset("instead actually but only just also same those that it them one ones other another".split())
_KINDS = (SKIPPED, lists.JOINS, lists.COMPARING, lists.GOVERNORS, lists.NEGATIONS, lists.TALK, _ASKING_WORDS)
_PATTERNS = (
    lists.WISH, lists.ASKING, lists.ADVICE, lists.COMPARISON, lists.OUT_OF_SCOPE, lists.SUPPORT_WORDS, lists.FOLLOW_UP,
)  # fmt: skip
_INTENTS = (DEFAULT_INTENT, "compare_products", "advise", "ask_product", "small_talk", "out_of_scope")

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
    return (
        *_shape(reading),
        *_spans(reading),
        *_read(reading),
        *_words(reading.own),
        *_listed(reading.own),
        *_patterns(reading.question.text.lower()),
        *_intents(reading.draft.intent),
    )


def _shape(reading: Reading) -> Iterator[int]:
    """Yield how long the question is, and what it looks like."""
    question, own, text = reading.question, reading.own, reading.question.text.lower()
    yield len(own)
    yield len(text)
    yield len(question.utterances) - 1
    yield len(question.words) - len(own)
    yield int(reading.draft.mode == "conversational")
    yield int(reading.draft.foreign)
    yield int(text.endswith("?"))
    yield text.count(",")
    yield sum(any(c.isdigit() for c in word) for word in own)


def _spans(reading: Reading) -> Iterator[int]:
    """Yield what the draft's spans are."""
    spans, words = reading.draft.spans, reading.question.words
    newest = len(reading.question.utterances) - 1
    yield len(spans)
    yield sum(span.facet in NAMING_FACETS for span in spans)
    yield sum(span.facet == "type" for span in spans)
    yield sum(span.facet == "feature" for span in spans)
    yield max((len(span.indices) for span in spans), default=0)
    yield sum(words[span.first].utterance < newest for span in spans)
    yield len({span.part for span in spans if span.part})
    yield sum(span.refused for span in spans)


def _read(reading: Reading) -> Iterator[int]:
    """Yield what else the rules read, and which words nothing claims."""
    said = reading.conversation.phrases[-1]
    yield len(reading.conversation.refusals)
    yield int(reading.draft.vertical is not None)
    yield len(said.prices)
    yield int(said.sort != "relevance")
    yield len(said.offers)
    yield len(said.lifted - LIFTED_FACETS)  # those were not counted when the scorer was trained
    yield len(reading.unclaimed)
    yield round(100 * len(reading.unclaimed) / max(len(reading.own), 1))


def _words(own: Sequence[str]) -> Iterator[int]:
    """Yield what the word list knows of the words."""
    facets = [words().facets.get(word) for word in own]
    yield sum(not is_known(word) for word in own)
    yield sum(facet is not None for facet in facets)
    yield facets.count("type")
    yield facets.count("brand")
    yield int(facets[-1:] == ["type"])


def _listed(own: Sequence[str]) -> Iterator[int]:
    """Yield how many of the words are of a kind."""
    for listed in _KINDS:
        yield sum(word in listed for word in own)
    yield int(own[:1] != [] and own[0] in _ASKING_WORDS)
    for listed in (_SHOPPER, _SERVICE, _TURNS):
        yield sum(word in listed for word in own)


def _patterns(text: str) -> Iterator[int]:
    """Yield which patterns the question has."""
    for pattern in _PATTERNS:
        yield int(bool(pattern.search(text)))


def _intents(intent: str) -> Iterator[int]:
    for known in _INTENTS:
        yield int(intent == known)
