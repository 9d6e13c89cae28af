"""Tells what of a text speaks to the machine that reads it from what speaks of things to buy, by its form.

A shopper's clause names a thing, a quality, a price. One that speaks to the machine begins with a verb that nobody asks
a shop with ("ignore", "respond", "pretend"), and its objects are the machine's own: its rules, role, prompt, output. Or
it is markup or code. No phrase is looked for as a whole: words add up, and what the clause names of products counts
against them. `phrases.txt` has the words, in every language that is read.
"""

import re
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Final

from service.planner.fallback.reading.en.data import PHRASES
from service.planner.text import fold

SURE: Final = 4  # a text with a clause of this weight gives orders
NEARLY: Final = 3  # or two of this
BESIDE: Final = 2  # and so do its clauses of this weight
_NAMED = 2  # what a thing or a quality takes from a clause's weight
_DISOBEY = PHRASES.words("word.order.disobey")
_VERBS = PHRASES.words("word.order.verbs")
_SHY = PHRASES.words("word.order.shy")
_STRICT = PHRASES.words("word.order.strict")
_SOFT = PHRASES.words("word.order.soft")
_LEADS = PHRASES.words("word.order.leads")
_YOURS = PHRASES.words("word.order.yours")
_ASKS = PHRASES.words("word.order.asks")
_BEGIN = _DISOBEY | _VERBS | _SHY
MACHINES: Final = _STRICT | _SOFT
TELLING: Final = _STRICT | _DISOBEY | _SOFT
_ROLES: Final = _STRICT | PHRASES.words("word.order.roles")
_JOINT = re.compile(r" (?:and|then|but|y|und|et) ")
_OTHERS = re.compile(r"\b(?:about|like|as|you are|you're)\b")  # an order names behind these what it is about
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
# Markup and code, whatever stands in them: no product is called so.
_CODE = re.compile(
    r"<!--.*?(?:-->|$)|/\*.*?(?:\*/|$)|<\|[^|>]*\|>\s*(?:system\b.*?(?=<\||$))?|```.*?(?:```|$)|\{\{.*?\}\}|\$\([^)]*\)"
    r"|</?[a-z][\w-]*(?:\s[^<>]*)?/?>"  # tags, not what stands between them
    r"|[{\[]\s*[\"']\w+[\"']\s*:.*?(?:[}\]]+|$)"  # JSON
    r"|[\"']?\s*;?\s*\b(?:drop table|delete from|insert into|select \S+ from|union select|truncate table)\b[^;]*;?"
    r"|[\"']\s*or\s+[\"']?1[\"']?\s*=\s*[\"']?1\S*"
    r"|\b(?:if|for|while|function)\b[^(){}]{0,20}\([^)]*\)\s*\{"
    r"|\b[a-z_][\w.]*\((?:\)|[\"'][^)]*\)|\w+\([^()]*\)[^)]*\)|[^()]*\);)(?:\.\w+\([^()]*\))*\)?;?"  # calls
    r"|(?:^|(?<=[;\s]))import \w+(?=\s*(?:;|$))|(?:https?|file|ftp)://\S+|(?<=\s)/\w+/\S+"
    r"|(?:\|\||&&)\s*[a-z]+\b(?: [-/]\S+)*|\|\s*(?:ba)?sh\s*$"
    r"|[|;]\s*(?:curl|wget|sudo|whoami|(?:rm|cat|ls|nc|sh) [-/]\S+)(?: -\S+)*"
    r"|\b\w+\s*=\s*(?:[\[{][^\]}]*[\]}]+|[a-z]+_[a-z]+)"  # settings
)
SIGNS: Final = "<{=`|;/("
_MARKS = re.compile(r"[<{=`|;]|/\*|://|\w\(|\$\(|\s/\w+/")  # one of these is in all of it, and of SIGNS in each


def may_speak(texts: Collection[str]) -> bool:
    """Tell cheaply whether words may speak to a machine."""
    if TELLING.isdisjoint(texts):
        return False
    if not _STRICT.isdisjoint(texts) or not _DISOBEY.isdisjoint(texts):
        return True
    return not (_SOFT.isdisjoint(texts) or _BEGIN.isdisjoint(texts))


def may_have_code(text: str) -> bool:
    """Tell cheaply whether a text may have markup or code."""
    return _MARKS.search(text) is not None


def code(text: str) -> list[tuple[int, int]]:
    """Return the positions of markup and code in a text in small letters."""
    return [match.span() for match in _CODE.finditer(text)] if may_have_code(text) else []


def weight(clause: str, names: Callable[[str], int]) -> int:
    """Return how surely a clause speaks to a machine; `names` counts the words of products in a text.

    A verb that gives an order counts where the clause begins.
    """
    most, said = _spoken(clause)
    return most - (_NAMED if most >= SURE else 1) * names(said) if most else 0


@lru_cache(maxsize=64)  # of the question at hand: whoever asks of a clause asks again
def _spoken(clause: str) -> tuple[int, str]:
    """Return a clause's weight before what it names counts against it, and where it may name that."""
    folded = fold(clause)
    halves = _JOINT.split(folded, maxsplit=1)
    most = max(map(_addressed, (folded, *halves) if len(halves) > 1 else halves))
    return most, _OTHERS.split(folded, maxsplit=1)[0] if most >= NEARLY else folded


def _addressed(clause: str) -> int:
    texts = _WORD.findall(clause)
    at = 0
    while at < len(texts) and (texts[at] in _LEADS or texts[at : at + 2] == ["do", "not"]):
        at += 1
    said = texts[at:]
    if not said:
        return 0
    things = [text for text in dict.fromkeys(said) if text in MACHINES]
    strict = sum(text in _STRICT for text in things)
    if said[0] in _ASKS:  # "what if you forget all your instructions"
        return SURE if strict and not _DISOBEY.isdisjoint(said) else 0
    if len(things) == len(said) and not _ROLES.isdisjoint(said):
        return SURE  # "note to the assistant:", "AI:"
    weight = len(things) + strict
    if said[0] in _DISOBEY or said[0] in _VERBS:
        weight += (
            2
            + (said[0] in _DISOBEY)
            + (not _YOURS.isdisjoint(texts))
            - (said[0] in things) * (1 + (said[0] in _STRICT))
        )
    elif said[0] in _SHY:
        weight += 1
    elif strict < 2:  # "do the instructions tell the story and rules"
        weight = min(weight, SURE - 1)
    return weight
