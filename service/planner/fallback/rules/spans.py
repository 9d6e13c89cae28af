"""Finds by rule what a question names: facet spans, in parts where it wants several things.

What words name is in the list of product words (`spelling.words`); the product is told by its place in the sentence.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from service.planner.fallback.reading.conversation import Conversation
from service.planner.fallback.reading.en import lists
from service.planner.fallback.rules.facets import Readings
from service.planner.plan import MAX_PARTS
from service.planner.plan_text import FacetSpan
from service.planner.shop import current
from service.planner.spelling import is_known, words
from service.planner.vocabulary import DEFAULT_INTENT

SKIPPED = lists.FILLERS | lists.LINKS | lists.NEGATIONS | lists.FUNCTION_WORDS  # words that name nothing
_MAX_TYPE_WORDS = 3
_MARKS = ".…!?,;:-–—"  # "...", with a space before it, is a word of a question
_FEWEST_COMPARED = 2
_BETWEEN = ("between", "btwn")
_GOVERNED = {"with": "feature", "for": "audience"}
_ATTRIBUTES = frozenset(
    ("audience", "brand", "color", "material", "feature", "occasion", "condition", "origin", "shape", "time")
)


def find_spans(conversation: Conversation, intent: str) -> tuple[list[FacetSpan], str | None]:
    """Return spans in question order, without overlaps, and the vertical of the thing that is named last."""
    return _Spans(conversation, intent).find()


class _Spans:
    """Every word belongs to at most one span; `_taken` has the words that are already in one."""

    def __init__(self, conversation: Conversation, intent: str) -> None:
        question = conversation.question
        self._question = question
        self._intent = intent
        self._words = Readings(question, SKIPPED)
        self._newest = len(question.utterances) - 1
        self._is_said = bool(lists.CONVERSATIONAL.search(question.text.lower()))
        self._compares = intent == "compare_products"
        self._skipped = SKIPPED | (lists.QUESTION_VERBS if intent != DEFAULT_INTENT else frozenset())
        refusing = () if intent in ("ask_product", "advise") else conversation.refusals
        self._values = [value for refusal in refusing for value in refusal.values]
        self._refused = {index for value in self._values for index in value}
        cues = {index for refusal in refusing for index in refusal.words} - self._refused
        self._barred = conversation.taken | cues
        self._leads = self._lead_ins()
        self._is_said &= self._leads == self._words.lead_ins
        self._taken: dict[int, FacetSpan] = {}

    def _lead_ins(self) -> frozenset[int]:
        """Return the words that lead to a thing; none where it stands before them: "boots, i need them by friday"."""
        leads, utterances = self._words.lead_ins, [word.utterance for word in self._question.words]
        told = {utterance for index, utterance in enumerate(utterances) if index not in leads and self._is_free(index)}
        return frozenset(index for index in leads if utterances[index] in told or self._tells(utterances[index]))

    def _tells(self, utterance: int) -> bool:
        """Tell whether an utterance whose lead-in leads to nothing is a sentence, and no name with a tail."""
        words = self._question.words
        led = [words[index].text for index in sorted(self._words.lead_ins) if words[index].utterance == utterance]
        while led and led[-1] in SKIPPED:
            led.pop()
        return not led or bool(lists.CONVERSATIONAL.search(" ".join(led)))

    def find(self) -> tuple[list[FacetSpan], str | None]:
        """Return the spans and the vertical, see `find_spans`."""
        facets = self._words.facets
        for value in self._values:
            name = current.name_of([self._words.text(index) for index in value]) if current.SHOPS else None
            self._take(name.facet if name else facets[value[-1]] or "feature", value[0], value[-1])
        for index in range(len(facets)):
            if index not in self._taken and index not in self._barred:
                self._match(index)
        spans: list[FacetSpan] = []
        for utterance in range(self._newest + 1):
            now = self._of(utterance, is_first=not spans)
            spans = self._after(spans, now)
        heads = [span for span in spans if span.facet == "type" and not span.refused]
        vertical = words().verticals.get(self._words.text(heads[-1].last)) if heads else None
        return sorted(spans, key=lambda span: span.first), vertical

    def _of(self, utterance: int, *, is_first: bool) -> list[FacetSpan]:
        """Return the spans of one utterance, in parts where it names several things."""
        facets = self._words.facets
        indices = [index for index, word in enumerate(self._question.words) if word.utterance == utterance]
        every = list(self._runs(indices))
        things = self._things(indices) if utterance == self._newest else []
        runs = [run for run in every if not self._is_governed(run[0])]
        if is_first:
            runs += [run for run in every if run not in runs and not self._is_sentence(run[0])]
        for thing in things:
            for run in runs:
                if set(run) <= set(thing) and (self._compares or facets[run[-1]] == "type"):
                    self._take("type", run[0], run[-1])
        head = self._head(runs, is_first=is_first)
        if head and not things:
            self._take("type", max(head[0], head[-1] - _MAX_TYPE_WORDS + 1), head[-1])
        elif runs and not things and self._intent == DEFAULT_INTENT and not is_first:
            is_name = not any(is_known(self._words.text(index)) for index in runs[0])
            self._take("brand" if is_name else "feature", runs[0][0], runs[0][-1])
        for index in indices:
            self._match_phrase(index)
            if not is_first and index in self._words.numbers:
                self._take("size", index, index)  # "what about 75?"
        self._merge(indices)
        spans = sorted({span for index, span in self._taken.items() if index in indices}, key=lambda span: span.first)
        return [replace(span, part=self._part(span, things)) for span in spans] if things else spans

    def _head(self, runs: list[list[int]], *, is_first: bool) -> list[int] | None:
        """Return the run that names the thing: a bare name goes before what a sentence beside it says."""
        bare = [run for run in runs if not self._is_sentence(run[0])]
        names = [run for run in runs if self._words.facets[run[-1]] == "type"]
        if is_first and bare and self._is_said and not any(run in bare for run in names):
            return bare[0]
        return next(iter(names or (bare if is_first else [])), None)

    def _is_sentence(self, index: int) -> bool:
        """Tell whether a word stands in what is more than a name: all of a question that does not begin with one."""
        if not self._is_said or self._question.words[index].utterance < self._newest:
            return self._is_said
        return index >= self._name_ends

    @cached_property
    def _name_ends(self) -> int:
        """Return the first word after the clause that a question begins with, if that is no sentence; else its own."""
        first = len(self._question.words) - len(self._question.own_words)
        clause = self._words.clause(first)
        is_all = len(clause) == len(self._question.own_words)
        return first if is_all or lists.CONVERSATIONAL.search(self._words.said(clause)) else clause.stop

    def _merge(self, indices: list[int]) -> None:
        """Make one value of adjacent words of one facet: "brushed nickel", "agatha christie"."""
        for index in indices[1:]:
            left, right = self._taken.get(index - 1), self._taken.get(index)
            if not left or not right or left == right or not self._words.joined(index - 1):
                continue
            is_one = (left.facet, left.refused) == (right.facet, right.refused)
            if is_one and left.facet in ("brand", "color", "material", "audience"):
                span = replace(left, last=right.last)
                self._taken.update(dict.fromkeys(span.indices, span))

    def _part(self, span: FacetSpan, things: list[list[int]]) -> int:
        """Return the part that a span belongs to; what a comparison says after its last thing is for all of them."""
        if not things or (self._compares and span.first > things[-1][-1]):
            return 0
        return max(1, sum(span.first >= thing[0] for thing in things))

    def _runs(self, indices: list[int]) -> Iterator[list[int]]:
        """Yield runs of words that may be a thing's name: content words between function words, marks and facets."""
        run: list[int] = []
        follows = False
        for index in indices:
            follows = self._is_content(index, follows=follows)
            is_content = follows and index not in self._leads
            run += [index] if is_content else []
            if run and (not is_content or not self._words.joined(index)):
                yield run
                run = []

    def _is_governed(self, index: int) -> bool:
        """Tell whether a preposition governs a word: "with a timer" describes a thing and names none."""
        return self._governed[index] and not (self._compares and self._words.text(index) in lists.COMPARING)

    @cached_property
    def _governed(self) -> list[bool]:
        """Tell of each word whether one before it governs: what governs a word governs those that follow it."""
        governed = [False]
        for index in range(len(self._question.words) - 1):
            text = self._words.text(index)
            ends = text in lists.JOINS or (self._compares and (text in lists.COMPARING or text == "of"))
            # "the pros and cons of a steam mop"
            follows = index not in self._leads and self._words.joined(index) and not ends
            governed.append(follows and (text in lists.GOVERNORS or governed[index]))
        return governed

    def _things(self, indices: list[int]) -> list[list[int]]:
        """Return the words of each of several things, or of what is compared; none where it is one thing."""
        if self._intent not in (DEFAULT_INTENT, "compare_products"):
            return []
        things: list[list[int]] = []
        for side in self._sides(indices):
            if things and not self._compares and self._is_remark(things[-1][-1], side[0]):
                continue
            thing = [index for index in side if not self._is_governed(index)]
            names = [index for index in thing if index not in self._taken]
            is_named = self._compares or (bool(names) and self._words.facets[names[-1]] == "type")
            is_named |= bool(things and names) and self._words.text(side[0] - 1) in ("a", "an", "some")
            if things and not self._compares and self._continues(things[-1], side, thing, is_named):
                continue
            if not is_named:
                return []
            things += [thing] if thing else []
        return things[:MAX_PARTS] if len(things) > 1 else []

    def _sides(self, indices: list[int]) -> list[list[int]]:
        """Return the words that carry meaning between words that join."""
        joins = lists.JOINS | lists.COMPARING if self._compares else lists.JOINS
        sides: list[list[int]] = [[]]
        for index in indices:
            if self._compares and self._words.text(index) in _BETWEEN:
                sides = [[]]
            elif self._words.text(index) in joins and index not in self._leads:
                sides.append([])
            elif self._is_free(index):
                sides[-1].append(index)
            if not self._words.joined(index):
                sides.append([])
                if self._compares and len(sides) > _FEWEST_COMPARED and self._is_clause(index + 1):
                    break
        return [side for side in sides if side]

    def _is_clause(self, index: int) -> bool:
        """Tell whether a clause about the compared things begins, and not another one: ", which is quieter?"."""
        text = self._words.text(index)
        return text in self._skipped and text not in lists.JOINS | lists.COMPARING | lists.ARTICLES

    def _is_remark(self, before: int, index: int) -> bool:
        """Tell whether a word stands in another clause, which wants nothing: "i saw one at a friend's"."""
        clause = self._words.clause(index)
        if before in clause or not lists.STATEMENT.search(said := self._words.said(clause)):
            return False
        return not (lists.LEAD_INS.search(said) or lists.WISH.search(said))

    def _continues(self, before: list[int], side: list[int], thing: list[int], is_named: bool) -> bool:
        """Tell whether a side only says more of the thing before it, or makes one thing of two names.

        "For school and weekend travel", "salt and pepper grinder", "mop and bucket set".
        """
        text = self._words.text
        if not thing or all(index in self._taken for index in thing):
            return True
        if text(side[0] - 1) in lists.ARTICLES:
            return False
        governs = any(text(index) in lists.GOVERNORS for index in range(before[-1], side[0]))
        is_one = (text(before[-1]), text(thing[0])) in words().joined
        return (governs and not is_named) or is_one or text(thing[-1]) in lists.SETS

    def _after(self, before: list[FacetSpan], now: list[FacetSpan]) -> list[FacetSpan]:
        """Return the spans that stand after an utterance: whoever names a thing starts afresh."""
        names = any(not span.refused and span.facet in ("type", "line", "model") for span in now)
        return now if names else before + now

    def _match(self, index: int) -> None:
        """Take the words of an attribute that starts here, or of the shop's longest name."""
        facet = self._words.facets[index]
        is_function = self._words.text(index) in self._skipped and len(self._question.words) > 1
        in_shop = self._words.name_of_shop(index) if current.SHOPS and not is_function else None
        found = in_shop or self._words.values[index]
        if found:
            self._take(found[0], index, found[1])
        elif facet in _ATTRIBUTES:
            self._take(facet, index, index)

    def _match_phrase(self, index: int) -> None:
        """Take "with pockets", "for dogs": a preposition and the one or two free words it governs."""
        text, joined = self._words.text, self._words.joined
        facet = _GOVERNED.get(text(index))
        if not facet or not joined(index) or index in self._leads:
            return
        first = index + 1
        while text(first) in lists.ARTICLES and joined(first):
            first += 1
        last = first - 1
        while last < first + 1 and self._is_content(last + 1) and (last < first or joined(last)):
            last += 1
        if last >= first:
            self._take(facet, first, last)

    def _is_free(self, index: int) -> bool:
        text = self._words.text(index)
        return bool(text.strip(_MARKS)) and text not in self._skipped and index not in self._barred

    def _is_content(self, index: int, *, follows: bool | None = None) -> bool:
        """Tell whether a word may be of a name; a number may that `follows` such a word, None where nobody has looked.

        A walk through the words knows: a line of numbers would else be walked back from each of them.
        """
        if not self._is_free(index) or index in self._taken:
            return False
        if index not in self._words.numbers:
            return True
        is_joined = index > 0 and self._words.joined(index - 1)
        return is_joined and (self._is_content(index - 1) if follows is None else follows)

    def _take(self, facet: str, first: int, last: int) -> None:
        """Mark words as taken by a facet, unless some are already."""
        if any(index in self._taken or index in self._barred for index in range(first, last + 1)):
            return
        span = FacetSpan(facet, first, last, refused=first in self._refused)
        self._taken.update(dict.fromkeys(span.indices, span))
