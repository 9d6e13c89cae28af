"""Tells what of a text speaks to the machine that reads it from what speaks of things to buy, by its form.

A shopper's clause names a thing, a quality, a price. One that speaks to the machine begins with a verb that nobody asks
a shop with ("ignore", "respond", "pretend"), and its objects are the machine's own: its rules, role, prompt, output. Or
it is markup or code. No phrase is looked for as a whole: words add up, and what the clause names of products counts
against them. `phrases.txt` has the words, in every language that is read.
"""

import re
from collections.abc import Callable, Collection
from typing import Final

from service.planner.reading.en.data import PHRASES
from service.planner.reading.tokens import fold

SURE: Final = 4  # a text with a clause of this weight gives orders
BESIDE: Final = 2  # and so do its clauses of this weight
_NAMED = 2  # what a thing or a quality takes from a clause's weight
_VERBS = PHRASES.words("word.order.verbs")
_SHY = PHRASES.words("word.order.shy")
_STRICT = PHRASES.words("word.order.strict")
_SOFT = PHRASES.words("word.order.soft")
_LEADS = PHRASES.words("word.order.leads")
_YOURS = PHRASES.words("word.order.yours")
_MINE = PHRASES.words("word.order.mine")
_ASKS = PHRASES.words("word.order.asks")
_BEGIN = _VERBS | _SHY
MACHINES: Final = _STRICT | _SOFT
_ROLES: Final = _STRICT | PHRASES.words("word.order.roles")
_BEGUN = 3  # what a verb weighs that has an object, or somebody told
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
    r"|(?:\|\||&&)\s*[a-z]+\b(?: [-/]\S+)*|[|;]\s*(?:curl|wget|bash|sudo|whoami|(?:rm|cat|ls|nc|sh) [-/]\S+)(?: -\S+)*"
    r"|\b\w+\s*=\s*(?:[\[{][^\]}]*[\]}]+|[a-z]+_[a-z]+)"  # settings
)
_CALL = re.compile(r"[a-z_.]{2,}\(")  # a word, and a bracket that belongs to it


def may_speak(texts: Collection[str]) -> bool:
    """Tell cheaply whether words may speak to a machine."""
    return not _STRICT.isdisjoint(texts) or not (_SOFT.isdisjoint(texts) or _BEGIN.isdisjoint(texts))


def may_have_code(text: str) -> bool:
    """Tell cheaply whether a text may have markup or code."""
    return any(mark in text for mark in "<{=`|;$*") or "://" in text or _CALL.search(text) is not None


def code(text: str) -> list[tuple[int, int]]:
    """Return the positions of markup and code in a text in small letters."""
    return [match.span() for match in _CODE.finditer(text)] if may_have_code(text) else []


def weight(clause: str, names: Callable[[str], int]) -> int:
    """Return how surely a clause speaks to a machine; `names` counts the words of products in a text.

    A verb that gives an order counts where the clause begins; what is the shopper's own ("reset my password") does not.
    """
    folded = fold(clause)
    halves = _JOINT.split(folded, maxsplit=1)
    most = max(map(_addressed, (folded, *halves) if len(halves) > 1 else halves))
    if not most:
        return 0
    said = _OTHERS.split(folded, maxsplit=1)[0] if most >= _BEGUN else folded
    return most - _NAMED * names(said)


def _addressed(clause: str) -> int:
    texts = _WORD.findall(clause)
    at = 0
    while at < len(texts) and texts[at] in _LEADS:
        at += 1
    said = texts[at:]
    if not said or said[0] in _ASKS:
        return 0
    things = [text for text in dict.fromkeys(said) if text in MACHINES]
    if len(things) == len(said) and not _ROLES.isdisjoint(said):
        return SURE  # "note to the assistant:", "AI:"
    strict = sum(text in _STRICT for text in things)
    is_verb = said[0] in _VERBS
    weight = len(things) + strict - 2 * (not _MINE.isdisjoint(said))
    if is_verb:
        weight += 2 + (not _YOURS.isdisjoint(texts)) - (said[0] in things) * (1 + (said[0] in _STRICT))
    elif said[0] in _SHY:
        weight += 1
    elif strict < 2:  # "do the instructions tell the story and rules"
        weight = min(weight, SURE - 1)
    return weight
