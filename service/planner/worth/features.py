"""The numbers by which a question is judged: what the rules read in it anyway.

This is the only module here that knows how rules read; training and serving compute the numbers with it alike.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import log2

from service.planner.fallback.reading.conversation import Conversation
from service.planner.fallback.reading.en import lists
from service.planner.fallback.reading.en.turns import LIFTED_FACETS
from service.planner.fallback.rules.draft import draft_by_rule
from service.planner.fallback.rules.spans import SKIPPED
from service.planner.plan_text import PlanDraft
from service.planner.spelling import is_known, words
from service.planner.vocabulary import DEFAULT_INTENT, NAMING_FACETS, Vocabulary

_ASKING_WORDS = frozenset(
    "how what which who where when why whats what's is are do does can could would should".split()
)
_SHOPPER = frozenset("i i'm im i've i'd me my mine we our us".split())
_SERVICE = frozenset("you your u order delivery refund return account card pay payment parcel package sent".split())
_TURNS = frozenset("instead actually but only just also same those that it them one ones other another".split())
_ANDS = frozenset("and also both plus well then n".split())
_ARTICLES = frozenset("a an the some any".split())
_COPULAS = frozenset("is are was were be been".split())
_WANTS = frozenset("need want wanting looking searching get gotta buy find show after require love like".split())
_HELP = frozenset("help recommend suggest advice tips consider best good better".split())
_HAVING = frozenset("have has had got do does sell stock".split())
_KINDS = (
    SKIPPED, lists.JOINS, lists.COMPARING, lists.GOVERNORS, lists.NEGATIONS, lists.TALK, _ASKING_WORDS, _SHOPPER,
    _SERVICE, _TURNS, _ANDS, _ARTICLES, _COPULAS, _WANTS, _HELP, _HAVING, frozenset(["for"]), frozenset(["to", "into"]),
    frozenset(["in", "on", "at", "under", "over"]),
)  # fmt: skip
_PATTERNS = (
    lists.WISH, lists.ASKING, lists.ADVICE, lists.COMPARISON, lists.OUT_OF_SCOPE, lists.SUPPORT_WORDS, lists.FOLLOW_UP,
)  # fmt: skip
_INTENTS = (DEFAULT_INTENT, "compare_products", "advise", "ask_product", "small_talk", "out_of_scope")

NAMES = (
    "words", "characters", "history", "history_words", "is_said", "is_foreign", "asks", "commas", "digits", "spans",
    "names", "types", "features", "longest_span", "of_before", "parts", "refused", "refusals", "has_vertical",
    "prices", "has_sort", "offers", "lifted", "unclaimed", "unclaimed_percent", "unknown", "known_facets",
    "known_types", "known_brands", "ends_in_type", "letters", "frequency", "skipped", "joins", "compares", "governors",
    "negations", "talk", "asking_words", "shopper", "service", "turns", "ands", "articles", "copulas", "wants", "help",
    "having", "for", "to", "places", "starts_asking", "claimed_percent", "before", "after", "ends_claimed",
    "starts_with_type", "as_known", "unknown_unclaimed", "unclaimed_types", "type_words", "type_starts_known",
    "type_ends_known", "type_frequency", "wish", "asking", "advice", "comparison", "out_of_scope", "support",
    "follow_up", "finds", "is_compare_products", "is_advise", "is_ask_product", "is_small_talk", "is_out_of_scope",
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
    def facets(self) -> list[str | None]:
        """The facet that the draft gives each of them, None where it gives none."""
        first = len(self.question.words) - len(self.own)  # the newest utterance is the last
        found: list[str | None] = [None] * len(self.own)
        for span in self.draft.spans:
            for index in span.indices:
                if index >= first:
                    found[index - first] = span.facet
        return found

    @cached_property
    def unclaimed(self) -> list[str]:
        """Words of the newest utterance that mean something, and that no span and no closed phrase has."""
        first = len(self.question.words) - len(self.own)
        claimed = self.conversation.taken.union(i for refusal in self.conversation.refusals for i in refusal.words)
        return [
            word
            for index, (word, facet) in enumerate(zip(self.own, self.facets, strict=True), first)
            if facet is None and index not in claimed and word not in SKIPPED
        ]


def numbers(reading: Reading) -> tuple[int, ...]:
    """Return the numbers, in the order of `NAMES`."""
    return (
        *_shape(reading),
        *_spans(reading),
        *_read(reading),
        *_words(reading.own),
        *_listed(reading.own),
        *_claims(reading),
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
    yield _mean([10 * len(word) for word in own])
    yield _mean([_frequency(word) for word in own])


def _listed(own: Sequence[str]) -> Iterator[int]:
    """Yield how many of the words are of a kind."""
    found = [0] * len(_KINDS)
    for word in own:
        for kind in _KINDS_OF.get(word, ()):
            found[kind] += 1
    yield from found
    yield int(own[:1] != [] and own[0] in _ASKING_WORDS)


def _claims(reading: Reading) -> Iterator[int]:
    """Yield which words the draft's spans claim, and whether the word list agrees."""
    own, facets, known = reading.own, reading.facets, words().facets
    claimed = [index for index, facet in enumerate(facets) if facet is not None]
    yield 100 * len(claimed) // max(len(own), 1)
    yield claimed[0] if claimed else len(own)
    yield len(own) - 1 - claimed[-1] if claimed else len(own)
    yield int(facets[-1:] not in ([], [None]))
    yield int(facets[:1] == ["type"])
    yield sum(known.get(own[index]) == facets[index] for index in claimed)
    yield sum(facet is None and not is_known(word) for word, facet in zip(own, facets, strict=True))
    yield sum(known.get(word) == "type" for word in reading.unclaimed)
    words_of = [own[index] for index in claimed if facets[index] == "type"]
    yield len(words_of)
    yield int([known.get(word) for word in words_of[:1]] == ["type"])
    yield int([known.get(word) for word in words_of[-1:]] == ["type"])
    yield _mean([_frequency(word) for word in words_of])


def _frequency(word: str) -> int:
    """Return twice the logarithm of how often products have the word."""
    return int(2 * log2(1 + words().counts.get(word, 0)))


def _mean(values: Sequence[int]) -> int:
    return sum(values) // max(len(values), 1)


def _kinds_of() -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for kind, listed in enumerate(_KINDS):
        for word in listed:
            found[word].append(kind)
    return dict(found)


_KINDS_OF = _kinds_of()


def _patterns(text: str) -> Iterator[int]:
    """Yield which patterns the question has."""
    for pattern in _PATTERNS:
        yield int(bool(pattern.search(text)))


def _intents(intent: str) -> Iterator[int]:
    for known in _INTENTS:
        yield int(intent == known)
