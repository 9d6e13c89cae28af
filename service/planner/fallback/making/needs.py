"""Whether a question names the thing that is wanted, or tells what it is for: "keep my feet dry in the mud"."""

from collections.abc import Callable
from typing import Final

from service.planner.fallback.reading.en.lists import FUNCTION_WORDS, UNSEARCHED
from service.planner.plan import Plan
from service.planner.question import Question
from service.planner.shop.kinds import singular
from service.planner.shop.kinds_of_plan import Need
from service.planner.spelling import words as word_list

# Odds above and below which words decide, and not what the plan takes for a thing: fitted to the first three sets of
# rehearsal/bench/kinds_questions.jsonl.
_SURE: Final = 1.0
_NEVER: Final = -2.0
_DROPPED: Final = FUNCTION_WORDS | frozenset(UNSEARCHED)


def need_of(plan: Plan, question: Question, tells_need: Callable[[str], float | None]) -> Need:
    """Return the need that a question tells; none where it names a thing, or several.

    What the planner takes for the thing is one if it is what things are called, and if nothing comes before it but
    what says of which sort it is ("waterproof rain boots") and how one begins ("i am looking for a"). In "my boots
    give me blisters" something else is wanted. `tells_need` gives the logarithm of the odds by the words, if any is
    known: sure enough, they overrule that, since "trim the tree" is no tree, and "surprise me" no need.
    """
    if not plan.queries:
        return Need()
    said = [word.text for word in question.own_words]
    odds = tells_need(" ".join(said))
    if odds is not None and odds > _SURE:
        return Need(" ".join(said), is_told=True)
    if plan.parts or (odds is not None and odds < _NEVER):
        return Need()
    searched = set(plan.queries[0].split())
    for value in plan.facets.get("type", ()):
        words = value.split()
        if not words or not _names_things(words[-1]):
            continue
        first = next((at for at in range(len(said)) if said[at : at + len(words)] == words), None)
        if first is not None and all(_is_before_a_thing(word, searched) for word in said[:first]):
            return Need()
    return Need(" ".join(said))


def _names_things(word: str) -> bool:
    facets = word_list().facets
    return any(facets.get(form) == "type" for form in (word, singular(word), f"{singular(word)}s"))


def _is_before_a_thing(word: str, searched: set[str]) -> bool:
    return word not in FUNCTION_WORDS if word in searched else word in _DROPPED
